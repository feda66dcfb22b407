"""Rows that belong to bags, and bags that belong to groups such as patients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped

from miue.bags.dataset import BagDataset
from miue.common.errors import DataError


@dataclass(frozen=True)
class GroupedRows:
    """Which rows of a table of instances form which bag; bags in order of first appearance.

    Attributes:
        names: id of each of B bags, as text.
        bag: the bag of each of M rows.
    """

    names: tuple[str, ...]
    bag: Int64[np.ndarray, "M"]

    @classmethod
    def of(cls, bag_ids: Any) -> GroupedRows:
        """Return the bags that ``bag_ids``, one for each row, make of the rows.

        Raises:
            DataError: not one id per row, or an id that is missing.

        >>> rows = GroupedRows.of(["b", "a", "b"])
        >>> rows.names, rows.bag.tolist()
        (('b', 'a'), [0, 1, 0])
        """
        ids = np.asarray(bag_ids)
        if ids.ndim != 1:
            raise _row_count("bag_ids", "an array with one id for each row", f"shape {ids.shape}")
        missing = np.array([one is None or one != one for one in ids.tolist()], bool)
        if missing.any():
            row = int(missing.argmax())
            raise _row_count(f"row {row} of bag_ids", "the id of a bag", repr(ids.tolist()[row]))
        names, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        order = first.argsort()
        return cls(tuple(str(names[i]) for i in order), order.argsort()[inverse].astype(np.int64))

    def split(self, rows: Shaped[np.ndarray, "M *shape"]) -> list[np.ndarray]:
        """Return the rows of each bag, in their order.

        Raises:
            DataError: another number of rows.
        """
        self._check(len(rows), "X")
        order = self.bag.argsort(kind="stable")
        return np.split(rows[order], np.bincount(self.bag).cumsum()[:-1])

    def one_of_each(self, values: Shaped[np.ndarray, "rows"], what: str) -> Shaped[np.ndarray, "B"]:
        """Return the value of each bag, which all of its rows share.

        Raises:
            DataError: another number of values, or a bag whose rows differ.
        """
        self._check(len(values), what)
        _, first = np.unique(self.bag, return_index=True)
        differ = np.flatnonzero(values != values[first][self.bag])
        if len(differ):
            row = int(differ[0])
            name, expected = self.names[self.bag[row]], values[first[self.bag[row]]]
            raise DataError(
                item=f"{what}, bag {name!r}, row {row}",
                wanted=f"{expected} as in the bag's first row",
                got=str(values[row]),
                fix="give all rows of a bag the same value",
            )
        of_bags: np.ndarray = values[first]
        return of_bags

    def _check(self, count: int, what: str) -> None:
        if count != len(self.bag):
            raise _row_count(what, f"{len(self.bag)} rows, as many as bag_ids", str(count))


def held_out_groups(
    bags: BagDataset, groups: Shaped[np.ndarray, "B"], fraction: float, seed: int
) -> tuple[BagDataset, BagDataset]:
    """Return bags to learn from and about ``fraction`` of them to validate on, no group on both sides.

    Raises:
        DataError: not one group for each bag, or too few groups to hold out bags of every class.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if groups.shape != (len(bags),):
        raise _row_count("groups", f"one for each of {len(bags)} bags", f"shape {groups.shape}")
    labels = bags.labels.values
    classes, counts = np.unique(labels, return_counts=True)
    folds = max(2, min(round(1 / fraction), len(np.unique(groups)), int(counts.min())))
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    if len(np.unique(groups)) >= folds and counts.min() >= folds:
        for kept, held in splitter.split(np.zeros(len(bags)), labels, groups):
            if len(np.unique(labels[kept])) == len(np.unique(labels[held])) == len(classes):
                return bags.subset(kept), bags.subset(held)
    raise DataError(
        item="groups",
        wanted="groups that can be divided with bags of every class on both sides",
        got=f"{len(np.unique(groups))} groups that cannot",
        fix="add groups, or leave groups out",
    )


def _row_count(item: str, wanted: str, got: str) -> DataError:
    return DataError(item=item, wanted=wanted, got=got, fix="give one for each row, in the order of the rows")
