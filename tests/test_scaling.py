"""Scaling: one temperature of probabilities or evidence, as maximum likelihood has it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_promises import predictions_of
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from test_calibration import softmax_problem

from miue.calibration import calibrate
from miue.calibration.scaling import COLDEST, HOTTEST, fit_scaling
from miue.common.errors import DataError
from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution


@pytest.mark.filterwarnings("ignore:Setting penalty=None will ignore")  # scikit-learn 1.8, of C=inf
def test_a_planted_temperature_is_found_and_is_that_of_logistic_regression() -> None:
    random = np.random.default_rng(11)
    logits = random.normal(size=(20_000, 2)) * 2
    true = torch.from_numpy(logits).softmax(-1).numpy()
    labels = (random.random(20_000) < true[:, 1]).astype(np.int64)
    fitted = fit_scaling(Categorical.of_logits(torch.from_numpy(logits * 2.5)), labels)
    assert fitted.temperature == pytest.approx(2.5, rel=0.05)
    difference = (logits * 2.5)[:, 1:] - (logits * 2.5)[:, :1]
    oracle = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(difference, labels)
    assert 1 / fitted.temperature == pytest.approx(float(oracle.coef_[0, 0]), rel=1e-5)
    assert fitted.nll_after < fitted.nll_before


def test_the_temperature_of_many_classes_is_the_minimum_that_scipy_finds() -> None:
    p, y = softmax_problem(500, classes=5, seed=12)

    def loss(log_temperature: float) -> float:
        scaled = p ** np.exp(-log_temperature)
        return float(-np.log((scaled / scaled.sum(1, keepdims=True))[np.arange(len(y)), y]).mean())

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-10})
    fitted = fit_scaling(Categorical(torch.from_numpy(p)), y)
    assert np.log(fitted.temperature) == pytest.approx(best.x, abs=1e-6)
    assert fitted.nll_before == pytest.approx(loss(0.0), abs=1e-12)
    assert fitted.nll_after == pytest.approx(best.fun, abs=1e-12)
    scaled = fitted.apply(Categorical(torch.from_numpy(p))).probabilities.numpy()
    assert -np.log(scaled[np.arange(len(y)), y]).mean() == pytest.approx(best.fun, abs=1e-12)


def test_a_planted_evidence_temperature_is_found_and_the_order_of_classes_stays() -> None:
    random = np.random.default_rng(13)
    log_evidence = torch.from_numpy(random.normal(size=(20_000, 3)) * 2)
    true = Dirichlet(log_evidence.exp() + 1).probabilities.numpy()
    labels = (true.cumsum(1) < random.random((20_000, 1))).sum(1).clip(max=2).astype(np.int64)
    given = Dirichlet((log_evidence / 2).exp() + 1)
    fitted = fit_scaling(given, labels)
    assert fitted.kind == "evidence"
    assert fitted.temperature == pytest.approx(0.5, rel=0.05)
    assert fitted.nll_after < fitted.nll_before - 0.01
    scaled = fitted.apply(given)
    assert isinstance(scaled, Dirichlet)
    assert torch.equal(scaled.alpha.argsort(1), given.alpha.argsort(1))
    of_label = scaled.probabilities[np.arange(len(labels)), labels]
    assert -of_label.log().mean().item() == pytest.approx(fitted.nll_after, abs=1e-12)
    whole = scaled.expected_entropy() + scaled.mutual_information()
    assert torch.allclose(whole, scaled.entropy(), atol=1e-9)


def test_bags_that_are_all_predicted_right_give_a_finite_temperature() -> None:
    p = np.array([[0.8, 0.2], [0.3, 0.7]] * 25)
    fitted = fit_scaling(Categorical(torch.from_numpy(p)), np.array([0, 1] * 25))
    scaled = fitted.apply(Categorical(torch.from_numpy(p))).probabilities.numpy()
    assert "smoothed" in fitted.note
    assert scaled.max() < 0.999
    assert scaled.max(1).mean() == pytest.approx(26 / 27, abs=0.02)


def test_rounded_probabilities_that_are_all_right_have_no_temperature_and_the_other_rules_are_fitted() -> None:
    p = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    labels = np.array([0, 1, 0, 1, 0])
    with pytest.raises(DataError, match="every bag is predicted right.*leave the scaling out"):
        fit_scaling(Categorical(torch.from_numpy(p)), labels)
    held = predictions_of(Categorical(torch.from_numpy(np.repeat(p, 20, 0))), np.repeat(labels, 20))
    fitted = calibrate(held, false_alarms=None)
    assert fitted.scaling is None
    assert (
        fitted.scaling_left_out
        == "every bag is predicted right, 40 of them with a probability of 0 for another class"
    )
    assert fitted.prediction_sets is not None
    assert fitted.deferral is not None


def test_a_dirichlet_without_evidence_is_not_scaled_and_does_not_end_a_calibration_or_a_decision() -> None:
    alpha = torch.tensor([[3.0, 1.5], [1.2, 4.0]]).double().repeat(20, 1)
    labels = np.array([0, 1] * 20)
    low = alpha.clone()
    low[0] = torch.tensor([0.1, 19.0])
    left_out = calibrate(predictions_of(Dirichlet(low), labels), deferral=None, false_alarms=None)
    assert left_out.scaling is None
    assert "alpha is below 1 for some bags" in left_out.scaling_left_out
    fitted = calibrate(predictions_of(Dirichlet(alpha), labels), deferral=None, false_alarms=None)
    assert fitted.scaling is not None
    scaled = fitted.scaling.apply(Dirichlet(low))
    assert isinstance(scaled, Dirichlet)
    assert scaled.alpha[0, 0].item() == 1.0
    assert torch.equal(scaled.alpha[1:], fitted.scaling.apply(Dirichlet(alpha)).alpha[1:])  # type: ignore[attr-defined]


def test_scaling_of_draws_gives_a_point_estimate_and_of_another_kind_is_refused() -> None:
    p, y = softmax_problem(100, classes=2, seed=14)
    mean = torch.from_numpy(p)
    draws = Draws(mean, Categorical(mean).entropy() / 2)
    fitted = fit_scaling(draws, y)
    assert torch.equal(fitted.apply(draws).probabilities, fitted.apply(Categorical(mean)).probabilities)
    with pytest.raises(DataError, match="decide on predictions of the model that was calibrated"):
        fitted.apply(Dirichlet(torch.ones(2, 2)))


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (Categorical(torch.tensor([[0.5, 0.5], [1.0, 0.0]])), "probability 0 for 1 label"),
        (Dirichlet(torch.tensor([[2.0, 2.0], [0.5, 2.0]])), "alpha is below 1"),
    ],
)
def test_predictions_that_cannot_be_scaled_are_named(distribution: PredictiveDistribution, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit_scaling(distribution, np.array([0, 1]))


def test_a_temperature_at_the_end_of_its_range_is_said_to_be_there() -> None:
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1]], dtype=torch.float64)
    scaling = fit_scaling(Categorical(p), np.array([0, 1]))  # best where both classes are equally probable
    assert scaling.temperature == pytest.approx(HOTTEST)
    assert scaling.note == "the best temperature is at the end of its range"


def test_the_coldest_temperature_is_said_to_be_at_the_end_of_the_range_too() -> None:
    p = torch.tensor([[0.501, 0.499]], dtype=torch.float64).repeat(10_000, 1)
    scaling = fit_scaling(Categorical(p), (np.arange(10_000) == 0).astype(np.int64))  # right but for one of them
    assert scaling.temperature == pytest.approx(COLDEST)
    assert scaling.note == "the best temperature is at the end of its range"


def test_a_class_without_evidence_can_be_scaled() -> None:
    """Alpha is 1 and log evidence −∞: the probability of the class depends on the other evidence alone."""
    alpha = torch.tensor([[1.0, 5.0], [5.0, 1.0], [1.0, 5.0]], dtype=torch.float64)
    scaling = fit_scaling(Dirichlet(alpha), np.array([1, 0, 0]))
    scaled = scaling.apply(Dirichlet(alpha))
    assert isinstance(scaled, Dirichlet)
    assert scaled.alpha[0].tolist() == pytest.approx([1.0, 4 ** (1 / scaling.temperature) + 1])


def test_few_bags_give_no_temperature_that_new_wrong_bags_pay_for() -> None:
    def drawn(random: np.random.Generator, count: int) -> tuple[Dirichlet, np.ndarray]:
        labels = random.integers(0, 2, count)
        logits = random.normal(size=(count, 2)) + 2 * np.eye(2)[labels]
        return Dirichlet(torch.from_numpy(np.exp(np.clip(6 * logits, -10, 10)) + 1)), labels

    def nll(distribution: PredictiveDistribution, labels: np.ndarray) -> float:
        return float(-distribution.probabilities[torch.arange(len(labels)), torch.from_numpy(labels)].log().mean())

    before, after, sharpened = [], [], 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        few, labels = drawn(random, 20)
        new, their_labels = drawn(random, 2000)
        scaling = fit_scaling(few, labels)
        before.append(nll(new, their_labels))
        after.append(nll(scaling.apply(new), their_labels))
        sharpened += scaling.temperature < 1
        if scaling.temperature < 1 and not scaling.note:  # the minimum of the mean NLL and of the pull towards 1
            values = (few.alpha - 1).log()

            def loss(log_t: float, values: torch.Tensor = values, labels: np.ndarray = labels) -> float:
                scaled = Dirichlet((values / np.exp(log_t)).exp() + 1)
                return nll(scaled, labels) + 2 * log_t**2 / len(labels)

            found = minimize_scalar(loss, bounds=(np.log(scaling.temperature) - 0.2, 0), method="bounded")
            assert scaling.temperature == pytest.approx(float(np.exp(found.x)), rel=1e-3)
    assert sharpened > 5
    assert np.mean(after) < np.mean(before)
    assert max(after) < max(before) + 0.1
