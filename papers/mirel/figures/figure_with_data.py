"""A figure and the numbers in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from miue.common.files import make_folder
from miue.common.tables import write_rows
from miue.report.figures import save_figure

Cell = str | int | float


@dataclass(frozen=True)
class FigureWithData:
    """A figure and the numbers in it, as a tidy table.

    Attributes:
        figure: what a person looks at.
        columns: names of the table's columns.
        rows: its rows.
    """

    figure: Figure
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def write(self, folder: Path, name: str) -> None:
        """Write <name>.csv and <name>.png to ``folder``, each whole or not at all."""
        make_folder(folder)
        write_rows(folder / f"{name}.csv", self.columns, [list(map(_text, row)) for row in self.rows])
        save_figure(self.figure, folder / f"{name}.png")


def plain(axes: Any) -> None:
    """Take the upper and right frame away and make ticks small."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)


def _text(cell: Cell) -> str:
    return f"{cell:.5g}" if isinstance(cell, float) else str(cell)
