"""A package that brings a network, an encoder, a method and a reader, installed and used as anyone would."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_bags import separable_bags

import miue

HERE = Path(__file__).resolve().parent
SOURCE = str(Path(miue.__file__).resolve().parents[1])
CHECKOUT = str(HERE.parent)
PARTS = ("--network", "top-half", "--encoder", "scaling", "--method", "smoothed")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed."""
    pytest.importorskip("setuptools")
    home = tmp_path_factory.mktemp("installed")
    shutil.copytree(HERE / "outside_package", home / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run = subprocess.run(
        [*pip, "--target", str(home / "packages"), str(home / "source")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return home / "packages"


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bag files, one line of numbers for each instance, and labels that name these files."""
    made, folder = separable_bags(40), tmp_path_factory.mktemp("bags") / "features"
    folder.mkdir()
    with (folder.parent / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["bag_id", "label"])
        for row, name in enumerate(made.ids):
            np.savetxt(folder / f"{name}.bagl", made.batch([row]).instances.numpy())
            writer.writerow([f"{name}.bagl", made.labels.values[row]])
    return folder


def shell(*words: object, packages: Path | None, fails: bool = False) -> str:
    """Run miue in a process of its own, with the package or without, and return what it says."""
    paths = [SOURCE, CHECKOUT, *([str(packages)] if packages else [])]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT") if name in os.environ}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-P", "-m", "miue", *map(str, words)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = run.stdout + run.stderr
    assert (run.returncode != 0) == fails, said
    assert "Traceback" not in said
    return " ".join(said.split())


@pytest.fixture(scope="module")
def trained(installed: Path, bags: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    settings = ("--set", "max_epochs=30", "--set", "learning_rate=0.01", "--set", "network.width=16", "--quiet")
    labels = bags.parent / "labels.csv"
    shell("train", bags, "--labels", labels, *PARTS, *settings, "--out", run, packages=installed)
    return run


def test_help_lists_what_is_installed(installed: Path) -> None:
    said = shell("train", "--help", packages=installed)
    assert all(name in said for name in PARTS[1::2])
    assert "top-half" not in shell("train", "--help", packages=None)


def test_a_trained_model_is_loaded_in_a_new_process_that_trusts_it(
    installed: Path, bags: Path, trained: Path, tmp_path: Path
) -> None:
    words = ("predict", trained, bags, "--out", tmp_path / "predictions", "--quiet")
    said = shell(*words, packages=installed, fails=True)
    assert "leave to run the code of others" in said and "miue-outside 0.1" in said and "--trust" in said
    shell(*words, "--trust", packages=installed)
    with (tmp_path / "predictions" / "bags.csv").open() as file:
        assert 0 < sum(1 for _ in csv.DictReader(file)) < 40
    evaluated = shell("evaluate", tmp_path / "predictions", packages=None)
    assert "metric" in evaluated
    assert "not of miue" in shell("inspect", trained, packages=None)


def test_without_the_package_the_error_says_what_to_install(bags: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions"
    said = shell("predict", trained, bags, "--out", out, "--trust", "--quiet", packages=None, fails=True)
    assert "install the package 'miue-outside 0.1'" in said
    assert not out.exists()


def test_it_is_cross_validated(installed: Path, bags: Path, tmp_path: Path) -> None:
    words = ("cross-validate", bags, "--labels", bags.parent / "labels.csv", *PARTS, "--folds", "2")
    said = shell(*words, "--out", tmp_path / "folds", "--set", "max_epochs=2", "--quiet", packages=installed)
    assert "Written to" in said
    assert (tmp_path / "folds" / "summary.csv").exists()
