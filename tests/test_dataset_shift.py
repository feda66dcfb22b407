"""New bags that together are not like those of the calibration are noticed, whichever way they differ."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run
from made_bags import separable_bags
from made_promises import predictions_of
from scipy.stats import binom, ks_2samp

import miue
from miue.bags import BagDataset
from miue.calibration import Calibration, calibrate, decide, find_shift
from miue.calibration.compared import CHANCE
from miue.cli.predictions import warn_of_shift
from miue.distributions import Categorical
from miue.io import write_store
from miue.predictions import DatasetShift, Predictions
from miue.report.runs import Run, notes_on_content

LESS = {"scaling": False, "deferral": None, "prediction_sets": None}


def bags_with(scores: dict[str, np.ndarray], **changes: object) -> Predictions:
    """Predictions that are all alike but for their scores."""
    count = len(next(iter(scores.values())))
    same = Categorical(torch.full((count, 2), 0.5, dtype=torch.float64))
    return predictions_of(same, np.zeros(count, np.int64), scores=scores, **changes)  # type: ignore[arg-type]


@pytest.mark.long
def test_bags_of_the_same_kind_are_seldom_found_different() -> None:
    random = np.random.default_rng(0)
    runs, called = 500, 0
    for _ in range(runs):
        usual = {name: sorted(random.normal(size=20).tolist()) for name in "abc"}
        called += bool(find_shift(bags_with({name: random.normal(size=30) for name in "abc"}).bags, usual))
    assert called <= binom.ppf(0.999, runs, CHANCE)
    assert called > 0


@pytest.mark.parametrize("size", [30, 800])
def test_the_chance_is_that_of_the_test_times_the_number_of_uncertainties(size: int) -> None:
    random = np.random.default_rng(1)
    new = {"near": random.normal(-2, 1, size), "far": random.normal(2, 1, size), "usual": random.normal(size=size)}
    usual = {name: sorted(random.normal(size=25).tolist()) for name in new}
    found = find_shift(bags_with(new).bags, usual)
    assert (found.bags, found.calibrated) == (size, 25)
    for name, told in (("near", found.lower), ("far", found.higher)):
        wanted = 3 * ks_2samp(new[name], usual[name]).pvalue
        assert told == {name: pytest.approx(wanted, rel=1e-6 if size == 30 else 2, abs=1e-300)}
    chances = {**found.higher, **found.lower}
    clearest, other = sorted(["far is higher", "near is lower"], key=lambda told: chances[told.split()[0]])
    said = re.sub(r"p = [0-9.e-]+", "p", str(found))
    assert said == f"the {size} new bags are not like the 25 calibration bags: {clearest} (p), {other} (p)"
    high = {"a": 0.01, "b": 0.002, "c": 1e-9, "d": 0.003}
    many = str(DatasetShift(bags=9, calibrated=20, higher=high, lower={"e": 1e-4}))
    assert many.split("bags: ")[1] == (
        "c is higher (p = 1e-09), e is lower (p = 0.0001), b is higher (p = 0.002), 2 more differ"
    )


def test_foreign_bags_and_further_bags_of_a_patient_are_not_compared() -> None:
    new, foreign = np.repeat(np.arange(10.0), 10), np.repeat(np.arange(10) >= 5, 10)
    table = bags_with({"s": new}, is_ood=foreign).bags
    usual = {"s": np.linspace(0, 4, 30).tolist()}
    assert find_shift(table, usual).bags == 50
    patients = np.repeat(np.array([f"p{row}" for row in range(10)], object), 10)
    assert find_shift(replace(table, patients=patients), usual).bags == 5
    parts = np.array(["train", "validation", *[""] * 98], object)  # those trained on are not new
    assert find_shift(replace(table, training_parts=parts), usual).bags == 49
    assert find_shift(replace(table, training_parts=np.full(100, "train", object)), usual).bags == 0


def test_what_cannot_be_compared_is_let_pass() -> None:
    usual = {"s": np.linspace(0, 1, 30).tolist()}
    assert not find_shift(bags_with({"s": np.array([9.0])}).bags, usual)
    assert not find_shift(bags_with({"s": np.array([9.0, np.nan] * 20)}).bags, usual)
    assert not find_shift(bags_with({"other": np.full(40, 9.0)}).bags, usual)
    assert not find_shift(bags_with({"s": np.full(40, 9.0)}, is_ood=np.ones(40, bool)).bags, usual)
    assert find_shift(bags_with({"s": np.full(40, 9.0)}).bags, usual).higher.keys() == {"s"}


def test_a_decision_keeps_what_was_found_and_not_the_calibration_bags() -> None:
    random = np.random.default_rng(2)
    held = bags_with({"s": random.normal(size=50)})
    made = calibrate(held, **LESS)  # type: ignore[arg-type]
    assert made.usual["s"] == tuple(np.sort(held.bags.scores["s"]).astype(np.float32).tolist())
    decided = decide(bags_with({"s": random.normal(-9, 1, 40)}), made)
    found = decided.provenance.dataset_shift
    assert found is not None
    assert found.lower.keys() == {"s"}
    assert decided.provenance.calibration is not None and "usual" not in decided.provenance.calibration
    older = Calibration.model_validate(made.model_dump(mode="json", exclude={"usual"}))
    assert decide(held, older).provenance.dataset_shift is None


def test_a_warning_says_that_patients_are_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(2)
    held, patients = bags_with({"s": random.normal(size=50)}), np.arange(50).astype(str).astype(object)
    patients[::2] = patients[1::2]
    made = calibrate(replace(held, bags=replace(held.bags, patients=patients)), **LESS)  # type: ignore[arg-type]
    moved = bags_with({"s": random.normal(-9, 1, 40)})
    named = replace(moved, bags=replace(moved.bags, patients=np.array([f"n{row}" for row in range(40)], object)))
    for new, noted in ((moved, True), (named, False)):
        decided = decide(new, made)
        warn_of_shift(decided)
        said = capsys.readouterr().err
        assert "Warning: the 40 new bags are not like the 25 calibration bags" in said
        assert ("Note: No patient is stated for 40 of 40 bags" in " ".join(said.split())) == noted
        notes = " ".join(notes_on_content([Run("a", "", "", decided)]))
        assert ("No patient is stated for 40 of 40" in notes) == noted


def features_moved(bags: BagDataset, by: float) -> BagDataset:
    return replace(bags, instances=np.asarray(bags.instances) + np.float32(by))


@pytest.mark.long
def test_the_commands_warn_of_bags_that_are_unlike_the_calibration(tmp_path: Path) -> None:
    bags = separable_bags(180, seed=5)
    splits = np.repeat(["train", "validation", "calibration", "test"], [60, 30, 50, 40])
    placed = replace(bags, splits=tuple(splits.tolist()))
    model = miue.train(placed, settings={"max_epochs": 2}, progress=False, out=tmp_path / "run")
    write_store(tmp_path / "store", placed)
    write_store(tmp_path / "moved", features_moved(placed.split("test"), 3.0))
    easy = ("--without", "deferral", "--without", "sets", "--quiet")
    run("calibrate", tmp_path / "run", tmp_path / "store", *easy)
    for name, warned in (("store", False), ("moved", True)):
        out = tmp_path / f"out-{name}"
        printed = run("predict", tmp_path / "run", tmp_path / name, "--part", "test", "--out", out, "--quiet")
        again = run("decide", out, "--calibration", tmp_path / "run", "--out", tmp_path / f"again-{name}")
        report = tmp_path / f"{name}.html"
        run("report", out, "--out", report, "--resamples", "10", "--quiet")
        sentence = "the 40 new bags are not like the 50 calibration bags: "
        told = [f"Warning: {sentence}" in text for text in (printed, again)]
        page = report.read_text()
        assert [*told, sentence in page] == [warned] * 3
        assert ("no sign that the 40 new bags are not like" in page) == (not warned)
        shift = json.loads((out / "predictions.json").read_text())["provenance"]["dataset_shift"]
        assert bool(shift["higher"] or shift["lower"]) == warned
    assert model.calibration is None
