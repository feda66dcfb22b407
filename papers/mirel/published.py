"""The published tables: rows, the presets that reproduce them, and the numbers they are compared with.

``published_tables.csv`` has a line for each table, ``published_numbers.csv`` one for each number, in the order of
the paper. A row of ours has no numbers: its lines, one for each level, name the score that detects what is out of
distribution. Two tables have rows of ours alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from miue.common.errors import unknown_name
from miue.common.tables import read_rows


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
        baseline: the preset that rows are compared with; empty for softmax on the network of each.
    """

    name: str
    title: str
    rows: tuple[PublishedRow, ...]
    not_run: str = ""
    baseline: str = ""

    @property
    def presets(self) -> list[str]:
        """Presets of its rows, each once, in order."""
        return list(dict.fromkeys(row.preset for row in self.rows))


@cache
def published_tables() -> dict[str, PublishedTable]:
    """Return every table that presets reproduce, by name.

    Reference: Liu & Ji 2024.
    """
    rows_of_tables: dict[str, dict[tuple[str, str, str], list[dict[str, str]]]] = {}
    for line in _read_csv("published_numbers.csv"):
        rows = rows_of_tables.setdefault(line["table"], {})
        rows.setdefault((line["row"], line["preset"], line["estimator"]), []).append(line)
    return {
        table["table"]: PublishedTable(
            table["table"],
            table["title"],
            tuple(_build_row(*row, lines) for row, lines in rows_of_tables[table["table"]].items()),
            table["not_run"],
            table["baseline"],
        )
        for table in _read_csv("published_tables.csv")
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


def _build_row(label: str, preset: str, estimator: str, lines: list[dict[str, str]]) -> PublishedRow:
    paper: dict[str, dict[str, tuple[float, float | None]]] = {}
    for line in lines:
        if line["mean"]:
            deviation = float(line["std"]) if line["std"] else None
            paper.setdefault(line["level"], {})[line["column"]] = (float(line["mean"]), deviation)
    ood_score = {line["level"]: line["ood_score"] for line in lines if line["ood_score"]}
    tasks = {line["column"]: line["task"] for line in lines if line["task"]}
    return PublishedRow(label, preset, estimator, paper, ood_score, tasks)


def _read_csv(name: str) -> list[dict[str, str]]:
    return read_rows(Path(__file__).with_name(name))
