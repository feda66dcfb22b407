"""What uses a trained model loads no trainer: Lightning is for training alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_bags import separable_bags

import miue
from miue.io.store import write_store

TRAINERS = ("lightning", "pytorch_lightning", "miue.training.fit")
COMMANDS = {
    "predict": "predict run store --part all --out out --quiet",
    "evaluate": "evaluate predictions --out out.json",
    "calibrate a run": "calibrate run store --part validation --max-error 0.4 --out out.json --quiet",
    "calibrate predictions": "calibrate predictions/bags.csv --max-error 0.4 --out out.json",
    "report": "report predictions --out out.html",
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
    miue.train(bags, out=folder / "run", settings=settings, progress=False, device="cpu").predict(
        bags.split("validation")
    ).save(folder / "predictions")
    miue.train(bags, out=folder / "half", settings=settings, progress=False, device="cpu")
    (folder / "half" / "config.json").unlink()
    return folder


def loaded_by(code: str, folder: Path) -> str:
    code = f"import sys\n{code}\nprint('TRAINERS', [name for name in {TRAINERS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_trains_nothing_loads_no_trainer(command: str, folder: Path, tmp_path: Path) -> None:
    words = [str(tmp_path / word) if word.startswith("out") else word for word in COMMANDS[command].split()]
    code = f"""
sys.argv = {["miue", *words]}
from miue.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loaded_by(code, folder).endswith("TRAINERS []\n")


def test_a_model_predicts_and_is_calibrated_without_a_trainer(folder: Path) -> None:
    code = """
from pathlib import Path
import miue
from miue.model import Model
bags = miue.read_store(Path("store"))
predictions = Model.load("run").predict(bags.split("validation"), device="cpu")
miue.evaluate(predictions)
miue.calibrate(predictions, referral=miue.ReferralGoal(0.4))
"""
    assert loaded_by(code, folder).endswith("TRAINERS []\n")


def test_the_test_sees_a_trainer_that_is_loaded(folder: Path) -> None:
    assert "TRAINERS ['lightning', 'miue.training.fit']" in loaded_by("import miue\nmiue.train", folder)
