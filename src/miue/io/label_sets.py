"""Several labels of a bag, as tables write them: "A;B" in one column, or a column for each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int8

from miue.bags import STATES
from miue.bags.cells import known_text, one_form, row_name
from miue.common.errors import DataError, unknown_name
from miue.io.label_table import LabelTable
from miue.targets import BETWEEN, NONE, UNKNOWN, MultiLabel

OTHERS = (",", "|", "/")
"""What may separate labels in tables of others; part of a label only where all labels are named."""


def read_label_sets(table: LabelTable, labels: Sequence[str]) -> tuple[LabelTable, MultiLabel]:
    """Return a table whose classes are sets of labels, and what the sets are.

    Args:
        table: with a column for each label (1, 0, or empty where unknown), or all labels of a bag in one cell:
            "A;B", "none" for none of them, empty where they are unknown; "A;B?" where it is unknown of B alone.
        labels: their names, which are those of columns if these are there; if empty, all that cells list.

    Raises:
        ConfigError: a label without a column, where others have one.
        DataError: a cell that says neither, or a label that is not among those named.
    """
    columns = [name for name in labels if name in table.cells]
    if columns:
        if len(columns) < len(labels):
            raise unknown_name("label column", next(one for one in labels if one not in columns), table.cells)
        states = np.stack([_of_column(table, name) for name in columns], 1)
    else:
        cells = [_of_cell(cell) for cell in table.labels]
        labels = _labels_in(table, cells, labels)
        states = np.array(
            [[-1 if cell is None else cell.get(name, 0) for name in labels] for cell in cells], np.int8
        )
    target, classes = MultiLabel.of(labels, states.reshape(len(table.ids), len(labels)))
    names = target.class_names
    used = {**table.columns, "label": ", ".join(columns)} if columns else table.columns
    return replace(table, labels=tuple(names[one] if one >= 0 else "" for one in classes), columns=used), target


def _of_column(table: LabelTable, name: str) -> Int8[np.ndarray, "n"]:
    texts = [known_text(cell).lower() for cell in table.cells[name]]
    states = [STATES.get(text, -2) if text else -1 for text in texts]
    if -2 in states:
        row = states.index(-2)
        item = f"label {name!r} of {table.ids[row]!r} in {table.source!r}, {row_name(table.source, row)}"
        wanted, got = "1 or 0, or an empty cell where it is unknown", repr(table.cells[name][row])
        raise DataError(item=item, wanted=wanted, got=got, fix="write it so")
    return np.array(states, np.int8)


def _of_cell(text: str) -> dict[str, int] | None:
    """Return 1 for each label that a cell lists, −1 for those it marks as unknown; None where all are unknown."""
    if text.strip().lower() != NONE and not known_text(text):
        return None
    names = [one_form(name.strip()) for name in text.split(BETWEEN)]
    named = [name for name in names if name and name.lower() != NONE]
    return {name.removesuffix(UNKNOWN): -1 if name.endswith(UNKNOWN) else 1 for name in named}


def _labels_in(table: LabelTable, cells: Sequence[dict[str, int] | None], named: Sequence[str]) -> Sequence[str]:
    """Return the labels that are named, else all that cells list.

    Raises:
        DataError: a cell with another label than those, or with what may be several.
    """
    listed = {name: row for row, cell in reversed([*enumerate(cells)]) for name in cell or ()}
    wrong = [one for one in listed if (one not in named if named else any(sign in one for sign in OTHERS))]
    if wrong:
        wanted = f"one of the labels {', '.join(named)}" if named else f"labels with {BETWEEN!r} between them"
        raise DataError(
            item=f"label {wrong[0]!r} of {table.source!r}, {row_name(table.source, listed[wrong[0]])}",
            wanted=wanted,
            got="another" if named else "a name that may be of several",
            fix="name all labels (classes=NAMES), or correct the cell",
        )
    return named or sorted(listed)
