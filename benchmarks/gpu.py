"""An accelerator: training and prediction as shares of its matrix product, slides per second, memory, bfloat16.

Usage: python benchmarks/gpu.py [--device cuda] [--slides 64] [--instances 12000] [--source FOLDER] [--json FILE]

Slides are bags of 512 float16 features of noise, in main memory, from where each batch is brought to the device.
"Network alone" is the same with the batch on the device already. Operations are those of products and convolutions
that PyTorch counts, forward and backward. What a batch takes is timed until the device is done. PyTorch computes
convolutions of float32 in TF32 on NVIDIA's devices that have it, and matrix products in float32.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cohort import predict_cohort
from measure import medians
from torch.utils.flop_counter import FlopCounterMode

from miue.bags import BagBatch, BagDataset, shuffled_batches
from miue.common.devices import torch_device
from miue.common.tensors import has_double
from miue.datasets.mnist import mnist_bags
from miue.methods import Method
from miue.model import DataContract, Recipe, build_method, fit_distances
from miue.model.feature_scores import DistanceScores
from miue.model.predict import predict
from miue.networks import PRECISIONS, encoder_precision
from miue.training.learner import optimizer_and_schedule

REPETITIONS = 5
WIDTH = 512


def noise(count: int, size: int, shape: tuple[int, ...], dtype: type) -> BagDataset:
    """Return bags of random features or images, as one array in main memory."""
    random = np.random.default_rng(0)
    if dtype is np.uint8:
        rows = random.integers(0, 256, (count * size, *shape), dtype=np.uint8)
    else:
        rows = random.standard_normal((count * size, *shape), dtype=np.float32).astype(dtype)
    return BagDataset.from_arrays(np.split(rows, count), [bag % 2 for bag in range(count)])


def build(encoder: str, shape: tuple[int, ...], network: str = "attention", method: str = "mirel") -> Method:
    """Return a method as ``miue train`` builds it."""
    config = Recipe(network, method, encoder).model_config(shape)
    return build_method(config, DataContract(instance_shape=shape, class_names=("0", "1")), seed=1)


class Clock:
    """Times calls on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def now(self) -> float:
        """Return the time when the device is done."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        return time.perf_counter()

    def seconds(self, call: Callable[[], object], repetitions: int = REPETITIONS) -> float:
        """Return the median seconds of a call, after one to warm up."""
        return medians(call, repetitions=repetitions, clock=self.now)[0]

    def product(self, dtype: torch.dtype, side: int) -> float:
        """Return the FLOP/s of a product of square matrices."""
        left, right = (torch.randn(side, side, device=self.device).to(dtype) for _ in range(2))
        return 10 * 2 * side**3 / self.seconds(lambda: [left @ right for _ in range(10)])

    def peak(self, call: Callable[[], object]) -> float:
        """Return the MiB of the device that a call holds at most; nan on the CPU."""
        if self.device.type != "cuda":
            return float("nan")
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() / 2**20


def counted(call: Callable[[], object]) -> int:
    """Return the operations of products and convolutions in a call."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def update_of(method: Method, bags: BagDataset) -> Callable[[BagBatch], None]:
    """Return an update of the weights by a batch, as training makes it."""
    optimizer, _ = optimizer_and_schedule(method.train(), Recipe().training_config(bags))

    def run(batch: BagBatch) -> None:
        optimizer.zero_grad()
        loss = method.loss(batch, 1)
        loss.backward()
        optimizer.step()
        float(loss.detach())

    return run


def training(clock: Clock, method: Method, bags: BagDataset, at_once: int, product: float) -> dict[str, float]:
    """Return what an epoch takes from main memory, and updates by a batch that is on the device."""
    update, device = update_of(method.to(clock.device), bags), clock.device
    held = next(iter(shuffled_batches(bags, at_once, seed=1, epoch=0))).to(device)

    def epoch() -> None:
        for batch in shuffled_batches(bags, at_once, seed=1, epoch=0):
            update(batch.to(device))

    alone = clock.seconds(lambda: update(held))
    seconds = clock.seconds(epoch, 3)
    return {
        "epoch s": seconds,
        "bags / s": len(bags) / seconds,
        "bags / s, network alone": held.segments.num_bags / alone,
        "share of the product": counted(lambda: update(held)) / alone / product,
        "peak MiB": clock.peak(lambda: update(held)),
    }


