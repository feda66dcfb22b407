"""The temperature of a model: fitted to its validation bags, and what it does to each kind of distribution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import separable_bags, train_with

import miue
from miue.bags import BagDataset
from miue.calibration.scaling import FEWEST, fit_scaling
from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution

P = torch.tensor([[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
OF_KIND: dict[str, PredictiveDistribution] = {
    "categorical": Categorical(P),
    "draws": Draws.of([Categorical(P), Categorical(P.flip(0))]),
    "dirichlet": Dirichlet(torch.tensor([[1.0, 3.0, 2.0], [500.0, 1.5, 1.0]], dtype=torch.float64)),
}


@pytest.fixture(scope="module")
def bags() -> BagDataset:
    made = separable_bags(60, seed=2)
    return replace(made, splits=("train",) * 24 + ("validation",) * 24 + ("test",) * 12)


def train(bags: BagDataset, **settings: Any) -> miue.Model:
    method = settings.pop("method", "mirel")
    given = {"max_epochs": 2, "device": "cpu", "distances": (), **settings}
    return train_with(bags, method=method, settings=given, progress=False)


def untempered(model: miue.Model) -> miue.Model:
    return replace(model, training=model.training.model_copy(update={"temperature": None}))


def test_a_tempered_categorical_is_the_softmax_of_its_logits_over_the_temperature() -> None:
    logits = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    tempered = Categorical.of_logits(logits).tempered(0.3).probabilities
    torch.testing.assert_close(tempered, (logits / 0.3).softmax(-1))


def test_a_tempered_dirichlet_has_evidence_to_the_power_of_one_over_the_temperature() -> None:
    tempered = Dirichlet(torch.tensor([[1.0, 2.0, 9.0]])).tempered(2.0)
    assert tempered.alpha.tolist() == [[1.0, 2.0, pytest.approx(1 + 8**0.5)]]


def test_tempered_draws_keep_the_epistemic_share_of_their_entropy() -> None:
    draws = OF_KIND["draws"]
    tempered = draws.tempered(0.5)
    some = draws.entropy() > 0
    share = (tempered.mutual_information() / tempered.entropy())[some]
    torch.testing.assert_close(share, (draws.mutual_information() / draws.entropy())[some])
    torch.testing.assert_close(
        tempered.probabilities, Categorical(draws.probabilities).tempered(0.5).probabilities
    )


@pytest.mark.parametrize("kind", OF_KIND)
def test_the_inverse_temperature_gives_the_prediction_back(kind: str) -> None:
    made = OF_KIND[kind]
    back = made.tempered(0.4).tempered(1 / 0.4)
    assert type(back) is type(made)
    torch.testing.assert_close(back.probabilities, made.probabilities)
    torch.testing.assert_close(back.expected_entropy(), made.expected_entropy())


@pytest.mark.parametrize("method", ["mirel", "softmax", "mc-dropout"])
def test_predictions_are_at_the_temperature_of_the_validation_bags(
    method: str, bags: BagDataset, tmp_path: Path
) -> None:
    model = train(bags, method=method)
    plain = untempered(model)
    raw = plain.predict(bags.split("validation")).bags
    wanted = fit_scaling(raw.distribution, raw.labels.values).temperature
    assert model.training.temperature == pytest.approx(wanted)
    assert wanted != pytest.approx(1.0, abs=0.01)
    test = bags.split("test")
    got, before = model.predict(test), plain.predict(test)
    for level in ("bags", "instances"):
        of_got, of_before = getattr(got, level), getattr(before, level)
        expected = of_before.distribution.tempered(wanted)
        torch.testing.assert_close(of_got.distribution.probabilities, expected.probabilities)
        torch.testing.assert_close(of_got.distribution.mutual_information(), expected.mutual_information())
        np.testing.assert_array_equal(of_got.scores["error_probability"], of_before.scores["error_probability"])
    back = got.tempered(1 / wanted).bags.distribution
    torch.testing.assert_close(back.probabilities, before.bags.distribution.probabilities)
    got.save(tmp_path / "predictions")
    kept = miue.read_predictions(tmp_path / "predictions").provenance
    assert kept is not None
    assert kept.training is not None
    assert kept.training.temperature == model.training.temperature
    model.save(tmp_path / "model")
    again = miue.Model.load(tmp_path / "model").predict(test)
    np.testing.assert_allclose(again.bags.probabilities, got.bags.probabilities)


def test_attention_is_no_probability_to_temper(bags: BagDataset) -> None:
    model = train(bags)
    tempered, raw = (one.predict(bags, estimator="attention").levels() for one in (model, untempered(model)))
    np.testing.assert_array_equal(tempered["instances"].probabilities, raw["instances"].probabilities)
    back = model.predict(bags, estimator="attention").tempered(2.0).levels()["instances"]
    np.testing.assert_array_equal(back.probabilities, raw["instances"].probabilities)


def test_there_is_none_of_few_bags_of_one_class_or_where_it_is_not_wanted(bags: BagDataset) -> None:
    assert train(bags, temperature_scaling=False).training.temperature is None
    few = bags.subset(list(range(24)) + list(range(24, 24 + FEWEST - 1)))
    assert train(few).training.temperature is None
    model = train(bags)
    ones = [i for i in range(60) if bags.labels.values[i] == 1]
    assert model.with_validation(bags.subset(ones)).training.temperature is None


@pytest.mark.parametrize("method", ["r-edl", "daedl"])
def test_there_is_none_for_a_dirichlet_that_is_not_evidence_plus_one(method: str, bags: BagDataset) -> None:
    assert train(bags, method=method).training.temperature is None


def test_a_calibration_does_not_outlive_other_validation_bags(bags: BagDataset) -> None:
    model = train(bags)
    calibrated = replace(
        model, calibration=miue.calibrate(model.predict(bags.split("test")), false_alarms=None, deferral=None)
    )
    assert calibrated.with_validation(bags.split("validation")).calibration is None
