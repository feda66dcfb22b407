"""A model knows the bags that it learned from, wherever it is kept, and a calibration on them is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags, train_with

import miue
from miue.bags import BagDataset
from miue.calibration import DeferralGoal, FalseAlarmGoal, PredictionSetGoal
from miue.common.errors import DataError
from miue.model.training_bags import TrainingBags

EASY = {
    "deferral": DeferralGoal(0.9, 0.5),
    "prediction_sets": PredictionSetGoal(0.4),
    "false_alarms": FalseAlarmGoal(0.4),
}


def named(start: int, seed: int = 0) -> BagDataset:
    bags = separable_bags(40, seed=seed)
    return replace(bags, ids=tuple(f"slide_{start + row}" for row in range(40)))


def trained(bags: BagDataset) -> miue.Model:
    return miue.train(
        bags, settings={"max_epochs": 1, "validation_fraction": 0.25, "distances": ()}, progress=False
    )


@pytest.mark.parametrize("kept", ["in memory", "saved model", "saved predictions"])
@pytest.mark.parametrize("names", ["named", "numbered"])
def test_a_calibration_on_training_bags_is_refused_unless_asked_for(kept: str, names: str, tmp_path: Path) -> None:
    bags = named(0) if names == "named" else separable_bags(40)
    model = trained(bags)
    if kept == "saved model":
        model.save(tmp_path / "model")
        model = miue.Model.load(tmp_path / "model")
    predictions = model.predict(bags)
    if kept == "saved predictions":
        predictions.save(tmp_path / "predictions")
        predictions = miue.read_predictions(tmp_path / "predictions")
    with pytest.raises(DataError, match="30 of 40 that the model was trained on.*allow_training_bags=True"):
        miue.calibrate(predictions, **EASY)  # type: ignore[arg-type]
    made = miue.calibrate(predictions, settings={"allow_training_bags": True}, **EASY)  # type: ignore[arg-type]
    assert made.made_from.caveat == "the model was trained on 30 of these bags: no guarantee holds"


@pytest.mark.parametrize("names", ["named", "numbered"])
def test_other_bags_are_calibrated_on_although_they_may_have_the_same_numbers(names: str) -> None:
    model = trained(named(0) if names == "named" else separable_bags(40))
    others = named(100, seed=7) if names == "named" else separable_bags(40, seed=7)
    made = miue.calibrate(model.predict(others), **EASY)  # type: ignore[arg-type]
    assert made.made_from.bags == 40 and not made.made_from.caveat


def test_another_bag_of_a_training_patient_is_a_training_bag() -> None:
    model = trained(replace(named(0), patients=tuple(f"p{row}" for row in range(40))))
    assert model.training_bags is not None
    patient = next(row[1] for row in model.training_bags.rows if row[3] == "train")
    other = replace(named(100, seed=7), patients=(patient, *(f"q{row}" for row in range(39))))
    with pytest.raises(DataError, match="1 of 40 that the model was trained on, or others of their patients"):
        miue.calibrate(model.predict(other), **EASY)  # type: ignore[arg-type]


def test_validation_bags_are_calibrated_on_with_a_caveat() -> None:
    bags = named(0)
    model = trained(bags)
    assert model.training_bags is not None
    held = [row for row, part in enumerate(model.training_bags.compare(bags).parts) if part == "validation"]
    goals = {"deferral": None, "prediction_sets": None, "false_alarms": None}
    made = miue.calibrate(model.predict(bags.subset(held)), **goals)  # type: ignore[arg-type]
    assert "chose the epoch" in made.made_from.caveat


def test_training_bags_are_evaluated_only_where_that_is_allowed(tmp_path: Path) -> None:
    bags = named(0)
    model = trained(bags)
    assert model.training_bags is not None
    trained_on = [row for row, part in enumerate(model.training_bags.compare(bags).parts) if part == "train"]
    message = f"the bags to evaluate: .*30 of 40 that the model was trained on.*'{bags.ids[trained_on[0]]}'"
    model.predict(bags).save(tmp_path / "predictions")
    for evaluate in (model.evaluate, lambda bags: miue.evaluate(miue.read_predictions(tmp_path / "predictions"))):
        with pytest.raises(DataError, match=message):
            evaluate(bags)
    assert model.evaluate(bags, allow_training_bags=True).bags.count == 40
    assert "allow training bags" in fail("evaluate", tmp_path / "predictions")
    assert "Acc." in run("evaluate", tmp_path / "predictions", "--allow-training-bags")


@pytest.mark.parametrize("kept", ["other bags", "validation bags"])
def test_bags_that_a_model_was_not_trained_on_are_evaluated(kept: str) -> None:
    bags = named(0)
    model = trained(bags)
    assert model.training_bags is not None
    parts = model.training_bags.compare(bags).parts
    held = bags.subset([row for row, part in enumerate(parts) if part == "validation"])
    evaluation = model.evaluate(named(100, seed=7) if kept == "other bags" else held)
    assert evaluation.bags.metrics["accuracy"].value is not None
    assert evaluation.provenance.seed == model.training.seed


@pytest.mark.parametrize("named", [True, False])
def test_validation_bags_that_are_trained_on_are_refused(named: bool) -> None:
    ids = [f"slide_{number}" for number in range(40)] if named else None
    whole = separable_bags(40) if ids is None else replace(separable_bags(40), ids=tuple(ids))
    training, validation = whole.subset(np.arange(30)), whole.subset(np.arange(29, 40))
    quick: dict[str, Any] = {"settings": {"max_epochs": 1}, "progress": False, "device": "cpu"}
    with pytest.raises(
        DataError, match="other bags, of other patients, than those to train on, got 1 bag of which"
    ):
        train_with(training, validation=validation, **quick)
    train_with(training, validation=whole.subset(np.arange(30, 40)), **quick)
    if named:
        patients = tuple(str(number // 3) for number in range(40))
        owned = replace(whole, patients=patients)
        with pytest.raises(DataError, match="got 2 bags of which that does not hold: slide_34, slide_35"):
            train_with(owned.subset(np.arange(34)), validation=owned.subset(np.arange(34, 40)), **quick)


def test_bags_with_names_beside_numbered_ones_are_known_by_their_names() -> None:
    part_of = {"bag_0": "train", "slide_1": "validation", "slide_2": "calibration"}
    bags = replace(separable_bags(3), ids=tuple(part_of))
    run = TrainingBags.of(part_of, bags)
    assert run.compare(bags).parts == ("train", "validation", "calibration")
    others = replace(separable_bags(3, seed=7), ids=tuple(part_of))
    assert run.compare(others).parts == ("", "validation", "calibration")
