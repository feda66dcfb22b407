"""Which bags hold the same instances as others, under another name, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from miue.bags.dataset import BagDataset
from miue.bags.fingerprint import find_same_bags
from miue.common.errors import first_few
from miue.common.user_warnings import warn_user

MOST_COPIES = 4
"""Of one bag, that are named."""


def warn_of_copies(datasets: Sequence[BagDataset], folds: Sequence[Mapping[str, str]]) -> None:
    """Warn of what ``describe_copies`` returns."""
    if copies := describe_copies(datasets, folds):
        warn_user(copies)


def describe_copies(datasets: Sequence[BagDataset], folds: Sequence[Mapping[str, str]]) -> str:
    """Return which bags are copies of others, and whether these are in different parts of a fold; "" for none.

    Args:
        datasets: bags of one experiment.
        folds: the part of each bag by its name, "train", "validation" or "test", in each fold; none where bags
            are not in parts yet.
    """
    groups = find_same_bags(*datasets)
    if not groups:
        return ""
    named, across, differ = [], False, False
    for group in groups:
        names = [datasets[number].ids[row] for number, row in group]
        across = across or any(len({fold.get(name, "") for name in names} - {""}) > 1 for fold in folds)
        labels = [datasets[number].labels for number, _ in group]
        known = [int(of.values[row]) for of, (_, row) in zip(labels, group, strict=True) if of.known[row]]
        differ = differ or len(set(known)) > 1
        part_of = folds[0] if len(folds) == 1 else {}
        shown = [repr(name) + (f" ({part_of[name]})" if part_of.get(name) else "") for name in names]
        named.append(" = ".join([*shown[:MOST_COPIES], *(["…"] if shown[MOST_COPIES:] else [])]))
    effect = "what is held out is also learned from" if across else "each counts as often as it is there"
    return (
        f"bags hold the same instances as others: {first_few(named)}"
        f"{', with different labels' if differ else ''}; {effect}: keep one of them"
        + (", or give them one patient" if across or not folds else "")
    )
