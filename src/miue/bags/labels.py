"""Labels of bags or instances, of which some may be unknown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from miue.bags.cells import (
    UNKNOWN_WORDS,
    alike_names,
    check_formulas,
    is_missing,
    one_form,
    refuse_quantities,
    sorted_names,
)
from miue.bags.partly_known import PartlyKnown
from miue.common.errors import DataError, unknown_name
from miue.common.values import several

LabelSequence = Collection[Any]
"""Class indices from 0, or names of classes, None where unknown: a list, array, tensor or column of a frame."""


@dataclass(frozen=True, eq=False)
class Labels(PartlyKnown):
    """Class indices of which some may be unknown; where all are known, NumPy takes them as an array.

    Attributes:
        values: class index from 0; zero and without meaning where ``known`` is false.
        known: whether the label is known.

    >>> np.asarray(Labels.of([0, 1])).tolist(), list(Labels.of([0, None]))
    ([0, 1], [0, None])
    """

    values: Int64[np.ndarray, "n"]
    known: Bool[np.ndarray, "n"]

    item = "label"

    @classmethod
    def unknown(cls, count: int) -> Labels:
        """Return ``count`` unknown labels."""
        return cls(np.zeros(count, np.int64), np.zeros(count, bool))

    @classmethod
    def of(cls, labels: Sequence[int | float | np.number | np.bool_ | None] | np.ndarray) -> Labels:
        """Return labels from class indices, None standing for an unknown one.

        Raises:
            DataError: a label is negative or not a whole number.
        """
        known = np.array([label is not None for label in labels], bool)
        filled = [0 if label is None else label for label in labels]
        most = np.iinfo(np.int64).max
        usable = [isinstance(one, int | float | np.number | np.bool_) and not one > most for one in filled]
        numbers = np.array([one if is_one else -1 for one, is_one in zip(filled, usable, strict=True)])
        values = np.nan_to_num(numbers, nan=-1, posinf=-1, neginf=-1).astype(np.int64)
        wrong: np.ndarray = np.flatnonzero((values != numbers) | (values < 0))
        if len(wrong):
            raise DataError(
                item=f"label {wrong[0]}",
                wanted="a class index 0, 1, …, or None where unknown",
                got=repr(labels[int(wrong[0])]),
                fix="number the classes from 0; mark out-of-distribution bags with is_ood, not with a label",
            )
        return cls(values, known)

    @property
    def num_classes(self) -> int:
        """One more than the highest label that is known, 0 where none is."""
        return int(self.values[self.known].max(initial=-1)) + 1

    def counts(self, classes: int) -> Int64[np.ndarray, "C"]:
        """Return how many known labels are of each class.

        >>> Labels.of([0, 2, 2, None]).counts(4).tolist()
        [1, 0, 2, 0]
        """
        return np.bincount(self.values[self.known], minlength=classes)

    def renumbered(self, number: Int64[np.ndarray, "C"]) -> Labels:
        """Return the labels with the new number of each class; those of a class whose number is −1 are unknown.

        >>> Labels.of([0, 2, None]).renumbered(np.array([1, 0, -1])).known.tolist()
        [True, False, False]
        """
        values = number[np.where(self.known, self.values, 0)]
        known = self.known & (values >= 0)
        return Labels(np.where(known, values, 0), known)


def read_labels(labels: LabelSequence, class_names: Sequence[str] = ()) -> tuple[Labels, tuple[str, ...]]:
    """Return labels as class indices, and the names of the classes where labels are names.

    Args:
        labels: class indices, or names of classes; None or NaN where unknown.
        class_names: the order of the classes; names are sorted if it is empty, numbers by value.

    Raises:
        DataError: names beside indices, a name that is not among ``class_names``, or a label that is no index;
            without ``class_names`` also a word that stands for nothing, or two names that are nearly the same.

    >>> labels, names = read_labels(["tumor", None, "normal"])
    >>> labels.values.tolist(), labels.known.tolist(), names
    ([1, 0, 0], [True, False, True], ('normal', 'tumor'))
    """
    values = [None if is_missing(value) else value for value in plain_values(labels)]
    present = [value for value in values if value is not None]
    texts = [isinstance(value, str) for value in present]
    if not any(texts):
        return Labels.of(values), read_class_names(class_names)
    if not all(texts):
        raise DataError(
            item="the labels",
            wanted="names of classes alone, or numbers alone",
            got=f"{present[texts.index(True)]!r} and {present[texts.index(False)]!r}",
            fix="write all labels in one way",
        )
    values = [None if value is None else one_form(value) for value in values]
    present = [value for value in values if value is not None]
    names = read_class_names(class_names) or _sorted_classes(values, present)
    unknown = next((value for value in present if value not in names), None)
    if unknown is not None:
        raise unknown_name("label", unknown, names)
    index = {name: number for number, name in enumerate(names)}
    return Labels.of([None if value is None else index[value] for value in values]), names


def _sorted_classes(values: Sequence[Any], present: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of labels that are names, in order."""
    check_formulas([name.strip() for name in present], "label", "the labels")
    nothing = next((name for name in present if name.strip().lower() in UNKNOWN_WORDS), None)
    if nothing is not None:
        raise DataError(
            item=f"label {values.index(nothing)}",
            wanted="the name of a class, or None where unknown",
            got=repr(nothing),
            fix="pass None, or, where this is a class, all names as class_names",
        )
    alike = alike_names(set(present))
    if alike is not None:
        raise DataError(
            item="the labels",
            wanted="names that differ in more than case, spaces, or how a number is written",
            got=" and ".join(f"{name!r} ({present.count(name)} times)" for name in alike),
            fix="write the class in one way, or name both in class_names",
        )
    names = tuple(sorted_names(present))
    refuse_quantities(names, "the bags", "class_names")
    return names


