"""What is known of items being out of distribution: each is in distribution, out of distribution, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from miue.bags.partly_known import PartlyKnown
from miue.common.errors import DataError


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
