"""Slide scale: streaming from disk against the same data in memory, peak memory, rate, and a bag of a million.

Usage: python benchmarks/slides.py [--bags 100] [--instances 12000] [--folder WORK] [--json FILE]

Bags of 512 float16 features are made in WORK (1.2 GB by default): a positive bag has a planted run of instances
whose features are shifted, so that the truth of bags and instances is known. Before a streamed side begins, the
system is told to forget the file, so that it is read from the disk. Both sides take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import PRODUCT_FLOPS, in_own_process, matrix_product, medians, packed_epoch_of, resident
from numpy.lib.format import open_memmap

import miue
from miue.bags import BagDataset, Labels, OodFlags
from miue.io.store import rows_sha256, write_tables
from miue.methods import Method
from miue.model import DataContract, Recipe, build_method, encoding
from miue.model.encoding import encode_in_chunks
from miue.model.predict import predict

WIDTH = 512
REPETITIONS = 3


def make_store(folder: Path, count: int, size: int) -> Path:
    """Write ``count`` bags of ``size`` instances, bag by bag, and return the store."""
    path = folder / f"slides-{count}-{size}"
    if (path / "store.json").exists():
        return path
    path.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    out = open_memmap(path / "instances.npy", "w+", np.float16, (count * size, WIDTH))
    truth = np.zeros(count * size, np.int64)
    digests: list[str] = []
    direction = random.normal(size=WIDTH).astype(np.float32)
    for bag in range(count):
        rows = random.standard_normal((size, WIDTH), dtype=np.float32)
        if bag % 2:
            planted = slice(bag * 7 % (size - size // 20), bag * 7 % (size - size // 20) + size // 20)
            rows[planted] += 0.3 * direction
            truth[bag * size : (bag + 1) * size][planted] = 1
        out[bag * size : (bag + 1) * size] = rows
        digests.append(rows_sha256(out[bag * size : (bag + 1) * size]))
    out.flush()
    del out
    sizes = np.full(count, size, np.int64)
    dataset = BagDataset(
        instances=np.zeros((0, WIDTH), np.float16),
        starts=sizes.cumsum() - sizes,
        sizes=sizes,
        ids=tuple(f"slide_{bag:03}" for bag in range(count)),
        labels=Labels.of([bag % 2 for bag in range(count)]),
        is_ood=OodFlags.unknown(count),
        splits=tuple(
            "test" if bag % 10 < 2 else "validation" if bag % 10 < 4 else "train" for bag in range(count)
        ),
        ood_sets=("",) * count,
        instance_labels=Labels(truth, np.ones(len(truth), bool)),
        instance_is_ood=OodFlags.unknown(len(truth)),
        class_names=("negative", "positive"),
    )
    write_tables(path, dataset, digests, {"benchmark": "slides"})
    return path


def build() -> Method:
    """Return ABMIL + MIREL for 512 features."""
    config = Recipe(encoder="mlp").model_config((WIDTH,))
    return build_method(config, DataContract(instance_shape=(WIDTH,), class_names=("0", "1")), seed=1)


def forget(store: Path) -> None:
    """Tell the system to drop the store's instances from memory, so that they are read from disk again."""
    with (store / "instances.npy").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def epoch(bags: BagDataset) -> Callable[[], None]:
    """One training epoch."""
    return packed_epoch_of(build(), bags)


def prediction_of(bags: BagDataset) -> Callable[[], None]:
    """Prediction of all bags and instances."""
    method = build()

    def run() -> None:
        list(predict(method, bags))

    return run


def streamed_and_in_memory(store: Path, task: Callable[[BagDataset], Callable[[], None]]) -> tuple[float, float]:
    """Return median seconds from disk and from memory, taking turns."""
    streamed = miue.read_store(store)
    held = replace(streamed, instances=np.array(streamed.instances))
    from_disk, from_memory = medians(
        task(streamed), task(held), repetitions=REPETITIONS, before=partial(forget, store)
    )
    return from_disk, from_memory


def peak(task: Callable[..., None], *arguments: Any) -> float:
    """Return the peak MiB of memory of its own (not of mapped files) that ``task`` takes, in a new process."""
    found: float = in_own_process(watched, task, *arguments)
    return found


