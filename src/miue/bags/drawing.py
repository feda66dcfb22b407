"""Draws of bags: folds, bags that are held out, one bag of each patient; patients whole, classes alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from warnings import catch_warnings, simplefilter

import numpy as np
from jaxtyping import Int64, Shaped

from miue.common.errors import DataError


def group_by_patient(patients: Sequence[str] | np.ndarray) -> Shaped[np.ndarray, "B"]:
    """Return the group of each bag: its patient, or one of its own where the patient is "", not known."""
    return np.array([str(patient or f"\0{row}") for row, patient in enumerate(patients)], object)


def count_units(
    labels: Shaped[np.ndarray, "B"], groups: Shaped[np.ndarray, "B"] | None = None
) -> tuple[Shaped[np.ndarray, "C"], Int64[np.ndarray, "C"]]:
    """Return the classes, and of each the number of its groups, such as patients, or of its bags without groups.

    >>> count_units(np.array([0, 1, 1]), np.array(["a", "b", "b"]))
    (array([0, 1]), array([1, 1]))
    """
    units, classes = np.arange(len(labels)) if groups is None else groups, np.unique(labels)
    return classes, np.array([len(np.unique(units[labels == label])) for label in classes], np.int64)


def draw_folds(
    labels: Shaped[np.ndarray, "B"], count: int, seed: int, *, groups: Shaped[np.ndarray, "B"] | None = None
) -> Iterator[tuple[Int64[np.ndarray, "kept"], Int64[np.ndarray, "tested"]]]:
    """Yield the rows kept and the rows tested of each fold, classes alike in all.

    Args:
        labels: class of each bag.
        count: folds, at least two.
        seed: of the draw.
        groups: of the bags, such as patients; all bags of one are tested in the same fold.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
    yield from splitter(count, shuffle=True, random_state=seed % 2**32).split(labels, labels, groups)


def hold_out(
    labels: Shaped[np.ndarray, "B"], size: float | int, seed: int, *, groups: Shaped[np.ndarray, "B"] | None = None
) -> tuple[Int64[np.ndarray, "kept"], Int64[np.ndarray, "held"]]:
    """Return the rows kept and the rows held out, in the order of the draw, classes alike in both.

    Args:
        labels: class of each bag.
        size: share of the bags to hold out, about so many where there are groups, or their number as an int.
        seed: of the draw.
        groups: of the bags, such as patients; none is divided.

    Raises:
        DataError: a class without a bag, or a group, for each side, or fewer bags than classes to hold out.
    """
    rows, (classes, of_class) = np.arange(len(labels)), count_units(labels, groups)
    fewest = int(of_class.min())
    if isinstance(size, int) and size < len(classes):
        raise DataError(
            item="bags to hold out",
            wanted=f"at least {len(classes)}, one of each class",
            got=str(size),
            fix="hold out more",
        )
    if fewest > 1 and groups is None:
        from sklearn.model_selection import train_test_split

        held = size if isinstance(size, int) else max(len(classes), round(size * len(labels)))
        held = min(held, len(labels) - len(classes))
        kept, out = train_test_split(rows, test_size=held, stratify=labels, random_state=seed % 2**32)
        _exchange_for_missing_classes(labels, kept, out)
        _exchange_for_missing_classes(labels, out, kept)
        return kept, out
    if fewest > 1 and groups is not None:
        share = size / len(labels) if isinstance(size, int) else size
        count, held = folds_for(share, int(of_class.max()))
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # of a class with fewer groups than folds
            folds = [out for _, out in draw_folds(labels, count, seed, groups=groups)]
        for first in range(count):
            out = np.sort(np.concatenate([folds[(first + i) % count] for i in range(held)]))
            kept = np.setdiff1d(rows, out)
            if len(np.unique(labels[kept])) == len(np.unique(labels[out])) == len(classes):
                return kept, out
    raise DataError(
        item="bags to hold out" if groups is None else "groups, such as patients, to hold out",
        wanted="two or more of each class, so that both sides have bags of every class",
        got=f"{fewest} of the rarest class" + (", which no draw divided so" if fewest > 1 else ""),
        fix="add bags of this class, or hold none out (0 as the share)",
    )


def _exchange_for_missing_classes(
    labels: Shaped[np.ndarray, "B"], side: Int64[np.ndarray, "side"], other: Int64[np.ndarray, "other"]
) -> None:
    """Exchange rows of two sides, in place, until one of them has every class, which a rare one may lack.

    Sizes stay the same: the first row of the most frequent class leaves for each class that comes.
    """
    for missing in np.setdiff1d(labels, labels[side]):
        classes, counts = np.unique(labels[side], return_counts=True)
        leaves = np.argmax(labels[side] == classes[counts.argmax()])
        comes = np.argmax(labels[other] == missing)
        side[leaves], other[comes] = other[comes], side[leaves]


def folds_for(share: float, groups: int) -> tuple[int, int]:
    """Return a number of folds, at most as many as groups, and how many of them come nearest to a share of all.

    >>> folds_for(0.2, 100), folds_for(0.4, 100), folds_for(0.15, 100), folds_for(0.04, 100), folds_for(0.4, 2)
    ((5, 1), (5, 2), (7, 1), (25, 1), (2, 1))
    """
    most = max(2, groups)
    pairs = [(count, held) for count in range(2, min(10, most) + 1) for held in range(1, count)]
    pairs.append((min(most, max(2, round(1 / share))), 1))
    return min(pairs, key=lambda pair: round(abs(pair[1] / pair[0] - share), 9))  # the first, of fewest folds


def draw_one_of_each(groups: Shaped[np.ndarray, "B"], seed: int) -> Int64[np.ndarray, "groups"]:
    """Return the row of one bag of each group, in ascending order."""
    drawn = np.random.default_rng(seed).permutation(len(groups))
    _, first = np.unique(groups[drawn].astype(str), return_index=True)
    return np.sort(drawn[first])
