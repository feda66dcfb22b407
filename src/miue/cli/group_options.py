"""The options that say which group each bag belongs to, as ``evaluate`` and ``report`` have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.options import LABELS
from miue.common.errors import ConfigError

if TYPE_CHECKING:
    from miue.predictions.table import PredictionTable


@dataclass(frozen=True)
class GroupOptions:
    """Which table names the group of each bag, and in which column."""

    groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table of bags or patients and a column of groups (hospital, scanner): also evaluate each group "
            "by itself.",
            rich_help_panel=LABELS,
        ),
    ] = None
    group_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of the groups in --groups.", rich_help_panel=LABELS)
    ] = None

    def check(self, id_column: str | None = None) -> None:
        """Raise unless table and column are named together, or neither.

        Args:
            id_column: another option that has a meaning for the table alone.

        Raises:
            ConfigError: one of them alone.
        """
        from miue.common.tables import read_header

        if self.groups is not None and self.group_column is None:
            columns = ", ".join(map(repr, read_header(self.groups)))
            raise ConfigError(
                item="option --groups",
                wanted="--group-column with it",
                got=f"{str(self.groups)!r} alone, with the columns {columns}",
                fix="name the column of the groups",
            )
        for option, value in (("--group-column", self.group_column), ("--id-column", id_column)):
            if self.groups is None and value is not None:
                raise ConfigError(
                    item=f"option {option}",
                    wanted="--groups with it",
                    got=f"{value!r} alone",
                    fix="name the table of bags and groups with --groups",
                )

    def read(self, tables: Sequence[PredictionTable], id_column: str | None) -> dict[str, str] | None:
        """Return the group of each of these bags that the table lists; None where no table is named.

        Args:
            tables: predictions of the bags.
            id_column: that of the names of bags or patients in the table, if it is not recognized.
        """
        from miue.io.labels.groups import read_groups

        if self.groups is None or self.group_column is None:
            return None
        names = list(dict.fromkeys(name for one in tables for name in one.bag_ids.tolist()))
        patient_of = {
            name: patient
            for one in tables
            if one.patients is not None
            for name, patient in zip(one.bag_ids.tolist(), one.patients.tolist(), strict=True)
            if patient
        }
        return read_groups(self.groups, self.group_column, names, id_column=id_column, patient_of=patient_of)
