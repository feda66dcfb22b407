"""Values of which some may be unknown: what labels, out-of-distribution flags and positions have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool

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
