"""Made bags of which the truth is known."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

import miue
from miue.bags import BagBatch, BagDataset, Segments
from miue.common.tasks import Executor
from miue.methods import METHODS, Method
from miue.networks import NETWORKS, MILNetwork, OneSidedNetwork, PaddedNetwork, initialize
from miue.networks.encoders import MLP, Encoder

TORCHMIL_NETWORKS = [name for name in NETWORKS if name.startswith("torchmil-")]
RAGGED_NETWORKS = [name for name, network in NETWORKS.items() if not issubclass(network, PaddedNetwork)]
ONE_SIDED_NETWORKS = [name for name, network in NETWORKS.items() if issubclass(network, OneSidedNetwork)]
COUNTING_NETWORKS = ("one-sided-log-sum-exp", "one-sided-noisy-or")
"""Networks that score a bag of copies of an instance higher than the instance."""


def labeled(labels: torch.Tensor) -> BagBatch:
    """Return a batch of bags of one instance with these labels."""
    count = len(labels)
    return BagBatch(torch.zeros(count, 1), Segments.of(*[1] * count), labels, torch.ones(count, dtype=torch.bool))


def takes(method: str, network: str) -> bool:
    """Whether a method takes a network."""
    if method == "bayes-mil":
        return network in ("attention", "gated-attention")
    only = METHODS[method].takes.get("network")
    if only is not None:
        return network == only
    return NETWORKS[network].embeds_bags or method not in ("laplace", "sngp")


FITTING = [
    (method, network)
    for method, made in METHODS.items()
    for network in RAGGED_NETWORKS
    if takes(method, network) and not made.is_fitted_at_once
]
"""Every method that is trained by gradients, with every network that it takes."""


def train_with(bags: Any, *labels: Any, **given: Any) -> miue.Model:
    """``miue.train`` with fields of its settings among the arguments."""
    direct = inspect.signature(miue.train).parameters
    fields = {name: given.pop(name) for name in list(given) if name not in direct}
    if isinstance(executor := fields.get("executor"), Executor):
        fields |= {"executor": executor.kind, "jobs": executor.jobs}
    settings = {**given.pop("settings", {}), **fields}
    return miue.train(bags, *labels, **given, settings=settings)


def train_one_epoch(bags: BagDataset, **more: Any) -> miue.Model:
    """A model trained for one epoch, with softmax unless named otherwise."""
    given = {"settings": {"max_epochs": 1}, "method": "softmax", "progress": False, "device": "cpu", **more}
    return train_with(bags, **given)


def build_network(name: str, encoder: Encoder, classes: int, **options: Any) -> MILNetwork:
    """The network of this name with those of the options that it has."""
    known = inspect.signature(NETWORKS[name]).parameters
    return NETWORKS[name](encoder, classes, **{key: value for key, value in options.items() if key in known})


def build_method(method: str, network: str = "attention", classes: int = 3, **options: Any) -> Any:
    """A small method over features of width 5, in float64, with weights of one seed."""
    built: Method = METHODS[method](build_network(network, MLP((5,), width=7), classes, hidden=3), **options)
    initialize(built, torch.Generator().manual_seed(3))
    return built.double().eval()


def labeled_batch(sizes: list[int], classes: int = 3) -> BagBatch:
    """Random bags of these sizes for such a method, each with a label."""
    labels = torch.arange(len(sizes)) % classes
    known = torch.ones(len(sizes), dtype=torch.bool)
    return BagBatch(3 * torch.randn(sum(sizes), 5, dtype=torch.float64), Segments.of(*sizes), labels, known)


RAGGED_SIZES = [3, 1, 4, 1, 6, 2, 11]


def separable_bags(count: int = 40, width: int = 5, seed: int = 0) -> BagDataset:
    """Labeled bags of features: a positive bag holds an instance shifted by 4."""
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
