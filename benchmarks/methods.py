"""What an update, and the fit after training, costs with each method, relative to softmax.

Usage: python benchmarks/methods.py [--rounds 8] [--json FILE]      (make bench)

Attention MIL with LeNet on bags of about ten images of MNIST's size, eight in an update. The methods take turns; a
figure is the shortest of the rounds, in processor seconds of one thread, over that of softmax. The fit after
training is in epochs of softmax, over 500 bags; an ensemble costs as many as it has members and is not timed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from measure import BAGS_PER_UPDATE, optimizer_of

from miue.bags import BagBatch, BagDataset, shuffled_batches
from miue.methods import METHODS, Method
from miue.model import DataContract, Recipe, build_method

SHAPE = (28, 28, 1)
BAGS = 500
UPDATES = 4  # of a round
BASE = "softmax"
COMPARED = [BASE, *(name for name in METHODS if name not in (BASE, "deep-ensemble"))]


def images_in_bags() -> BagDataset:
    """Return bags of random images, as many as MNIST-bags are trained on."""
    random = np.random.default_rng(0)
    sizes = np.maximum(1, random.normal(10, 2, BAGS).astype(int))
    images = [random.integers(0, 256, (size, *SHAPE), dtype=np.uint8) for size in sizes]
    return BagDataset.from_arrays(images, [bag % 2 for bag in range(BAGS)])


def build(method: str) -> Method:
    """Return attention MIL with LeNet and a method."""
    config = Recipe(method=method, encoder="lenet", network="attention").model_config(SHAPE)
    contract = DataContract(instance_shape=SHAPE, class_names=("0", "1"))
    return build_method(config, contract, seed=1).train()


class Update:
    """Updates of one method, on the same batches as all others."""

    def __init__(self, method: str, batches: list[BagBatch]) -> None:
        self.method = build(method)
        self.optimizer = optimizer_of(self.method)
        self.batches = batches

    def __call__(self) -> None:
        for batch in self.batches:
            self.optimizer.zero_grad()
            self.method.loss(batch, 1).backward()
            self.optimizer.step()


def seconds_of(run: Update) -> float:
    """Return the processor seconds of a round."""
    started = time.process_time()
    run()
    return time.process_time() - started


def seconds_of_fit(method: Method, batches: list[BagBatch]) -> float:
    """Return the processor seconds of what a method fits when training has ended."""
    method.eval()
    started = time.process_time()
    method.fit_after_training(batches)
    return time.process_time() - started


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    batches = list(shuffled_batches(images_in_bags(), BAGS_PER_UPDATE, seed=1, epoch=0))
    runs = {name: Update(name, batches[:UPDATES]) for name in COMPARED}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-1, arguments.rounds):  # the first warms up
        for name, run in runs.items():
            seconds = seconds_of(run)
            if number >= 0:
                times[name].append(seconds)
    update = {name: min(values) for name, values in times.items()}
    epoch = update[BASE] / UPDATES * len(batches)
    results = {}
    for name, run in runs.items():
        fit = seconds_of_fit(run.method, batches)
        results[name] = {"update": update[name] / update[BASE], "fit_in_epochs": fit / epoch}
        print(f"{name}: update {results[name]['update']:.2f}, fit after training {fit / epoch:.2f} epochs")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