def read_class_names(names: Any) -> tuple[str, ...]:
    """Return the names of classes, none where they are not specified; letters with marks are in one form.

    Raises:
        DataError: what is no list of different texts.

    >>> read_class_names(["normal", "tumor"])
    ('normal', 'tumor')
    """
    read = plain_values(() if names is None else names, "class names", "class")
    names = tuple(one_form(name) if isinstance(name, str) else "" for name in read)
    if not all(map(str.strip, names)) or len(set(names)) < len(names):
        raise DataError(
            item="the class names",
            wanted="a different text for each class, none of them empty",
            got=", ".join(map(repr, read)),
            fix="name each class once, as texts, the negative one first",
        )
    return names


def plain_values(values: Any, what: str = "labels", of_each: str = "bag") -> list[Any]:
    """Return plain values of a list, an array, a tensor, a column of a data frame, a generator or ``Labels``.

    Raises:
        DataError: what has no order or several columns, a single value, such as a text, or bytes that are no text.

    >>> plain_values(np.array([b"a", b"b"])), plain_values(value for value in (1, 2))
    (['a', 'b'], [1, 2])
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    listed = several(values)
    shape = tuple(getattr(values, "shape", ())) if listed is None or isinstance(values, np.ndarray) else ()
    if listed is None or len(shape) > 1:
        raise DataError(
            item=f"the {what}",
            wanted=f"one for each {of_each}, in their order",
            got=f"shape {shape}" if shape else f"a value of type {type(values).__name__}",
            fix="pass a list, an array (n,), or one column of a data frame",
        )
    plain = values.tolist() if hasattr(values, "tolist") else listed
    plain = [value.item() if isinstance(value, Tensor | np.generic) else value for value in plain]
    try:
        return [value.decode() if isinstance(value, bytes) else value for value in plain]
    except UnicodeDecodeError as error:
        raise DataError(
            item=f"the {what}",
            wanted="text in UTF-8",
            got=repr(error.object),
            fix="decode them: value.decode('latin-1'), say",
        ) from error
