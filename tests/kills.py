"""Trainings killed at random moments and resumed until they end: ``python tests/kills.py KIND KILLS SEED``.

Each training runs in a process forked from one that has imported everything, so that a kill meets the training
and not its imports. Prints, as JSON, how often it was killed and which final files are not those of a training
that was never killed.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_bags import separable_bags, train_with
from made_images import bright_bags

from miue.bags import BagDataset
from miue.io import make_folds
from miue.model.recipe import Recipe
from miue.selection import cross_validate
from miue.training import checkpoints

SETTINGS = {"seed": 7, "max_epochs": 8, "learning_rate": 3e-3, "lr_patience": 1}
ENSEMBLE = {"method": "deep-ensemble", "options": {"method.size": 3}}


def train(bags: BagDataset, out: Path, **more: Any) -> None:
    train_with(bags, settings={**SETTINGS, "device": "cpu"}, out=out, if_exists="resume", progress=False, **more)


def validate(out: Path) -> None:
    bags = bright_bags()
    recipe = Recipe(encoder="compact", settings={**SETTINGS, "max_epochs": 3})
    cross_validate(bags, make_folds(bags, 2), [1, 2], out, recipe, settings={"device": "cpu"}, progress=False)


KINDS: dict[str, Callable[[Path], None]] = {
    "lenet": lambda out: train(
        bright_bags(side=16), out, encoder="lenet", options={"encoder.width": 64, "encoder.dropout": 0.2}
    ),
    "alexnet": lambda out: train(
        bright_bags(8, side=15, channels=3), out, encoder="alexnet", options={"encoder.width": 32}
    ),
    "compact": lambda out: train(bright_bags(), out, encoder="compact"),
    "mlp": lambda out: train(separable_bags(), out, options={"encoder.width": 64, "encoder.scaling": "each"}),
    "torchmil": lambda out: train(bright_bags(), out, network="torchmil-abmil", method="softmax"),
    "ensemble": lambda out: train(bright_bags(), out, **ENSEMBLE),
    "cross-validation": validate,
}


def start(work: Callable[[Path], None], out: Path) -> int:
    """Fork a process that does the work; return its id."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work(out)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return process


def ended(process: int, within: float) -> bool:
    """Wait; return whether the process ended well by itself within so many seconds."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            if os.waitstatus_to_exitcode(status):
                raise SystemExit(f"ended with status {status}")
            return True
        time.sleep(0.001)
    return False


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file, hidden ones and what lies beside the folder included."""
    files = [path for path in folder.parent.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in files}


def campaign(kind: str, kills: int, seed: int, place: Path) -> dict[str, Any]:
    """Kill a training so often, at random moments, and compare each that ends with one that was never killed."""
    draw = random.Random(seed)
    began = time.monotonic()
    process = start(KINDS[kind], place / "whole" / "out")
    assert ended(process, 600)
    whole_takes, wanted = time.monotonic() - began, contents(place / "whole" / "out")
    out = place / "killed" / "out"
    killed = killed_here = compared = 0
    different: set[str] = set()
    while killed < kills or out.exists():
        process = start(KINDS[kind], out)
        if not ended(process, draw.uniform(0, 0.7) * whole_takes if killed < kills else 600):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            killed, killed_here = killed + 1, killed_here + 1
            continue
        found = contents(out)
        different |= {name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)}
        compared += killed_here > 0
        killed_here = 0
        shutil.rmtree(place / "killed")
    seconds = round(time.monotonic() - began, 1)
    return {
        "kind": kind,
        "kills": killed,
        "resumed_to_the_end": compared,
        "files": len(wanted),
        "different": sorted(different),
        "seconds": seconds,
    }


if __name__ == "__main__":
    for module in ("scipy.stats", "sklearn.model_selection", "sklearn.neighbors"):
        importlib.import_module(module)  # once, before any process is forked
    checkpoints.SECONDS = 0
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(campaign(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(folder))))
