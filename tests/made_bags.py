"""Made bags of which the truth is known."""

from __future__ import annotations

import numpy as np

from miue.bags.dataset import BagDataset
from miue.methods import METHODS
from miue.networks import NETWORKS

FITTING = [
    (method, network)
    for method in METHODS
    for network in NETWORKS
    if method != "bayes-mil" or network in ("attention", "gated-attention")
]
"""Every method with every network that it takes."""


def separable_bags(count: int = 40, width: int = 5, seed: int = 0) -> BagDataset:
    """Labelled bags of features: a positive bag holds an instance shifted by 4."""
    random = np.random.default_rng(seed)
    arrays, labels, instance_labels = [], [], []
    for number in range(count):
        array = random.normal(size=(int(random.integers(1, 8)), width)).astype(np.float32)
        positive = np.zeros(len(array), int)
        if number % 2 == 0:
            positive[0] = 1
            array[0] += 4
        arrays.append(array)
        labels.append(int(positive.any()))
        instance_labels.append(positive)
    return BagDataset.from_arrays(arrays, labels, instance_labels=instance_labels)
