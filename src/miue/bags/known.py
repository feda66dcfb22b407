"""Values of which some may be unknown: labels, out-of-distribution flags, positions and slides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.common.errors import DataError

Values = TypeVar("Values", bound="PartlyKnown")


@dataclass(frozen=True, eq=False)
class PartlyKnown:
    """Values of n items, some of them unknown; where all are known, NumPy takes them as an array.

    Attributes:
        values: value of each item, of any shape; zero and without meaning where ``known`` is false.
        known: whether the value is known.
    """

    values: np.ndarray
    known: Bool[np.ndarray, "n"]

    item: ClassVar[str]
    """What one of them is called in an error."""

    @classmethod
    def concatenate(cls: type[Values], parts: Sequence[Values]) -> Values:
        """Return the values of all parts, one after the other."""
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.known for part in parts]))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values, by which scikit-learn takes some of them as it does of an array."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self: Values, index: Any) -> Values:
        return type(self)(self.values[index], self.known[index])

    def __iter__(self) -> Iterator[Any]:
        return (value if known else None for value, known in zip(self.values.tolist(), self.known, strict=True))

    def __contains__(self, value: object) -> bool:
        return value in list(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values as an array.

        Raises:
            DataError: one is not known, which an array could not say.
        """
        if not self.known.all():
            raise DataError(
                item=f"{self.item} {int(np.argmin(self.known))}",
                wanted=f"a known {self.item}, to make an array of all",
                got="an unknown one",
                fix="take .values where .known is true",
            )
        if copy is None:  # as needed, which NumPy 1 says by another function
            return np.asarray(self.values, dtype=dtype)
        return np.array(self.values, dtype=dtype, copy=copy)


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


@dataclass(frozen=True, eq=False)
class OodFlags(PartlyKnown):
    """Whether items are out of distribution, or unknown; where all are known, NumPy takes them as an array.

    Attributes:
        values: whether an item is out of distribution; false and without meaning where ``known`` is false.
        known: whether that is known.

    >>> flags = OodFlags.of([True, False, None])
    >>> flags.out_of_distribution.tolist(), flags.in_distribution.tolist(), flags.known.tolist()
    ([True, False, False], [False, True, False], [True, True, False])
    >>> list(flags)
    [True, False, None]
    """

    values: Bool[np.ndarray, "n"]
    known: Bool[np.ndarray, "n"]

    item = "is_ood"

    @classmethod
    def unknown(cls, count: int) -> OodFlags:
        """Return ``count`` flags of which none is known."""
        return cls(np.zeros(count, bool), np.zeros(count, bool))

    @classmethod
    def all_in(cls, count: int) -> OodFlags:
        """Return the flags of ``count`` items that are known to be in distribution."""
        return cls(np.zeros(count, bool), np.ones(count, bool))

    @classmethod
    def of(cls, flags: Sequence[bool | np.bool_ | None] | np.ndarray) -> OodFlags:
        """Return flags from truth values, None standing for an unknown one.

        Raises:
            DataError: a value that is none of these.
        """
        if isinstance(flags, np.ndarray) and flags.dtype == bool:
            return cls(flags.copy(), np.ones(len(flags), bool))
        for row, flag in enumerate(flags):
            if flag is not None and not (isinstance(flag, int | float | np.generic) and flag in (0, 1)):
                raise DataError(
                    item=f"is_ood {row}",
                    wanted="True, False, or None where unknown",
                    got=repr(flag),
                    fix="state of each bag whether it is out of distribution",
                )
        known = np.array([flag is not None for flag in flags], bool)
        return cls(np.array([bool(flag) for flag in flags], bool), known)

    @property
    def in_distribution(self) -> Bool[np.ndarray, "n"]:
        """The items that are known to be in distribution."""
        return self.known & ~self.values

    @property
    def out_of_distribution(self) -> Bool[np.ndarray, "n"]:
        """The items that are known to be out of distribution."""
        return self.known & self.values

    def repeat(self, counts: Int64[np.ndarray, "n"] | int) -> OodFlags:
        """Return each flag as often as ``counts`` says: those of instances from those of their bags."""
        return OodFlags(np.repeat(self.values, counts), np.repeat(self.known, counts))


