"""A short digest that recognizes the same bags again."""

from __future__ import annotations

import hashlib

import numpy as np

from miue.bags.dataset import BagDataset
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
