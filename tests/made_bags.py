"""Made bags of which the truth is known."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from miue.bags.dataset import BagDataset
from miue.methods import METHODS
from miue.networks import NETWORKS, MILNetwork, OneSidedNetwork, PaddedNetwork
from miue.networks.encoders import Encoder

TORCHMIL_NETWORKS = [name for name in NETWORKS if name.startswith("torchmil-")]
RAGGED_NETWORKS = [name for name, network in NETWORKS.items() if not issubclass(network, PaddedNetwork)]
ONE_SIDED_NETWORKS = [name for name, network in NETWORKS.items() if issubclass(network, OneSidedNetwork)]
COUNTING_NETWORKS = ("one-sided-log-sum-exp", "one-sided-noisy-or")
"""Networks that score a bag of copies of an instance higher than the instance."""


def takes(method: str, network: str) -> bool:
    """Whether a method takes a network."""
    if method == "bayes-mil":
        return network in ("attention", "gated-attention")
    return NETWORKS[network].embeds_bags or method not in ("laplace", "sngp")


FITTING = [(method, network) for method in METHODS for network in RAGGED_NETWORKS if takes(method, network)]
"""Every method with every network that it takes."""


def build_network(name: str, encoder: Encoder, classes: int, **options: Any) -> MILNetwork:
    """The network of this name with those of the options that it has."""
    known = inspect.signature(NETWORKS[name]).parameters
    return NETWORKS[name](encoder, classes, **{key: value for key, value in options.items() if key in known})


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
