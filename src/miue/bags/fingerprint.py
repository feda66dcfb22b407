"""A short digest that recognizes the same bags again."""

from __future__ import annotations

import hashlib

import numpy as np

from miue.bags.dataset import BagDataset
from miue.common.errors import MiueError

SAMPLED_BAGS = 100


def fingerprint(bags: BagDataset) -> str:
    """Return what identifies a set of bags: a digest of ids, sizes, labels and a sample of instances.

    The sample is the first instance of up to `SAMPLED_BAGS` bags, so that features of another encoder are
    detected and little is read. A bag that cannot be read counts as such.
    """
    digest = hashlib.sha256("\0".join(bags.ids).encode())
    digest.update(bags.sizes.tobytes())
    digest.update(bags.labels.values.tobytes())
    digest.update(str(bags.instance_shape).encode())
    for bag in np.linspace(0, len(bags) - 1, min(len(bags), SAMPLED_BAGS)).astype(int):
        try:
            first = bags.instances[bags.starts[bag] : bags.starts[bag] + 1]
            digest.update(np.asarray(first, np.float32).tobytes())
        except MiueError:
            digest.update(b"unreadable")
    return digest.hexdigest()[:16]