def prediction(clock: Clock, method: Method, bags: BagDataset, precision: str, product: float) -> dict[str, float]:
    """Return what prediction with all measures takes from main memory, and the network alone on the device."""
    device = clock.device
    held = bags.batch(np.arange(min(8, len(bags)))).to(device)

    def whole(scores: DistanceScores | None = None) -> None:
        for of_bags, of_instances in predict(method, bags, device=str(device), precision=precision, scores=scores):
            of_bags.uncertainties()
            of_instances.uncertainties()

    def alone() -> None:
        with torch.inference_mode(), encoder_precision(method, precision):
            method.predict([method.encode(held.instances)], held.segments, method.estimators[0])

    method.eval().to(device)
    of_network, operations = clock.seconds(alone), counted(alone)
    memory = clock.peak(lambda: list(predict(method, bags.subset(range(1)), device=str(device))))
    seconds = clock.seconds(whole, 3)
    found = {
        "bags / s": len(bags) / seconds,
        "bags / s, network alone": held.segments.num_bags / of_network,
        "share of the product": operations / of_network / product,
        "peak MiB": memory,
    }
    if has_double(device):
        scores = DistanceScores(fit_distances(method, bags, ["knn"], seed=0, device=str(device)))
        found["bags / s, with knn"] = len(bags) / clock.seconds(lambda: whole(scores), 3)
    return found


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--slides", type=int, default=64)
    parser.add_argument("--instances", type=int, default=12_000)
    parser.add_argument("--side", type=int, default=8192, help="of the matrix product")
    parser.add_argument("--source", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch_device(arguments.device)
    clock = Clock(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    results: dict[str, Any] = {"device": name, "torch": torch.__version__}
    products = {
        "float32": clock.product(torch.float32, arguments.side),
        "bf16-mixed": clock.product(torch.bfloat16, arguments.side),
    }
    results["product TFLOP/s"] = {precision: rate / 1e12 for precision, rate in products.items()}
    print(f"{name}, torch {torch.__version__}; TFLOP/s of a product: {results['product TFLOP/s']}", flush=True)
    has_mnist = (arguments.source / "mnist.npz").exists()
    kinds: dict[str, tuple[str, BagDataset, int]] = {
        f"slides of {arguments.instances} × {WIDTH}": (
            "mlp",
            noise(arguments.slides, arguments.instances, (WIDTH,), np.float16),
            8,
        ),
        "MNIST-bags": (
            "lenet",
            mnist_bags(arguments.source, splits=["train"], ood=())
            if has_mnist
            else noise(500, 10, (28, 28, 1), np.uint8),
            8,
        ),
        "CIFAR10-bags of noise": ("alexnet", noise(320, 10, (32, 32, 3), np.uint8), 32),
    }
    for kind, (encoder, bags, at_once) in kinds.items():
        for precision in PRECISIONS:
            method = build(encoder, bags.instance_shape)
            with encoder_precision(method, precision):
                trained = training(clock, method, bags, at_once, products[precision])
            predicted = prediction(clock, method, bags, precision, products[precision])
            results[f"{kind}, {precision}"] = {"training": trained, "prediction": predicted}
            for doing, figures in (("training", trained), ("prediction", predicted)):
                shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
                print(f"{kind}, {precision}, {doing}: {shown}", flush=True)
    if device.type == torch_device("auto").type:
        for scores in (False, True):
            with tempfile.TemporaryDirectory() as work:
                folder = str(Path(work) / "predictions")
                found = predict_cohort(folder, arguments.slides, arguments.instances, scores)
            rate, doing = arguments.slides / found["seconds"], "with knn" if scores else "without distances"
            results[f"slides / s into a folder, {doing}"] = rate
            print(f"slides predicted into a folder, {doing}: {rate:.3g} / s", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
