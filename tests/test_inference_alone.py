"""What uses a trained model loads no trainer: Lightning is for training alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_bags import separable_bags

import miue
from miue.io import write_store

pytestmark = pytest.mark.long

TRAINERS = ("lightning", "pytorch_lightning", "torch._dynamo", "miue.training.fit")
TRACKERS = ("tensorboard", "mlflow", "wandb")
COMMANDS = {
    "predict": "predict run store --part all --out out_a --quiet",
    "evaluate": "evaluate predictions --out out_b.json",
    "calibrate a run": "calibrate run store --part validation --max-error 0.4 --out out_c.json --quiet",
    "calibrate predictions": "calibrate predictions/bags.csv --max-error 0.4 --out out_d.json",
    "report": "report predictions --out out_e.html",
    "inspect a model": "inspect run",
    "inspect a run in training": "inspect half",
    "inspect bags": "inspect store",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inference")
    bags = separable_bags(60)
    splits = tuple(np.resize(["train", "train", "validation"], 60).tolist())
    bags = replace(bags, splits=splits)
    write_store(folder / "store", bags)
    settings = {"max_epochs": 1}
    miue.train(bags, out=folder / "run", settings={**settings, "device": "cpu"}, progress=False).predict(
        bags.split("validation")
    ).save(folder / "predictions")
    miue.train(bags, out=folder / "half", settings={**settings, "device": "cpu"}, progress=False)
    (folder / "half" / "config.json").unlink()
    return folder


CODE = """
import json, sys
from pathlib import Path
loaded = {}
def note(step):
    loaded[step] = [name for name in TRAINERS if name in sys.modules]
for step, command in COMMANDS.items():
    from miue.cli import main
    sys.argv = ["miue", *command.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (step, end.code)
    note(step)
import miue
from miue.model import Model
bags = miue.read_store(Path("store"))
predictions = Model.load("run").predict(bags.split("validation"), device="cpu")
miue.evaluate(predictions)
miue.calibrate(predictions, deferral=miue.DeferralGoal(0.4))
note("Python")
miue.train(bags, out="trained", settings={"max_epochs": 1, "device": "cpu"}, progress=False)
note("train")
loaded["trackers"] = [name for name in TRACKERS if name in sys.modules]
Path("loaded.json").write_text(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded(folder: Path) -> dict[str, list[str]]:
    """Which trainers a new process has loaded after each step: each command, then Python, then training."""
    code = f"TRAINERS, TRACKERS, COMMANDS = {TRAINERS!r}, {TRACKERS!r}, {COMMANDS!r}\n{CODE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    modules: dict[str, list[str]] = json.loads((folder / "loaded.json").read_text())
    return modules


@pytest.mark.parametrize("step", [*COMMANDS, "Python"])
def test_what_trains_nothing_loads_no_trainer(step: str, loaded: dict[str, list[str]]) -> None:
    assert loaded[step] == []


def test_no_tracker_is_loaded_unless_asked_for(loaded: dict[str, list[str]]) -> None:
    assert loaded["trackers"] == []


def test_training_in_one_process_loads_no_lightning(loaded: dict[str, list[str]]) -> None:
    """Its import, and that of what compiles in torch, took twice as long as that of torch."""
    assert loaded["train"] == ["miue.training.fit"]
