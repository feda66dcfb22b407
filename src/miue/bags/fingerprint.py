"""A short digest that recognizes the same bags again."""

from __future__ import annotations

import hashlib

import numpy as np

from miue.bags.coords import Coords
from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.common.errors import MiueError

SAMPLED_BAGS = 1000


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
