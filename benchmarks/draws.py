"""Ten draws of MC dropout that share what comes before dropout, against encoding each anew.

Usage: python benchmarks/draws.py [--json FILE]      (make bench)

Times are processor seconds of predicting bags with `mc-dropout` and attention pooling.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measure import medians

from miue.bags import BagDataset
from miue.methods import MCDropout
from miue.model import encoding as draws
from miue.model.predict import predict
from miue.networks import AttentionNetwork
from miue.networks.encoders import ENCODERS

CASES: dict[str, tuple[str, tuple[int, ...], int, list[int]]] = {
    "slides of 12,000 × 512": ("mlp", (512,), 512, [12_000] * 2),
    "slides of 6,000 × 1,024": ("mlp", (1024,), 512, [6_000] * 2),
    "bags of ten images, LeNet": ("lenet", (28, 28, 1), 800, [10] * 60),
    "bags of ten images, AlexNet": ("alexnet", (32, 32, 3), 1024, [10] * 12),
}
HELD = draws.SHARED_NUMBERS
REPETITIONS = 3


def bags_of(shape: tuple[int, ...], sizes: list[int]) -> BagDataset:
    """Return bags of random images, or of features as they are stored."""
    random = np.random.default_rng(0)
    if len(shape) == 1:
        return BagDataset.from_arrays([random.normal(size=(size, *shape)).astype(np.float16) for size in sizes])
    return BagDataset.from_arrays([random.integers(0, 256, (size, *shape), dtype=np.uint8) for size in sizes])


def prediction(method: MCDropout, bags: BagDataset, held: int) -> Callable[[], None]:
    """Return what predicts all bags, with so many numbers held of what draws share."""

    def run() -> None:
        draws.SHARED_NUMBERS = held
        list(predict(method, bags, device="cpu"))

    return run


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    results: dict[str, dict[str, float]] = {}
    for name, (encoder, shape, width, sizes) in CASES.items():
        method = MCDropout(AttentionNetwork(ENCODERS[encoder](shape, width=width, dropout=0.25), 2))
        bags = bags_of(shape, sizes)
        sides = [prediction(method, bags, held) for held in (HELD, 0)]
        shared, anew = medians(*sides, repetitions=REPETITIONS, clock=time.process_time)
        print(f"{name}: ten draws that share {shared:.2f} s, encoded anew {anew:.2f} s, ratio {anew / shared:.2f}")
        results[name] = {"shared": shared, "anew": anew, "ratio": anew / shared}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