def watched(task: Callable[..., None], *arguments: Any) -> float:
    """Return the MiB that this process has more at the peak of ``task`` than before."""
    before, most, ended = resident("RssAnon"), [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], resident("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    task(*arguments)
    ended.set()
    watcher.join()
    return most[0] - before


def train_streamed(store: Path, count: int) -> None:
    """One epoch over the first ``count`` bags from disk."""
    epoch(miue.read_store(store).subset(np.arange(count)))()


def predict_streamed(store: Path, count: int) -> None:
    """Predict the first ``count`` bags from disk."""
    prediction_of(miue.read_store(store).subset(np.arange(count)))()


def one_large_bag(store: Path) -> BagDataset:
    """Return one bag of up to a million instances of the store."""
    bags = miue.read_store(store)
    total = min(1_000_000, int(bags.sizes.sum()))
    first = bags.subset([1])
    return replace(first, starts=np.array([0]), sizes=np.array([total]))


def train_large_bag(store: Path) -> None:
    """One update from a bag of a million instances."""
    method = build().train()
    method.loss(one_large_bag(store).batch([0]), 1).backward()


def predict_large_bag(store: Path) -> None:
    """Predict a bag of a million instances."""
    predict(build(), one_large_bag(store))


def rates() -> dict[str, float]:
    """Return the FLOP/s of predicting from features in memory, and of a plain matrix product."""
    method, rows = build().eval(), torch.randn(65_536, WIDTH).half()
    hidden: int = method.network.hidden  # type: ignore[assignment]
    flops = 2 * len(rows) * (2 * WIDTH * WIDTH + WIDTH * hidden + WIDTH * 2 + hidden + WIDTH * hidden + hidden * 2)
    segments = miue.Segments(torch.tensor([len(rows)]))

    def run() -> None:
        with torch.inference_mode():
            method.predict([encode_in_chunks(method.encode, rows)], segments, "residual")

    ours, product = medians(run, matrix_product(), repetitions=7)
    return {"prediction": flops / ours, "matrix product": PRODUCT_FLOPS / product}


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bags", type=int, default=100)
    parser.add_argument("--instances", type=int, default=12_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as temporary:
        store = make_store(arguments.folder or Path(temporary), arguments.bags, arguments.instances)
        total = arguments.bags * arguments.instances
        print(f"{arguments.bags} bags of {arguments.instances:,} × {WIDTH} float16, {results['threads']} threads")
        for name, task in (("training epoch", epoch), ("prediction", prediction_of)):
            disk, memory = streamed_and_in_memory(store, task)
            print(f"{name}: from disk {disk:.1f} s, from memory {memory:.1f} s, ", end="")
            print(f"throughput {memory / disk:.2f} of that in memory (wanted 0.8), ", end="")
            print(f"{disk / total * 1e6:.1f} s per million instances")
            results[name] = {"disk": disk, "memory": memory, "share": memory / disk}
        for name, run, times in (("training", train_streamed, 1), ("prediction", predict_streamed, REPETITIONS)):
            half, whole = (
                statistics.median(peak(run, store, count) for _ in range(times))
                for count in (arguments.bags // 2, arguments.bags)
            )
            print(f"{name}, peak memory: {half:.0f} MiB for {arguments.bags // 2} bags, {whole:.0f} for all")
            results[f"{name} peak MiB"] = [half, whole]
        results["large bag"] = large_bag(store)
    found = rates()
    share = found["prediction"] / found["matrix product"]
    print(
        f"prediction from features in memory: {found['prediction'] / 1e9:.0f} GFLOP/s of "
        f"{found['matrix product'] / 1e9:.0f} of a matrix product of side 1024, share {share:.2f} (wanted 0.6)"
    )
    results["prediction share"] = share
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def large_bag(store: Path) -> dict[str, float]:
    """Print and return what a bag of a million instances takes, and how far parts are from the whole."""
    bags = one_large_bag(store)
    method = build()
    started = time.perf_counter()
    (parts,) = predict(method, bags)
    seconds = time.perf_counter() - started
    encoding.BLOCK_INSTANCES = 10**9
    (whole,) = predict(method, bags)
    gap = max(
        *(float(np.abs(a.probabilities - b.probabilities).max()) for a, b in zip(parts, whole, strict=True)),
    )
    memory = {"predict": peak(predict_large_bag, store), "train": peak(train_large_bag, store)}
    print(
        f"a bag of {int(bags.sizes[0]):,}: predicted in {seconds:.1f} s at {memory['predict']:.0f} MiB, in blocks "
        f"within {gap:.1e} of the whole; one training update at {memory['train']:.0f} MiB"
    )
    return {"seconds": seconds, "gap": gap, **memory}


if __name__ == "__main__":
    main()
