"""What is known of items being out of distribution: each is in distribution, out of distribution, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from miue.common.errors import DataError

UNKNOWN_WORDS = ("", "na", "n/a", "nan", "none", "null", "unknown")


@dataclass(frozen=True)
class OodFlags:
    """Whether items are out of distribution, of which it may be unknown.

    Attributes:
        values: whether an item is out of distribution; false and without meaning where ``known`` is false.
        known: whether that is known.

    >>> flags = OodFlags.of([True, False, None])
    >>> flags.out_of_distribution.tolist(), flags.in_distribution.tolist(), flags.known.tolist()
    ([True, False, False], [False, True, False], [True, True, False])
    """

    values: Bool[np.ndarray, "n"]
    known: Bool[np.ndarray, "n"]

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
            if flag is not None and not (isinstance(flag, bool | np.bool_) or flag in (0, 1)):
                raise DataError(
                    item=f"is_ood {row}",
                    wanted="True, False, or None where unknown",
                    got=repr(flag),
                    fix="state of each bag whether it is out of distribution",
                )
        known = np.array([flag is not None for flag in flags], bool)
        return cls(np.array([bool(flag) for flag in flags], bool), known)

    @classmethod
    def concatenate(cls, parts: Sequence[OodFlags]) -> OodFlags:
        """Return the flags of all parts, one after the other."""
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.known for part in parts]))

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

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> OodFlags:
        return OodFlags(self.values[index], self.known[index])


def with_named_sets(flags: OodFlags, names: Sequence[str] | np.ndarray, table: str) -> tuple[OodFlags, np.ndarray]:
    """Return flags and names of out-of-distribution sets that agree with each other.

    A named set says that an item is out of distribution where its flag is unknown; "ood" is the set of an item
    that is out of distribution and names none.

    Args:
        flags: of the rows of a table.
        names: its column ``ood_set``.
        table: for messages.

    Raises:
        DataError: a set is named for a row that is said to be in distribution.
    """
    texts = ["" if str(name).strip().lower() in UNKNOWN_WORDS else str(name).strip() for name in names]
    sets = np.array(texts, object)
    wrong = np.flatnonzero((sets != "") & flags.in_distribution)
    if len(wrong):
        raise DataError(
            item=f"table {table!r}, row {wrong[0] + 1}, column 'ood_set'",
            wanted="nothing where is_ood is false",
            got=repr(str(sets[wrong[0]])),
            fix="empty the cell, or write true into is_ood",
        )
    agreed = OodFlags(flags.values | (sets != ""), flags.known | (sets != ""))
    return agreed, np.where(agreed.out_of_distribution & (sets == ""), "ood", sets).astype(object)
