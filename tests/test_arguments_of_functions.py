"""Public functions name what they take, and take numbers of NumPy, generators and paths as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from made_bags import separable_bags
from made_parts import ragged

import miue
from miue.calibration import DeferralGoal
from miue.common.errors import ConfigError, MiueError
from miue.datasets.digits import digits_bags
from miue.datasets.gaussian import gaussian_bags
from miue.datasets.image_shifts import shifted_copies
from miue.evaluation.bootstrap import bootstrap_intervals, patients_by_bag
from miue.evaluation.froc import froc
from miue.hub.card import write_card
from miue.model.calibrate import calibrate_model
from miue.model.shards import merge_predictions
from miue.monitoring import monitor
from miue.report.worklist import worklist
from miue.tasks import Executor
from miue.training.fit import Run
from miue.training.seeds import train_seeds
from miue.training.train import train_recipe

RECIPE = miue.Recipe(distances=(), settings={"max_epochs": 1})
BAGS = separable_bags()
PREDICTIONS = ragged([3, 2, 2])
CALIBRATION = miue.Calibration(class_names=("0", "1"))
anything: Any = object()
path: Any = "path"
number: Any = 1


@pytest.fixture(autouse=True)
def _types_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are outside of the tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: train_seeds(RECIPE, path, [1], Run(Path("out"))),
            "the bags: expected a BagDataset, got .*'path'",
        ),
        (
            lambda: train_seeds(RECIPE, BAGS, number, Run(Path("out"))),
            "seeds: expected a list, each a whole number",
        ),
        (lambda: train_seeds(RECIPE, BAGS, [path], Run(Path("out"))), "seeds, entry 0: expected a whole number"),
        (lambda: train_seeds(RECIPE, BAGS, [], Run(Path("out"))), "the seeds: expected different .* got no seed"),
        (lambda: train_seeds(RECIPE, BAGS, [1], path), "run: expected a Run"),
        (lambda: train_seeds(path, BAGS, [1], Run(Path("out"))), "recipe: expected a Recipe"),
        (lambda: train_recipe(RECIPE, path, Run()), "the bags: expected a BagDataset"),
        (lambda: train_recipe(RECIPE, BAGS, anything), "run: expected a Run"),
        (lambda: train_recipe(RECIPE, BAGS, Run(), validation=anything), "validation: expected a BagDataset"),
        (lambda: Run(devices=anything), "devices: expected a whole number"),
        (lambda: Run(executor=anything), "executor: expected an Executor"),
        (lambda: calibrate_model(path, BAGS), r"model: expected a Model, got .*; read it: Model.load\('path'\)"),
        (lambda: monitor(path, []), r"calibration: .* read it: Calibration.load\('path'\)"),
        (
            lambda: monitor(CALIBRATION, [PREDICTIONS]),  # type: ignore[list-item]
            "batches, entry 0: expected a Batch, got a value of type Predictions; make each .*Batch.of",
        ),
        (lambda: worklist(path), "the predictions: expected Predictions, .* read them"),
        (lambda: worklist(PREDICTIONS, anything), "limits: expected a Limits or None"),
        (lambda: write_card(anything), "folder: expected a path or a text"),
        (lambda: bootstrap_intervals(anything, {}), "table: expected a PredictionTable, .*; pass those of bags"),
        (lambda: bootstrap_intervals(PREDICTIONS.bags, {}, resamples=0), "resamples: expected at least 1, got 0"),
        (lambda: bootstrap_intervals(PREDICTIONS.bags, {}, level=95), "the level .* expected between 0 and 1"),
        (lambda: froc(anything), "the predictions: expected Predictions"),
        (lambda: froc(PREDICTIONS, negative_class=path), "negative_class: expected a whole number"),
        (lambda: digits_bags(splits="test"), "splits: expected a list, each a text"),
        (lambda: digits_bags(splits=["tset"]), "split 'tset': expected one of .* did you mean 'test'"),
        (
            lambda: digits_bags(splits=["test"], sizes={"train": 3}),
            "sizes: expected the number of bags of .*'test'",
        ),
        (lambda: digits_bags(splits=[]), "splits: expected some of .*train.* got none"),
        (lambda: gaussian_bags(splits=["tset"]), "split 'tset': expected one of"),
        (lambda: shifted_copies(path, seed=1), "the bags: expected a BagDataset"),
        (lambda: shifted_copies(BAGS.subset([]), seed=1), "the bags to shift: expected at least one bag"),
        (
            lambda: miue.load_bags("x", labels=anything),
            "labels: expected a path .*; write them as a table .* path$",
        ),
        (lambda: merge_predictions([anything], "out"), "folders, entry 0: expected a path or a text"),
        (lambda: miue.compare([anything]), "folders, entry 0: expected a path or a text"),
        (lambda: miue.check_mil(BAGS, progress=False), "the network: .* got a value of type BagDataset; choose"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_another_kind_is_named(call: Callable[[], object], message: str) -> None:
    """These ended in an AttributeError, TypeError, KeyError or IndexError of Python, or printed a whole table."""
    with pytest.raises(MiueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 700


def test_goals_of_a_calibration_are_named() -> None:
    model = miue.train(BAGS, distances=(), settings={"max_epochs": 1}, progress=False, device="cpu")
    goal: Any = DeferralGoal()
    with pytest.raises(ConfigError, match="goals: expected a Goals, got a value of type DeferralGoal"):
        calibrate_model(model, BAGS, goal)
    with pytest.raises(ConfigError, match="the bags: expected a BagDataset, got .*'path'"):
        calibrate_model(model, path)


@pytest.mark.long
def test_seeds_of_numpy_are_trained_in_other_processes(tmp_path: Path) -> None:
    """Tasks are written as JSON, which has no numbers of NumPy: a TypeError with the processes left open."""
    run = Run(tmp_path / "out", progress=False, accelerator="cpu", executor=Executor("processes", 1))
    records = train_seeds(RECIPE, BAGS, np.array([1, 2]), run)  # type: ignore[arg-type]
    assert [record.seed for record in records] == [1, 2]


def test_seeds_come_from_a_generator_and_the_folder_is_a_text(tmp_path: Path) -> None:
    folder: Any = str(tmp_path / "out")
    seeds: Any = (seed for seed in (3,))
    run = Run(folder, progress=False, accelerator="cpu", callbacks=[])  # type: ignore[arg-type]
    assert run.callbacks == ()
    assert [record.seed for record in train_seeds(RECIPE, BAGS, seeds, run)] == [3]
    assert (tmp_path / "out" / "seed_3" / "config.json").exists()


def test_numbers_of_numpy_are_resamples_and_seeds() -> None:
    known = patients_by_bag(PREDICTIONS.bags)
    resamples: Any = np.int64(20)
    assert bootstrap_intervals(PREDICTIONS.bags, known, resamples=resamples) == bootstrap_intervals(
        PREDICTIONS.bags, known, resamples=20
    )
