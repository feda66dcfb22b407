"""Names of classes, and labels that a column writes as names or numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from miue.bags.cells import cell_name, is_number, known_text, whole_number
from miue.bags.labels import Labels
from miue.common.errors import ConfigError, DataError
from miue.common.plural import plural


def class_names(labels: Iterable[str], source: str, order: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the classes of labels in the order specified, else sorted; numbers by value.

    Raises:
        DataError: an order that leaves a class out, fewer than two classes, or without an order two that differ
            in case alone.
        ConfigError: an order with a class twice.
    """
    texts = [label for label in labels if label]
    present = set(texts)
    sorted_names = sorted(present, key=float) if all(map(is_number, present)) else sorted(present)
    if len(set(order)) < len(order):
        raise ConfigError(
            item="the order of the classes",
            wanted="each class once",
            got=", ".join(order),
            fix=f"the labels of {source!r} are {', '.join(sorted_names)}",
        )
    left_out = next((name for name in sorted_names if order and name not in order), None)
    if left_out is not None:
        raise DataError(
            item=f"label {left_out!r} of {source!r}",
            wanted=f"one of the classes given: {', '.join(order)}",
            got=f"{plural(texts.count(left_out), 'bag')} of this class",
            fix="name it as one of these, add it to --classes, or take these bags out of the table",
        )
    names = tuple(order or sorted_names)
    by_word = sorted(names, key=str.lower)
    alike = next((pair for pair in pairwise(by_word) if pair[0].lower() == pair[1].lower()), None)
    if alike is not None and not order:
        raise DataError(
            item=f"the classes of {source!r}",
            wanted="names that differ in more than case",
            got=" and ".join(f"{name!r} ({plural(texts.count(name), 'bag')})" for name in alike),
            fix="write the class in one way, or name both with --classes",
        )
    if len(names) < 2:
        raise DataError(
            item=f"label table {source!r}",
            wanted="at least two classes",
            got=", ".join(names) or "no label",
            fix="check the label column",
        )
    return names


def read_classes(
    values: Any, table: str, column: str, names: Sequence[str] = (), num_classes: int | None = None
) -> Labels:
    """Return labels from a column with names of classes or their numbers; an empty cell is an unknown label.

    Args:
        values: the column, text.
        table: its name, for messages.
        column: the name of the column, likewise.
        names: those of the classes; numbers alone are read without.
        num_classes: how many there are; as many as names, at least two, if None.

    Raises:
        DataError: a cell that is neither.
    """
    distinct, places = np.unique(np.asarray(values, object).astype(str), return_inverse=True)
    count = max(2, len(names)) if num_classes is None else num_classes
    numbers = np.full(len(distinct), -1, np.int64)
    for position, text in enumerate(distinct.tolist()):
        word = known_text(text)
        if word:
            number = list(names).index(word) if word in names else whole_number(word)
            if number is None or not 0 <= number < count:
                raise DataError(
                    item=cell_name(table, places, position, column),
                    wanted=f"{_one_of(names)}a class index from 0 to {count - 1}, or empty where unknown",
                    got=repr(text),
                    fix="use the names or numbers of the classes; mark out-of-distribution rows with is_ood",
                )
            numbers[position] = number
    return Labels(np.maximum(numbers, 0)[places], (numbers >= 0)[places])


def check_classes(labels: Labels, where: str, num_classes: int) -> None:
    """Raise unless all known labels are classes.

    Raises:
        DataError: one that is.
    """
    wrong: np.ndarray = np.flatnonzero(labels.known & ((labels.values < 0) | (labels.values >= num_classes)))
    if len(wrong):
        raise DataError(
            item=f"label {wrong[0]} in {where}",
            wanted=f"a class index from 0 to {num_classes - 1}",
            got=str(labels.values[wrong[0]]),
            fix="correct the label, or make the file again",
        )


def _one_of(names: Sequence[str]) -> str:
    return f"one of {', '.join(names)}, " if names else ""
