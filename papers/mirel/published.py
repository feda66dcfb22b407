"""The published tables: rows, the presets that reproduce them, and the numbers they are compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from miue.common.errors import unknown_name


@dataclass(frozen=True)
class PublishedRow:
    """One row.

    Attributes:
        label: what it says.
        preset: what reproduces it.
        estimator: what its instances are predicted from.
        paper: level → column → mean and standard deviation (None where not given), in percent; empty for
            a row of ours.
        ood_score: level → score that detects out-of-distribution items; empty for the paper's measure.
        tasks: column → task that fills it, where that is another than for other tables.
    """

    label: str
    preset: str
    estimator: str
    paper: Mapping[str, Mapping[str, tuple[float, float | None]]]
    ood_score: Mapping[str, str]
    tasks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper.

    Attributes:
        name: its label in the paper's source.
        title: what it shows.
        rows: its rows in order.
        not_run: why it may have no results here.
    """

    name: str
    title: str
    rows: tuple[PublishedRow, ...]
    not_run: str = ""

    @property
    def presets(self) -> list[str]:
        """Presets of its rows, each once, in order."""
        return list(dict.fromkeys(row.preset for row in self.rows))


@cache
def published_tables() -> dict[str, PublishedTable]:
    """Return every table that presets reproduce, by name.

    Reference: Liu & Ji 2024.
    """
    content = json.loads((files("papers.mirel") / "tables.json").read_text("utf-8"))
    return {
        name: PublishedTable(
            name,
            table["title"],
            tuple(
                PublishedRow(
                    row["label"],
                    row["preset"],
                    row["estimator"],
                    {
                        level: {column: (cell[0], cell[1]) for column, cell in columns.items()}
                        for level, columns in row["paper"].items()
                    },
                    row.get("ood_score", {}),
                    row.get("tasks", {}),
                )
                for row in table["rows"]
            ),
            table.get("not_run", ""),
        )
        for name, table in content.items()
    }


def published_table(name: str) -> PublishedTable:
    """Return one table.

    Raises:
        ConfigError: no such table; the nearest is named.
    """
    tables = published_tables()
    if name not in tables:
        raise unknown_name("table", name, tables)
    return tables[name]
