"""Verdicts: what people said of bags while they looked at them, a row each, in a table that only grows.

bag_id, label (a class, ``CANNOT_TELL``, or nothing where a verdict was taken back), note, person, time (UTC)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VERDICTS = ("bag_id", "label", "note", "person", "time")
"""The columns of a table of verdicts, by which it is recognized."""
CANNOT_TELL = "cannot tell"
"""The label of a bag of which a person could not tell the class: it has none."""


def is_of_verdicts(columns: Sequence[str]) -> bool:
    """Return whether a table with these columns is one of verdicts."""
    return set(VERDICTS) <= set(columns)


def last_verdicts(columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the last row of each bag.

    >>> last_verdicts({"bag_id": ["a", "b", "a"], "label": ["no", "no", "yes"]})
    {'bag_id': ['a', 'b'], 'label': ['yes', 'no']}
    """
    last = {bag: row for row, bag in enumerate(columns["bag_id"])}
    return {name: [cells[row] for row in last.values()] for name, cells in columns.items()}


def labels_of_verdicts(columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return a table of verdicts as one of labels: a row of each bag of which a person could tell the class."""
    last = last_verdicts(columns)
    told = [row for row, label in enumerate(last["label"]) if label not in ("", CANNOT_TELL)]
    return {name: [cells[row] for row in told] for name, cells in last.items()}
