"""Speed and memory as ratios within one run: packed batches against a loop over bags, with the same network.

Usage: python benchmarks/bench.py [--source FOLDER] [--json FILE]      (make bench)

Every figure is a ratio of medians over repetitions that take turns, so that a slow moment of the machine hits
both sides. Peak memory is measured in a process of its own for each side. Without MNIST in --source, bags of
random bytes of the same shape are used; that changes no cost.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from measure import (
    BAGS_PER_UPDATE,
    PRODUCT_FLOPS,
    in_own_process,
    matrix_product,
    medians,
    optimizer_of,
    packed_epoch_of,
    resident,
)

from miue.bags import BagDataset, as_float, shuffled_batches
from miue.datasets.mnist import mnist_bags
from miue.distributions import PredictiveDistribution
from miue.distributions.measures import compute_measures
from miue.methods import Method
from miue.model import DataContract, Recipe, build_method
from miue.model.predict import predict

REPETITIONS = 5
Side = Callable[[BagDataset], Callable[[], None]]


def mnist_like(source: Path, split: str) -> BagDataset:
    """Return MNIST-bags where the images are at hand, else bags of random bytes of the same shape."""
    if (source / "mnist.npz").exists():
        ood = ("fmnist",) if split == "test" else ()
        return mnist_bags(source, splits=[split], ood=ood)
    random = np.random.default_rng(0)
    count = {"train": 500, "test": 2000}[split]
    sizes = np.maximum(1, random.normal(10, 2, count).astype(int))
    arrays = [random.integers(0, 256, (size, 28, 28, 1), dtype=np.uint8) for size in sizes]
    return BagDataset.from_arrays(arrays, [i % 2 for i in range(count)])


def build() -> Method:
    """Return ABMIL + MIREL as for MNIST-bags."""
    shape = (28, 28, 1)
    config = Recipe(encoder="lenet").model_config(shape)
    return build_method(config, DataContract(instance_shape=shape, class_names=("0", "1")), seed=1)


def plain(method: Method) -> Method:
    """Return the method with its weights in the memory format that PyTorch gives them by default."""
    for parameter in method.parameters():
        parameter.data = parameter.data.contiguous()
    return method


def packed_epoch(bags: BagDataset) -> Callable[[], None]:
    """One update per packed batch of eight bags."""
    return packed_epoch_of(build(), bags)


def looped_epoch(bags: BagDataset) -> Callable[[], None]:
    """The same updates from bags encoded one at a time, gradients added up over eight of them."""
    method = plain(build()).train()
    optimizer = optimizer_of(method)

    def run() -> None:
        for group in shuffled_batches(bags, BAGS_PER_UPDATE, seed=1, epoch=0).groups:
            optimizer.zero_grad()
            for bag in group:
                (method.loss(bags.batch([bag]), 1) / len(group)).backward()
            optimizer.step()

    return run


def packed_prediction(bags: BagDataset) -> Callable[[], None]:
    """Predictions of the library with every measure of bags and instances."""
    method = build()

    def run() -> None:
        for of_bags, of_instances in predict(method, bags):
            of_bags.uncertainties()
            of_instances.uncertainties()

    return run


def looped_prediction(bags: BagDataset) -> Callable[[], None]:
    """The same, each bag finished before the next: encoded, scored, measured."""
    score = looped_scores(bags)

    def run() -> None:
        for predicted in score():
            for distribution in predicted:
                compute_measures(distribution)

    return run


def packed_distributions(bags: BagDataset) -> Callable[[], None]:
    """Distributions of the library alone, without a measure."""
    method = build()

    def run() -> None:
        list(predict(method, bags))

    return run


def looped_distributions(bags: BagDataset) -> Callable[[], None]:
    """The same from one bag at a time, the leanest loop there is."""
    score = looped_scores(bags)

    def run() -> None:
        for _ in score():
            pass

    return run


def looped_scores(
    bags: BagDataset,
) -> Callable[[], Iterator[tuple[PredictiveDistribution, PredictiveDistribution]]]:
    """Return the distribution of each bag and of its instances, one bag at a time."""
    method = plain(build()).eval()

    def run() -> Iterator[tuple[PredictiveDistribution, PredictiveDistribution]]:
        with torch.inference_mode():
            for bag in range(len(bags)):
                batch = bags.batch([bag])
                output = method.predict([method.encode(batch.instances)], batch.segments, "residual")
                yield output.bags, output.instances

    return run


def encoder_share() -> dict[str, float]:
    """Return the FLOP/s of the encoder's training pass on a packed batch, and of a plain matrix product."""
    method = build().train()
    images = as_float(torch.randint(0, 256, (80, 28, 28, 1), dtype=torch.uint8))
    multiply_adds = 24 * 24 * 20 * 25 + 8 * 8 * 50 * 20 * 25 + 800 * 800
    # forward and gradients of weights; gradients of inputs for all but the first layer
    flops = 2 * len(images) * (3 * multiply_adds - 24 * 24 * 20 * 25)

    def train() -> None:
        for _ in range(20):
            method.zero_grad()
            method.encode(images).sum().backward()

    encoder, product = medians(train, matrix_product(), repetitions=9)
    return {"encoder": 20 * flops / encoder, "matrix product": PRODUCT_FLOPS / product}


def peak_memory(target: Side, source: Path, split: str) -> dict[str, float]:
    """Return resident MiB with data and model loaded, and the peak while running."""
    bags = mnist_like(source, split)
    bags = BagDataset.from_arrays(
        [np.array(bags.batch([i]).instances) for i in range(len(bags))], bags.labels.values
    )
    run = target(bags)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the bags
    loaded = resident("VmRSS")
    run()
    return {"loaded": loaded, "peak": resident("VmHWM")}


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    results: dict[str, object] = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    pairs: list[tuple[str, str, Side, Side, str]] = [
        ("training epoch, 500 bags", "train", packed_epoch, looped_epoch, "wanted 2"),
        ("prediction with measures, 2,000 bags", "test", packed_prediction, looped_prediction, "wanted 3"),
        ("its networks alone", "test", packed_distributions, looped_distributions, "for comparison"),
    ]
    print(f"{results['threads']} threads, torch {results['torch']}, medians of {REPETITIONS}")
    for name, split, packed, looped, wanted in pairs:
        bags = mnist_like(arguments.source, split)
        ours, theirs = medians(packed(bags), looped(bags), repetitions=REPETITIONS)
        memory = {
            side.__name__: in_own_process(peak_memory, side, arguments.source, split) for side in (packed, looped)
        }
        print(f"{name}: packed {ours:.2f} s, one bag at a time {theirs:.2f} s, ", end="")
        print(f"ratio {theirs / ours:.2f} ({wanted})")
        for side, found in memory.items():
            print(f"  {side}: {found['peak']:.0f} MiB at its peak, {found['loaded']:.0f} before it ran")
        results[name] = {"packed": ours, "looped": theirs, "ratio": theirs / ours, "MiB": memory}
    rates = encoder_share()
    share = rates["encoder"] / rates["matrix product"]
    print(
        f"encoder, training pass: {rates['encoder'] / 1e9:.0f} GFLOP/s of {rates['matrix product'] / 1e9:.0f} "
        f"of a matrix product of side 1024, share {share:.2f} (wanted 0.5)"
    )
    results["encoder share"] = share
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "miue", "--help"], check=True, stdout=subprocess.DEVNULL)
    results["help seconds"] = time.perf_counter() - started
    print(f"miue --help: {results['help seconds']:.2f} s (wanted below 1)")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
