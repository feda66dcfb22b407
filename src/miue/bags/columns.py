"""What is known of items, bags or instances or patients: one record of columns, chosen from and put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int64

from miue.bags.coords import Coords
from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ItemColumns:
    """What is known of n items beside their features or their predictions.

    Attributes:
        labels: class of each item, where known.
        is_ood: whether each item is out of distribution, as far as that is known.
        ood_sets: where an out-of-distribution item comes from, "" for none.
        patients: of each item, "" where unknown; None where no patient is known.
        coords: position of each item, None where none has any.
        patch_sizes: side of each item's patches in level-0 pixels, 0 where unknown; None where all are.
    """

    labels: Labels
    is_ood: OodFlags
    ood_sets: np.ndarray
    patients: np.ndarray | None = None
    coords: Coords | None = None
    patch_sizes: Int64[np.ndarray, "n"] | None = None

    @classmethod
    def unknown(cls, count: int) -> ItemColumns:
        """Return the columns of ``count`` items of which nothing is known."""
        return cls(Labels.unknown(count), OodFlags.unknown(count), np.full(count, "", object))

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, rows: Any) -> ItemColumns:
        """Return the columns of the items in the given rows."""
        known = {name: column[rows] for name, column in self.columns().items() if column is not None}
        return replace(self, **known)

    def columns(self) -> dict[str, Any]:
        """Return every column by its name."""
        return {one.name: getattr(self, one.name) for one in fields(ItemColumns)}

    @classmethod
    def concatenate(cls, parts: Sequence[ItemColumns]) -> ItemColumns:
        """Return the columns of all parts, one after the other; what one part lacks is unknown for its items."""
        sizes = [len(part) for part in parts]
        return cls(
            labels=Labels.concatenate([part.labels for part in parts]),
            is_ood=OodFlags.concatenate([part.is_ood for part in parts]),
            ood_sets=np.concatenate([part.ood_sets for part in parts]),
            patients=_filled([p.patients for p in parts], sizes, lambda n: np.full(n, "", object), np.concatenate),
            coords=_filled([p.coords for p in parts], sizes, Coords.unknown, Coords.concatenate),
            patch_sizes=_filled(
                [p.patch_sizes for p in parts], sizes, lambda n: np.zeros(n, np.int64), np.concatenate
            ),
        )


def _filled(
    columns: Sequence[T | None],
    sizes: Sequence[int],
    unknown: Callable[[int], T],
    concatenate: Callable[[list[T]], T],
) -> T | None:
    """Return one column of all parts, unknown for the parts without it; None where no part has it."""
    if all(column is None for column in columns):
        return None
    return concatenate(
        [unknown(n) if column is None else column for column, n in zip(columns, sizes, strict=True)]
    )
