"""Reading as ratios within one run: files of HDF5 against h5py, and training from a folder against a store.

Usage: python benchmarks/reading.py [--files 1000]      (make bench)

miue opens HDF5 in a process of its own, with checks; h5py alone reads the same files in this process, without any.
Both sides take turns, file by file. Wall time depends on what else the machine does, as two processes take turns;
processor time, of both processes together, does not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import torch

import miue
from miue.io.formats import child, read_rows

KINDS: dict[str, tuple[int, int, int, tuple[int, int] | None]] = {
    "20 × 64": (200, 20, 64, None),
    "5,000 × 512": (8, 5_000, 512, None),
    "12,000 × 1,024": (4, 12_000, 1_024, None),
    "12,000 × 1,024, chunks of a row": (2, 12_000, 1_024, (1, 1_024)),
}
"""Files, instances, features and chunks of each kind."""
ROUNDS = 3


def processor_seconds() -> float:
    """Return the processor time of this process and of the one that reads for it."""
    process = child._process._process
    if process is None:
        return time.process_time()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_here(path: Path, size: int) -> Any:
    """Read a file of ``size`` instances as commands do."""
    return read_rows(path, 0, size, size=size)


def write_files(
    folder: Path, files: int, size: int, width: int, chunks: tuple[int, int] | None = None
) -> list[Path]:
    """Write bags of random features in float32, with coords, as CLAM does, and labels beside them."""
    random = np.random.default_rng(0)
    folder.mkdir()
    paths = [folder / f"s{number:05}.h5" for number in range(files)]
    for path in paths:
        with h5py.File(path, "w") as file:
            features = random.standard_normal((size, width), np.float32)
            file.create_dataset("features", data=features, chunks=chunks)
            file["coords"] = np.stack([np.arange(size), np.zeros(size, int)], 1) * 256
    lines = [f"{path.stem},{'ab'[number % 2]}" for number, path in enumerate(paths)]
    folder.with_suffix(".csv").write_text("\n".join(["slide_id,label", *lines]) + "\n")
    return paths


def read_plainly(path: Path) -> np.ndarray:
    """Return the features of a file, as h5py alone reads them."""
    with h5py.File(path) as file:
        array: np.ndarray = file["features"][()]
    return array


def compare_reading(folder: Path) -> None:
    """Print how long h5py takes, and how much of its rate is left with a process apart and all checks."""
    print(
        "\n| file | h5py, ms | its time / ours, wall | its time / ours, processor |\n| --- | ---: | ---: | ---: |"
    )
    for number, (name, (files, size, width, chunks)) in enumerate(KINDS.items()):
        paths = write_files(folder / str(number), files, size, width, chunks)
        sides: tuple[Callable[[Path], Any], ...] = (
            read_plainly,
            partial(read_here, size=size),
        )
        wall: list[list[float]] = [[], []]
        processor = [0.0, 0.0]
        for turn in range(-1, ROUNDS):
            for path in paths:
                for side, read in enumerate(sides):
                    used, started = processor_seconds(), time.perf_counter()
                    read(path)
                    if turn >= 0:
                        wall[side].append(time.perf_counter() - started)
                        processor[side] += processor_seconds() - used
        plain, ours = map(statistics.median, wall)
        print(f"| {name} | {plain * 1e3:.2f} | {plain / ours:.2f} | {processor[0] / processor[1]:.2f} |")


def compare_training(folder: Path, files: int) -> None:
    """Print how long two epochs take from a store, and from a folder whose files are kept in memory, and not.

    The first reading of the folder's files is part of it; the first of four turns is a warm-up.
    """
    write_files(folder / "slides", files, 20, 64)
    labels = folder / "slides.csv"
    miue.write_store(folder / "store", miue.load_bags(folder / "slides", labels=labels).bags)
    settings = {"max_epochs": 2, "distances": (), "device": "cpu"}
    seconds: dict[str, list[float]] = {"a store": [], "a folder": [], "a folder, read in each epoch": []}
    for turn in range(4):
        for name, of_side in seconds.items():
            share = 0.0 if "each" in name else 0.25
            in_store = name == "a store"
            bags = miue.load_bags(
                folder / ("store" if in_store else "slides"), labels=None if in_store else labels
            ).bags
            started = processor_seconds()
            miue.train(bags, settings={**settings, "memory_share": share}, progress=False)
            if turn:
                of_side.append(processor_seconds() - started)
    store, *others = map(statistics.median, seconds.values())
    print(f"\n{files:,} bags of 20 × 64, trained for two epochs, processor time without opening them:\n")
    print(f"- from a store: {store:.2f} s")
    for name, other in zip([*seconds][1:], others, strict=True):
        print(f"- from {name}: {other:.2f} s; the store's time / this: {store / other:.2f}")


def main() -> None:
    """Write files to a temporary folder and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000, help="bags that are trained on")
    files = parser.parse_args().files
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        compare_reading(Path(folder))
        compare_training(Path(folder), files)


if __name__ == "__main__":
    main()
