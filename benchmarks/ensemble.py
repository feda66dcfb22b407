"""Ten members of an ensemble in as many processes as there are cores, against one after another.

Usage: python benchmarks/ensemble.py [--json FILE]      (make bench)

Each member is a network of some 50,000 parameters. One after another, each has all cores. Times are those of whole
trainings, with the start of the processes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from joblib import cpu_count

import miue
from miue.bags import BagDataset
from miue.common.tasks import LOCAL, Executor

MEMBERS, WIDTH, HIDDEN, BAGS, EPOCHS = 10, 192, 116, 400, 25
WANTED = 1.5


def made_bags() -> BagDataset:
    """Return labeled bags of features: a positive bag holds shifted instances."""
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(int(random.integers(20, 80)), WIDTH)).astype(np.float32) for _ in range(BAGS)]
    for array in arrays[::2]:
        array[: len(array) // 5] += 0.3
    return BagDataset.from_arrays(arrays, [1 - row % 2 for row in range(BAGS)])


def train(bags: BagDataset, out: Path, executor: Executor) -> tuple[miue.Model, float]:
    """Return the ensemble, and the seconds of its training."""
    started = time.perf_counter()
    model = miue.train(
        bags,
        method="deep-ensemble",
        settings={
            "max_epochs": EPOCHS,
            "stop_patience": EPOCHS,
            "options": {"method.size": MEMBERS, "network.hidden": HIDDEN, "encoder.width": HIDDEN},
            "distances": (),
            "device": "cpu",
            "executor": executor.kind,
            "jobs": executor.jobs,
        },
        out=out,
        progress=False,
    )
    return model, time.perf_counter() - started


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    bags, cores = made_bags(), cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        model, alone = train(bags, Path(folder) / "one", LOCAL)
        _, together = train(bags, Path(folder) / "many", Executor("processes", cores))
    count = model.method.members()[0].num_parameters
    print(
        f"{MEMBERS} members of {count:,} parameters, {EPOCHS} epochs of {BAGS} bags, {cores} cores: one after "
        f"another {alone:.1f} s ({torch.get_num_threads()} threads), side by side {together:.1f} s, "
        f"ratio {alone / together:.2f} (wanted {WANTED} on 2 cores)"
    )
    if arguments.json:
        results = {"parameters": count, "cores": cores, "alone": alone, "together": together}
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