@dataclass(frozen=True, eq=False)
class Outcomes(PartlyKnown):
    """Numbers or times that are the labels of items.

    Attributes:
        values: finite; zero and without meaning where ``known`` is false.
        known: whether the label is known.
        observed: false where it is a lower bound, as a time is that ends without an event.
    """

    values: Float64[np.ndarray, "n"]
    known: Bool[np.ndarray, "n"]
    observed: Bool[np.ndarray, "n"]

    item = "outcome"

    @classmethod
    def of(cls, values: Collection[Any], observed: Collection[Any] | None = None) -> Outcomes:
        """Return labels from numbers, None or NaN standing for an unknown one.

        Raises:
            DataError: an infinite number, or not as many events as numbers.
        """
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        known = ~np.isnan(numbers)
        seen = np.ones(len(numbers), bool) if observed is None else np.array([*observed], bool)
        if np.isinf(numbers).any() or len(seen) != len(numbers):
            raise DataError(
                item="the outcomes",
                wanted=f"{len(numbers):,} finite numbers, with an event each",
                got="infinity" if np.isinf(numbers).any() else f"{len(seen):,} events",
                fix="pass None where a label is unknown",
            )
        return cls(np.where(known, numbers, 0.0), known, seen)

    @classmethod
    def unknown(cls, count: int) -> Outcomes:
        """Return ``count`` outcomes of which none is known."""
        return cls(np.zeros(count), np.zeros(count, bool), np.ones(count, bool))

    @classmethod
    def concatenate(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """Return the outcomes of all parts, one after the other."""
        columns = ([getattr(part, name) for part in parts] for name in ("values", "known", "observed"))
        return cls(*map(np.concatenate, columns))

    def __getitem__(self, index: Any) -> Outcomes:
        return Outcomes(self.values[index], self.known[index], self.observed[index])


@dataclass(frozen=True, eq=False)
class Coords(PartlyKnown):
    """Positions of n instances.

    Attributes:
        values: x and y in level-0 pixels; zero and without meaning where ``known`` is false.
        known: whether the position is known.
    """

    values: Int64[np.ndarray, "n 2"]
    known: Bool[np.ndarray, "n"]

    item = "position"

    @classmethod
    def of(cls, values: Int64[np.ndarray, "n 2"]) -> Coords:
        """Return positions all of which are known."""
        return cls(values, np.ones(len(values), bool))

    @classmethod
    def unknown(cls, count: int) -> Coords:
        """Return ``count`` positions of which none is known."""
        return cls(np.zeros((count, 2), np.int64), np.zeros(count, bool))

    def completed_by(self, others: Coords) -> Coords:
        """Return these positions, and those of ``others`` where these are unknown."""
        values = np.where(self.known[:, None], self.values, others.values)
        return Coords(values, self.known | others.known)


@dataclass(frozen=True, eq=False)
class Slides:
    """The slide that each of n instances is of, where bags hold several.

    Attributes:
        names: of slides.
        numbers: position of each instance's slide among them; −1 where it is unknown.

    >>> Slides.of(["s1", "s1", "", "s2"]).of_bags([3, 1])
    [{'s1': 2, '': 1}, {'s2': 1}]
    """

    names: tuple[str, ...]
    numbers: Int64[np.ndarray, "n"]

    @classmethod
    def unknown(cls, count: int) -> Slides:
        """Return the unknown slides of ``count`` instances."""
        return cls((), np.full(count, -1, np.int64))

    @classmethod
    def of(cls, texts: Sequence[str] | np.ndarray) -> Slides:
        """Return the slides that are so called, "" for an unknown one."""
        names = tuple(dict.fromkeys(text for text in texts if text))
        number = {name: place for place, name in enumerate(names)}
        return cls(names, np.array([number.get(text, -1) for text in texts], np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Slides]) -> Slides:
        """Return the slides of all parts, one after the other."""
        names = parts[0].names
        if all(part.names is names for part in parts):
            return cls(names, np.concatenate([part.numbers for part in parts]))
        number = {name: place for place, name in enumerate(dict.fromkeys(n for part in parts for n in part.names))}
        of_part = (np.array([*map(number.__getitem__, part.names), -1], np.int64) for part in parts)
        return cls(
            tuple(number),
            np.concatenate([of[part.numbers] for of, part in zip(of_part, parts, strict=True)]),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Slides:
        return Slides(self.names, self.numbers[index])

    @property
    def texts(self) -> np.ndarray:
        """The name of each instance's slide, "" where it is unknown."""
        return np.array([*self.names, ""], object)[self.numbers]

    def used(self) -> Slides:
        """Return the same with the names of these instances' slides alone."""
        numbers = np.unique(self.numbers[self.numbers >= 0])
        place = np.full(len(self.names) + 1, -1, np.int64)
        place[numbers] = np.arange(len(numbers))
        return Slides(tuple(self.names[number] for number in numbers.tolist()), place[self.numbers])

    def of_bags(self, sizes: Sequence[int] | np.ndarray) -> list[dict[str, int]]:
        """Return of each bag how many instances are of each slide, in their order.

        Args:
            sizes: instances of each bag, which follow each other.
        """
        names, found, end = (*self.names, ""), [], 0
        for size in np.asarray(sizes).tolist():
            start, end = end, end + size
            numbers, first, counts = np.unique(self.numbers[start:end], return_index=True, return_counts=True)
            order = first.argsort()
            pairs = zip(numbers[order].tolist(), counts[order].tolist(), strict=True)
            found.append({names[number]: count for number, count in pairs})
        return found
