"""The error probability of instances: against closed forms, an independent fit, and what is true of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_bags import separable_bags
from scipy.optimize import minimize
from scipy.special import expit

import miue
from miue.bags import Labels, OodFlags
from miue.common.errors import ConfigError
from miue.distributions import Categorical
from miue.predictions import ERROR_PROBABILITY, ErrorInputs, ErrorModel, PredictionTable
from miue.predictions.instance_errors import (
    MOST_OF_A_BAG,
    RIDGE,
    InstanceErrorModel,
    PositiveCurve,
    instance_log_odds,
)

SHARE, GAP = 0.4, 3.0


def table(logits: np.ndarray, bag: np.ndarray, labels: np.ndarray) -> PredictionTable:
    count = len(logits)
    return PredictionTable(
        distribution=Categorical(torch.from_numpy(logits).softmax(1)),
        bag_ids=np.array([f"bag {number}" for number in bag], object),
        labels=Labels(labels.astype(np.int64), np.ones(count, bool)),
        is_ood=OodFlags.all_in(count),
        ood_sets=np.full(count, "", object),
    )


def two_normals(sizes: np.ndarray, seed: int, scale: float = 1.0) -> tuple[PredictionTable, PredictionTable]:
    """Every second bag holds a share of instances of N(GAP, 1) among those of N(0, 1); bags are predicted well.

    The logit of an instance is ``scale`` times its number, so that an instance of a positive bag is positive with
    log-odds GAP x − GAP² / 2 + log(SHARE / (1 − SHARE)).
    """
    random = np.random.default_rng(seed)
    of_bags = np.arange(len(sizes)) % 2
    bag = np.repeat(np.arange(len(sizes)), sizes)
    positive = (random.random(len(bag)) < SHARE) & (of_bags[bag] == 1)
    values = scale * (random.normal(size=len(bag)) + GAP * positive)
    logits = random.normal(4.0 * (2 * of_bags - 1), 1.5)
    instances = table(np.stack([np.zeros(len(bag)), values], 1), bag, positive)
    return table(np.stack([np.zeros(len(sizes)), logits], 1), np.arange(len(sizes)), of_bags), instances


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_slope_and_share_of_two_normals_are_found_from_bag_labels_whatever_the_scale_of_the_logits(
    scale: float,
) -> None:
    sizes = np.random.default_rng(0).integers(5, 60, 400)
    bags, instances = two_normals(sizes, seed=1, scale=scale)
    fitted = ErrorModel.fit(bags, ErrorInputs.of(bags, instances), None).of_instances
    assert fitted is not None
    (curve,) = fitted.curves
    assert curve.share == pytest.approx(SHARE, abs=0.04)
    assert curve.slope * scale == pytest.approx(GAP, rel=0.2)
    assert curve.offset == pytest.approx(np.log(SHARE / (1 - SHARE)) - GAP**2 / 2, rel=0.2)


def test_it_is_the_probability_of_an_error_where_that_of_the_network_is_far_off() -> None:
    sizes = np.full(300, 20)
    errors = ErrorModel.fit(*_fitted_on(two_normals(sizes, seed=1, scale=0.1)), None)
    bags, instances = errors.add_to(*two_normals(sizes, seed=2, scale=0.1))
    values, wrong = instances.scores[ERROR_PROBABILITY], instances.predicted != instances.labels.values
    assert values.mean() == pytest.approx(wrong.mean(), abs=0.01)
    for low, high in ((0.0, 0.05), (0.05, 0.5), (0.5, 0.9), (0.9, 1.0)):
        some = (values >= low) & (values <= high)
        assert some.sum() > 100
        assert values[some].mean() == pytest.approx(wrong[some].mean(), abs=0.08)
    unscaled = 1 - instances.probabilities.max(1)
    assert unscaled.max() - unscaled.min() < 0.2 < values.max() - values.min()
    assert ERROR_PROBABILITY in bags.scores


def _fitted_on(tables: tuple[PredictionTable, PredictionTable]) -> tuple[PredictionTable, ErrorInputs]:
    return tables[0], ErrorInputs.of(*tables)


def test_the_curve_has_maximum_likelihood_by_an_independent_search() -> None:
    random = np.random.default_rng(3)
    is_of_class = np.repeat([False, True], 211)
    values = random.normal(size=422) + 2.5 * (is_of_class & (random.random(422) < 0.6))
    weights = random.random(422)
    for kind in (False, True):
        weights[is_of_class == kind] /= weights[is_of_class == kind].sum()
    curve = PositiveCurve.fit(values, is_of_class, weights)
    center, scale = values.mean(), values.std()

    def loss(parameters: np.ndarray) -> float:
        odds = np.exp(parameters[0] * (values - center) / scale + parameters[1])
        ratio = (1 - curve.share) * (1 + odds)
        chosen = np.where(is_of_class, ratio / (1 + ratio), 1 / (1 + ratio))
        return float(-(weights * np.log(chosen)).sum() + RIDGE / 2 * parameters @ parameters)

    found = minimize(
        loss, [1.0, -1.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000}
    )
    assert curve.slope == pytest.approx(found.x[0] / scale, rel=1e-3)
    assert curve.offset == pytest.approx(found.x[1] - found.x[0] * center / scale, rel=1e-3)


def test_of_three_classes_the_probability_of_a_bag_is_shared_and_the_rest_is_negative() -> None:
    curves = (
        PositiveCurve(share=0.5, slope=2.0, offset=-1.0),
        PositiveCurve(share=0.3, slope=0.5, offset=0.3),
    )
    errors = InstanceErrorModel(negative_class=1, curves=curves)
    logits = np.array([[2.0, 0.5, -1.0], [0.0, 1.0, 0.5], [-1.0, 0.0, 3.0], [0.3, 0.2, 0.1], [0.0, 0.0, 0.1]])
    instances = table(logits, np.array([0, 0, 1, 1, 1]), np.zeros(5))
    of_bags = np.array([[0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    values = errors.add_to(instances, of_bags, np.array([2, 3])).scores[ERROR_PROBABILITY]
    for row, bag in enumerate((0, 0, 1, 1, 1)):
        first = of_bags[bag, 0] * expit(2.0 * (logits[row, 0] - logits[row, 1]) - 1.0)
        last = of_bags[bag, 2] * expit(0.5 * (logits[row, 2] - logits[row, 1]) + 0.3)
        shares = [first, 1 - first - last, last]
        assert values[row] == pytest.approx(1 - shares[int(logits[row].argmax())], abs=1e-12)


def test_an_error_is_no_more_than_certain_where_the_probabilities_of_a_bag_sum_to_a_hair_more_than_one() -> None:
    always = PositiveCurve(share=0.5, slope=0.0, offset=50.0)
    errors = InstanceErrorModel(negative_class=0, curves=(always, always))
    of_bags = np.array([[0.0, 0.5, 0.5 + 3e-16]])
    assert of_bags.sum() > 1
    instances = table(np.array([[1.0, 0.0, 0.0]]), np.array([0]), np.zeros(1))
    assert errors.add_to(instances, of_bags, np.array([1])).scores[ERROR_PROBABILITY].tolist() == [1.0]


def test_of_a_large_bag_quantiles_are_kept_and_the_fit_hardly_changes() -> None:
    sizes = np.array([3, 5 * MOST_OF_A_BAG] * 6)
    bags, instances = two_normals(sizes, seed=5)
    log_odds = instance_log_odds(instances, 0, sizes)
    assert [len(each) for each in log_odds[:2]] == [3, MOST_OF_A_BAG]
    whole = np.sort(instances.distribution.probabilities.numpy()[3 : sizes[1] + 3, 1])
    kept = expit(log_odds[1][:, 0])
    assert kept.mean() == pytest.approx(whole.mean(), abs=1e-3)
    assert whole[2] == pytest.approx(kept[0])
    labels = bags.labels.values
    of_all = [np.sort(each, 0) for each in np.split(_log_odds(instances), np.cumsum(sizes)[:-1])]
    thinned, full = (InstanceErrorModel.fit(labels, each, 0).curves[0] for each in (log_odds, of_all))
    assert thinned.slope == pytest.approx(full.slope, rel=0.02)
    assert thinned.share == pytest.approx(full.share, abs=0.01)


def _log_odds(instances: PredictionTable) -> np.ndarray:
    probabilities = instances.probabilities
    return np.log(probabilities[:, 1:] / probabilities[:, :1])


@pytest.mark.parametrize("value", [0.0, 25.0])
def test_instances_that_are_all_alike_have_a_finite_curve(value: float) -> None:
    is_of_class = np.arange(12) % 2 == 0
    curve = PositiveCurve.fit(np.full(12, value), is_of_class, np.full(12, 1 / 6))
    assert np.isfinite([curve.share, curve.slope, curve.offset]).all()
    assert curve.share == pytest.approx(0.02)


def test_without_a_negative_class_bags_alone_are_judged() -> None:
    bags = replace(separable_bags(60, seed=2), splits=("train",) * 30 + ("validation",) * 20 + ("test",) * 10)
    options = {"method.background": None}
    model = miue.train(
        bags, settings={"max_epochs": 1, "options": options, "distances": (), "device": "cpu"}, progress=False
    )
    assert model.method.negative_class is None
    predicted = model.predict(bags.split("test"))
    assert predicted.instances is not None
    assert ERROR_PROBABILITY in predicted.bags.scores
    assert ERROR_PROBABILITY not in predicted.instances.scores
    flags = miue.InstanceGoal("detection", 0.5, "posterior_probability")
    with pytest.raises(ConfigError, match="expected one of"):
        miue.calibrate(predicted, deferral=None, prediction_sets=None, false_alarms=None, instances=flags)


@pytest.mark.parametrize("method", ["mirel", "softmax"])
def test_the_negative_class_of_an_ensemble_is_that_of_its_members(method: str) -> None:
    bags = replace(separable_bags(40, seed=2), splits=("train",) * 20 + ("validation",) * 20)
    options: dict[str, Any] = {"method.size": 2, "method.member": method} | (
        {"method.background": 1} if method == "mirel" else {}
    )
    model = miue.train(
        bags,
        method="deep-ensemble",
        settings={"max_epochs": 1, "options": options, "distances": (), "device": "cpu"},
        progress=False,
    )
    assert model.error_model is not None
    assert model.error_model.of_instances is not None
    assert model.error_model.of_instances.negative_class == model.method.negative_class == int(method == "mirel")


@given(st.floats(0.0, 5.0), st.floats(-5.0, 5.0), st.floats(0.0, 1.0), st.integers(0, 99))
def test_within_a_bag_the_more_positive_is_never_the_less_likely_positive(
    slope: float, offset: float, of_bag: float, seed: int
) -> None:
    values = np.sort(np.random.default_rng(seed).normal(scale=4, size=17))
    instances = table(np.stack([np.zeros(17), values], 1), np.zeros(17, int), np.zeros(17))
    errors = InstanceErrorModel(negative_class=0, curves=(PositiveCurve(share=0.5, slope=slope, offset=offset),))
    wrong = errors.add_to(instances, np.array([[1 - of_bag, of_bag]]), np.array([17])).scores[ERROR_PROBABILITY]
    positive = np.where(instances.predicted == 0, wrong, 1 - wrong)
    assert (np.diff(positive) >= -1e-12).all()
    assert (positive <= of_bag + 1e-12).all()


def test_how_many_bags_of_a_class_and_instances_of_a_bag_there_are_does_not_count() -> None:
    random = np.random.default_rng(4)
    labels = np.arange(60) % 2
    log_odds = [random.normal(2.0 * label, 1, size=(9, 1)) for label in labels]
    more = [number for number in range(60) for _ in range(1 if labels[number] else 4)]
    longer = [np.repeat(each, 1 + number % 3, 0) for number, each in enumerate(log_odds)]
    (wanted,) = InstanceErrorModel.fit(labels, log_odds, 0).curves
    for other in (
        InstanceErrorModel.fit(labels[more], [log_odds[number] for number in more], 0),
        InstanceErrorModel.fit(labels, longer, 0),
    ):
        (curve,) = other.curves
        assert (curve.slope, curve.offset) == pytest.approx((wanted.slope, wanted.offset), rel=1e-3)
