"""More than two classes: what is said of a class names it, and says which one is the negative one."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run

import miue
from miue.bags import Coords, Labels, OodFlags
from miue.calibration import DeferralGoal, InstanceGoal, PredictionSetGoal
from miue.calibration.prediction_sets import fit_prediction_sets
from miue.common.errors import DataError
from miue.distributions import Dirichlet
from miue.predictions import Predictions, PredictionTable, Provenance
from miue.report.levels import Resampling
from miue.report.report import write_report

GRADES = ("2", "9", "10, at least")
BAGS, INSTANCES = 60, 3


def predicted(*, seed: int, negative: str = "2") -> Predictions:
    """Bags of three grades, and instances that are of their bag's grade or, one of three, of the negative one."""
    random = np.random.default_rng(seed)
    labels = np.arange(BAGS) % 3
    of_instances = np.repeat(labels, INSTANCES)
    of_instances[::INSTANCES] = GRADES.index(negative)

    def table(values: np.ndarray, bag_ids: np.ndarray, instance: np.ndarray | None = None) -> PredictionTable:
        alpha = 1 + random.gamma(1 + 4 * np.eye(3)[values])
        return PredictionTable(
            distribution=Dirichlet(torch.from_numpy(alpha)),
            bag_ids=bag_ids,
            labels=Labels.of(values.tolist()),
            is_ood=OodFlags.all_in(len(values)),
            ood_sets=np.full(len(values), "", object),
            instance=instance,
        )

    names = np.array([f"{seed}-{number}" for number in range(BAGS)], object)
    inside = table(of_instances, np.repeat(names, INSTANCES), np.tile(np.arange(INSTANCES), BAGS))
    return Predictions(table(labels, names), inside, Provenance(classes=GRADES))


def calibrated(negative: str = "2") -> miue.Calibration:
    return miue.calibrate(
        predicted(seed=1, negative=negative),
        deferral=DeferralGoal(0.5),
        prediction_sets=PredictionSetGoal(0.2, per_class=True),
        false_alarms=None,
        instances=InstanceGoal("no-false-flag", 0.2, negative_class=negative),
    )


def test_the_thresholds_of_prediction_sets_are_said_by_class() -> None:
    calibration = calibrated()
    sets = calibration.prediction_sets
    assert sets is not None and len(set(sets.thresholds)) == 3
    limits = [f"{limit:.4g} for {name!r}" for name, limit in zip(GRADES, sets.thresholds, strict=True)]
    (row,) = [row for row in calibration.tables()[0].rows if row[0] == "prediction sets"]
    assert row[1] == f"lac ≤ {', '.join(limits)}"


def test_weighted_sets_that_a_class_is_too_light_for_name_the_class() -> None:
    p, labels = np.full((30, 3), 1 / 3), np.arange(30) % 3
    weights = np.where(labels == 2, 0.01, 1.0)
    with pytest.raises(DataError, match=r"of class '10, at least'"):
        fit_prediction_sets(p, labels, PredictionSetGoal(0.2, per_class=True), weights, 1.0, GRADES)


@pytest.mark.parametrize("negative", ["2", "10, at least"])
def test_which_class_is_negative_is_said_with_the_flags_of_instances(negative: str, tmp_path: Path) -> None:
    said = f"Negative: the class {negative!r}; positive: every other class."
    calibration = calibrated(negative)
    assert said in str(calibration)
    decided = miue.decide(predicted(seed=2, negative=negative), calibration)
    assert said in " ".join(str(miue.evaluate(decided)).split())
    write_report(tmp_path / "r.html", [("theirs", decided)], resampling=Resampling(10))
    assert said in unescape((tmp_path / "r.html").read_text())


def test_a_negative_bag_with_a_positive_instance_is_said_with_the_name_of_its_class() -> None:
    froc = miue.evaluate(predicted(seed=1, negative="9")).froc
    assert froc is not None and "of the negative class '2' has an instance" in froc["froc"].reason


@pytest.mark.parametrize("name", ["2", "9"])
def test_a_class_that_is_called_by_a_number_is_exported_by_its_name(name: str, tmp_path: Path) -> None:
    grades = replace(predicted(seed=1), provenance=Provenance(classes=("2", "9", "1")))
    assert grades.instances is not None
    places = Coords.of(np.stack([256 * np.arange(BAGS * INSTANCES), np.zeros(BAGS * INSTANCES, np.int64)], 1))
    replace(grades, instances=replace(grades.instances, coords=places)).save(tmp_path / "p")
    run("export", "geojson", tmp_path / "p", "--out", tmp_path / "out", "--class", name)
    written = {
        feature["properties"]["classification"]["name"]
        for file in (tmp_path / "out").glob("*.geojson")
        for feature in json.loads(file.read_text())["features"]
    }
    assert written == {f"class {name}"}


def test_one_class_with_a_comma_in_its_name_is_exported(tmp_path: Path) -> None:
    places = Coords.of(np.stack([256 * np.arange(BAGS * INSTANCES), np.zeros(BAGS * INSTANCES, np.int64)], 1))
    given = predicted(seed=1)
    assert given.instances is not None
    replace(given, instances=replace(given.instances, coords=places)).save(tmp_path / "p")
    run("export", "geojson", tmp_path / "p", "--out", tmp_path / "out", "--class", "10, at least")
    files = [json.loads(file.read_text())["features"] for file in (tmp_path / "out").glob("*.geojson")]
    assert {one["properties"]["classification"]["name"] for file in files for one in file} == {"10, at least"}


def test_a_table_with_the_classes_in_another_order_is_told_to_name_the_order_of_the_model(tmp_path: Path) -> None:
    model = predicted(seed=1)
    provenance = Provenance(classes=GRADES, weights_sha256="0" * 64)
    one, other = replace(model, provenance=provenance), replace(model, provenance=Provenance(classes=GRADES[::-1]))
    for sources in ([("model", one), ("table", other)], [("table", other), ("model", one)]):
        with pytest.raises(DataError, match="another order; .*--classes 2 --classes 9 --classes '10, at least'"):
            write_report(tmp_path / "r.html", sources)
