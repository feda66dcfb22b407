"""Which bags are the same as others: by a short digest, or by what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from miue.bags.dataset import BagDataset
from miue.bags.known import Coords, Labels, OodFlags
from miue.common.errors import MiueError, first_few
from miue.common.text import warn_user

SAMPLED_BAGS = 1000
MOST_COPIES = 4
"""Of one bag, that are named."""


def fingerprint(bags: BagDataset) -> str:
    """Return what identifies a set of bags: a digest of ids, sizes, labels and instances.

    Arrays in memory count as a whole. Of instances in files, the first of up to `SAMPLED_BAGS` bags counts, so
    that features of another encoder are detected and little is read. A bag that cannot be read counts as such.
    """
    digest = hashlib.sha256("\0".join(bags.ids).encode())
    digest.update(bags.sizes.tobytes())
    digest.update(bags.labels.values.tobytes())
    if not bags.labels.known.all():
        digest.update(bags.labels.known.tobytes())
    digest.update(str(bags.instance_shape).encode())
    if bags.covariates:
        digest.update(repr(sorted(bags.covariates.items())).encode())
    starts, sizes = bags.starts, bags.sizes
    if type(bags.instances) is not np.ndarray:
        sampled = np.linspace(0, len(bags) - 1, min(len(bags), SAMPLED_BAGS)).astype(int)
        starts, sizes = starts[sampled], np.ones(len(sampled), np.int64)
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        try:
            digest.update(np.asarray(bags.instances[start : start + size], np.float32).tobytes())
        except MiueError:
            digest.update(b"unreadable")
    return digest.hexdigest()[:16]


def find_same_bags(*datasets: BagDataset) -> list[list[tuple[int, int]]]:
    """Return groups of bags that hold the same instances, in one order: the dataset by number, and the row.

    What agrees in size and first instance is compared as a whole. Of instances in files, the first of up to
    `SAMPLED_BAGS` bags that share their size is read. A bag that cannot be read is like no other, and so is one of
    a single instance, once or repeated: such bags may well be alike by chance.
    """
    by_size: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, bags in enumerate(datasets):
        for row, size in enumerate(bags.sizes.tolist()):
            by_size.setdefault((size, *bags.instance_shape), []).append((number, row))
    alike = [group for group in by_size.values() if len(group) > 1]
    if any(type(bags.instances) is not np.ndarray for bags in datasets):
        rest = SAMPLED_BAGS
        for place, group in enumerate(alike):
            alike[place], rest = group[:rest], max(rest - len(group), 0)
    for length in (1, None):
        alike = [part for group in alike for part in _equal(datasets, group, length)]
    return alike


def _equal(
    datasets: Sequence[BagDataset], group: Sequence[tuple[int, int]], length: int | None
) -> list[list[tuple[int, int]]]:
    """Return those of a group that agree in their first instances, in all for a length of None; two at least."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    for number, row in group:
        bags = datasets[number]
        start, size = int(bags.starts[row]), int(bags.sizes[row])
        try:
            values = np.asarray(bags.instances[start : start + (length or size)], np.float32)
        except MiueError:
            continue
        if length is None and (values == values[0]).all():
            continue
        found.setdefault(hashlib.sha256(values.tobytes()).digest(), []).append((number, row))
    return [part for part in found.values() if len(part) > 1]


def fingerprint_of_facts(bags: BagDataset) -> str:
    """Return what identifies all that is known of bags and their instances beside the instances themselves.

    Where their files lie does not count, nor how many other bags do.
    """
    digest = hashlib.sha256()
    patients, patch_sizes = bags.patients or (), () if bags.patch_sizes is None else bags.patch_sizes.tolist()
    for texts in (bags.ids, bags.splits, bags.ood_sets, patients, patch_sizes, bags.class_names):
        digest.update(f"{list(texts)}\n".encode())
    _add(digest, bags.labels)
    _add(digest, bags.is_ood)
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist(), strict=True):
        own = slice(start, start + size)
        _add(digest, bags.instance_labels[own])
        _add(digest, bags.instance_is_ood[own])
        if bags.coords is not None:
            _add(digest, bags.coords[own])
    return digest.hexdigest()[:16]


def _add(digest: hashlib._Hash, facts: Labels | OodFlags | Coords) -> None:
    digest.update(np.ascontiguousarray(facts.values).tobytes())
    digest.update(np.ascontiguousarray(facts.known).tobytes())


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
