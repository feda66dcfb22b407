"""Closed forms against mpmath and quadrature, from no evidence to 1e5."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from miue.common.errors import DataError
from miue.distributions import Categorical, Dirichlet
from miue.distributions.dirichlet import differential_entropy, divergence_from_uniform
from miue.distributions.measures import MEASURES, compute_measures
from miue.distributions.special import (
    digamma_gap,
    digamma_remainder,
    inverse_trigamma_remainder,
    lgamma_remainder,
    trigamma,
    trigamma_excess,
)

mpmath.mp.dps = 50

ALPHAS = [
    [1 + 1e-6, 1 + 1e-6],
    [1 + 1e-6, 1e5],
    [1e5, 1e5],
    [3.0, 7.5],
    [15.99, 16.01],
    [2.0, 17.0, 1e5],
    [1e4, 1.5, 3.0, 1e4, 1 + 1e-6],
]


def exact(alpha: list[float]) -> dict[str, mpmath.mpf]:
    """Every measure by its textbook formula in 50 digits."""
    values = [mpmath.mpf(a) for a in alpha]
    total, count = mpmath.fsum(values), len(values)
    p = [a / total for a in values]
    entropy = -mpmath.fsum(q * mpmath.log(q) for q in p)
    gaps = [mpmath.digamma(total + 1) - mpmath.digamma(a + 1) for a in values]
    expected_entropy = mpmath.fsum(q * gap for q, gap in zip(p, gaps, strict=True))
    log_beta = mpmath.fsum(mpmath.loggamma(a) for a in values) - mpmath.loggamma(total)
    spread = (total - count) * mpmath.digamma(total)
    differential = log_beta + spread - mpmath.fsum((a - 1) * mpmath.digamma(a) for a in values)
    return {
        "least_confidence": 1 - max(p),
        "entropy": entropy,
        "expected_entropy": expected_entropy,
        "mutual_information": entropy - expected_entropy,
        "differential_entropy": differential,
        "inverse_max_alpha": 1 / max(values),
        "vacuity": count / total,
    }


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_equals_its_formula_in_fifty_digits(measure: str, alpha: list[float]) -> None:
    value = MEASURES[measure].of(Dirichlet(torch.tensor([alpha], dtype=torch.float64)))
    assert abs(mpmath.mpf(value.item()) - exact(alpha)[measure]) < 1e-10


@given(st.lists(st.floats(1 + 1e-6, 1e5), min_size=2, max_size=6))
def test_any_alpha_gives_exact_measures(alpha: list[float]) -> None:
    measures = compute_measures(Dirichlet(torch.tensor([alpha], dtype=torch.float64)))
    for name, value in exact(alpha).items():
        assert abs(mpmath.mpf(measures[name].item()) - value) < 1e-10


@pytest.mark.parametrize("alpha", [[1.3, 2.7], [4.0, 1.1], [30.0, 20.0]])
def test_two_class_measures_equal_integrals_over_the_beta_density(alpha: list[float]) -> None:
    prediction = Dirichlet(torch.tensor([alpha], dtype=torch.float64))
    a, b = map(mpmath.mpf, alpha)

    def density(p: mpmath.mpf) -> mpmath.mpf:
        return p ** (a - 1) * (1 - p) ** (b - 1) / mpmath.beta(a, b)

    def binary_entropy(p: mpmath.mpf) -> mpmath.mpf:
        return -(p * mpmath.log(p) + (1 - p) * mpmath.log(1 - p)) * density(p)

    with mpmath.workdps(25):
        expected = mpmath.quad(binary_entropy, [0, 0.5, 1])
        spread = mpmath.quad(lambda p: -mpmath.log(density(p)) * density(p), [0, 0.5, 1])
    assert prediction.expected_entropy().item() == pytest.approx(float(expected), abs=1e-10)
    assert prediction.differential_entropy().item() == pytest.approx(float(spread), abs=1e-10)
    assert float(stats.beta(*alpha).entropy()) == pytest.approx(float(spread), abs=1e-10)


def test_three_class_differential_entropy_equals_scipy() -> None:
    alpha = np.array([2.0, 3.5, 9.0])
    value = differential_entropy(torch.from_numpy(alpha)[None]).item()
    assert value == pytest.approx(float(stats.dirichlet(alpha).entropy()), abs=1e-10)


def test_total_uncertainty_is_data_plus_model_uncertainty() -> None:
    prediction = Dirichlet(1 + 50 * torch.rand(97, 5, dtype=torch.float64))
    parts = prediction.expected_entropy() + prediction.mutual_information()
    torch.testing.assert_close(parts, prediction.entropy(), atol=1e-12, rtol=0)


def test_mutual_information_keeps_its_digits_where_the_difference_loses_them() -> None:
    alpha = torch.tensor([[1e12, 1e12]], dtype=torch.float64)
    prediction = Dirichlet(alpha)
    truth = float(exact([1e12, 1e12])["mutual_information"])
    naive = (prediction.entropy() - prediction.expected_entropy()).item()
    assert prediction.mutual_information().item() == pytest.approx(truth, rel=1e-12, abs=0)
    assert naive != pytest.approx(truth, rel=1e-3, abs=0)


def test_differential_entropy_keeps_its_digits_in_float32_where_the_formula_loses_them() -> None:
    alpha = torch.tensor([[2e4, 2e4]])
    truth = float(exact([2e4, 2e4])["differential_entropy"])
    total = alpha.sum(-1)
    naive = alpha.lgamma().sum(-1) - total.lgamma() + (total - 2) * total.digamma()
    naive = naive - ((alpha - 1) * alpha.digamma()).sum(-1)
    assert differential_entropy(alpha).item() == pytest.approx(truth, rel=1e-5)
    assert naive.item() != pytest.approx(truth, rel=1e-3, abs=0)


def test_mutual_information_is_never_negative() -> None:
    alpha = 1 + torch.logspace(-6, 20, 997, dtype=torch.float64)[:, None] * torch.rand(997, 3, dtype=torch.float64)
    assert (Dirichlet(alpha).mutual_information() >= 0).all()


@pytest.mark.parametrize("x", [1e-2, 0.5, 1.0, 7.3, 15.999, 16.0, 16.001, 1e3, 1e8])
def test_remainders_of_special_functions_are_exact(x: float) -> None:
    at, exact_x = torch.tensor([x], dtype=torch.float64), mpmath.mpf(x)
    half_log = mpmath.log(2 * mpmath.pi) / 2
    truths = {
        lgamma_remainder: mpmath.loggamma(exact_x) - ((exact_x - 0.5) * mpmath.log(exact_x) - exact_x + half_log),
        digamma_remainder: mpmath.log(exact_x) - 1 / (2 * exact_x) - mpmath.digamma(exact_x),
        inverse_trigamma_remainder: 1 / mpmath.psi(1, exact_x) - exact_x + mpmath.mpf(1) / 2,
        trigamma: mpmath.psi(1, exact_x),
        trigamma_excess: exact_x * mpmath.psi(1, exact_x) - 1,
    }
    for function, truth in truths.items():
        error = abs(mpmath.mpf(function(at).item()) - truth)
        assert error / max(1, abs(truth)) < 1e-13, function.__name__
        if x >= 16:  # where the series takes over, what is left is small, and still right to its last digits
            assert error / abs(truth) < 1e-13, function.__name__


def test_remainders_have_finite_gradients_on_both_sides_of_the_series() -> None:
    for function in (
        lgamma_remainder,
        digamma_remainder,
        inverse_trigamma_remainder,
        trigamma_excess,
        digamma_gap,
    ):
        x = torch.tensor([1.0, 15.0, 17.0, 1e6], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(function, x)
        far = torch.tensor(
            [1e-60, 1e60], dtype=torch.float64, requires_grad=True
        )  # where one of the two overflows
        assert torch.autograd.grad(function(far).sum(), far)[0].isfinite().all(), function.__name__


def test_the_gradient_of_differential_entropy_is_the_derivative() -> None:
    alpha = (1 + 30 * torch.rand(5, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(differential_entropy, alpha)


def test_the_gradient_of_differential_entropy_keeps_its_digits_where_the_formula_loses_them() -> None:
    rows = [[4.85e8, 1.0], [2.0, 6e7], [3e8, 4e8], [17.0, 2.5], [9.0, 8.0], [1.0, 1e4]]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-13)):
        alpha = torch.tensor(rows, dtype=dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(differential_entropy(alpha).sum(), alpha)
        for row, found in zip(alpha.tolist(), slope.tolist(), strict=True):
            exact_alpha = [mpmath.mpf(a) for a in row]
            total = mpmath.fsum(exact_alpha)
            for a, value in zip(exact_alpha, found, strict=True):
                truth = (total - 2) * mpmath.psi(1, total) - (a - 1) * mpmath.psi(1, a)
                assert abs(value - truth) * a < tolerance * max(1, abs(truth) * a), (dtype, row)
    alpha = torch.tensor([6e7, 2.0])
    total = alpha.sum()
    naive = (total - 2) * trigamma(total) - (alpha[0] - 1) * trigamma(alpha[0])
    truth = mpmath.mpf(6e7) * mpmath.psi(1, mpmath.mpf(6e7) + 2) - (mpmath.mpf(6e7) - 1) * mpmath.psi(1, 6e7)
    assert abs(naive.item() - float(truth)) > 0.5 * abs(float(truth))


def test_divergence_from_uniform_is_zero_only_without_evidence() -> None:
    values = divergence_from_uniform(torch.tensor([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0]], dtype=torch.float64))
    assert values[0].item() == pytest.approx(0, abs=1e-14)
    assert values[1].item() > 0.05


def test_a_categorical_has_entropy_but_no_model_uncertainty() -> None:
    prediction = Categorical(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    assert prediction.entropy().tolist() == [pytest.approx(np.log(2)), 0.0]
    assert torch.equal(prediction.expected_entropy(), prediction.entropy())
    assert prediction.mutual_information().tolist() == [0.0, 0.0]
    assert {MEASURES[name].kind for name in compute_measures(prediction)} == {"total"}


def test_measures_rise_with_uncertainty() -> None:
    sure_then_unsure = Dirichlet(torch.tensor([[100.0, 1.0], [1.5, 1.2]]))
    for name, values in compute_measures(sure_then_unsure).items():
        assert values[0] < values[1], name


@pytest.mark.parametrize("alpha", [[[0.0, 1.0]], [[float("nan"), 1.0]], [[-1.0, 2.0]], [[1.0, torch.inf]]])
def test_a_concentration_that_is_not_above_zero_and_finite_is_refused(alpha: list[list[float]]) -> None:
    with pytest.raises(DataError, match="row 0 of alpha"):
        Dirichlet(torch.tensor(alpha))


def test_probabilities_that_do_not_sum_to_one_are_refused() -> None:
    for wrong in ([0.9, 0.9], [0.5, 0.495], [0.5, 0.505], [1.2, -0.2], [float("nan"), 1.0]):
        with pytest.raises(DataError, match="row 1 of the class probabilities"):
            Categorical(torch.tensor([[0.5, 0.5], wrong]))


@pytest.mark.parametrize(
    "alpha", [[1e-8, 1e-8], [1e-16, 1e-16], [1e-30, 3e-30], [1e-20, 1.0], [1e-12, 15.9], [1e-8, 1e8]]
)
def test_mutual_information_keeps_its_digits_where_alpha_is_far_below_one(alpha: list[float]) -> None:
    value = Dirichlet(torch.tensor([alpha], dtype=torch.float64)).mutual_information().item()
    assert abs(mpmath.mpf(value) - exact(alpha)["mutual_information"]) < 1e-14


def test_the_entropy_of_a_certain_prediction_is_zero_and_not_negative_zero() -> None:
    certain = Categorical(torch.eye(3, dtype=torch.float64)).entropy()
    assert certain.tolist() == [0, 0, 0] and not torch.signbit(certain).any()


@pytest.mark.parametrize("measure", ["entropy", "expected_entropy", "mutual_information", "differential_entropy"])
def test_predictions_that_differ_in_the_names_of_classes_alone_are_ties(measure: str) -> None:
    random = np.random.default_rng(0)
    votes = random.multinomial(6, [0.61, 0.13, 0.13, 0.13], size=300)
    votes = np.concatenate([votes, np.apply_along_axis(random.permutation, 1, votes)])
    shares, counts = Categorical(torch.tensor(votes / 6)), Dirichlet(torch.tensor(votes / 2.0 + 1))
    for distribution in (shares, counts) if measure == "entropy" else (counts,):
        values = MEASURES[measure].of(distribution)
        assert torch.equal(values[:300], values[300:])
        naive = -torch.xlogy(shares.probabilities, shares.probabilities).sum(-1)
        assert not torch.equal(naive[:300], naive[300:])


@pytest.mark.parametrize("measure", MEASURES)
def test_alpha_in_another_order_of_classes_is_a_tie_although_sums_round(measure: str) -> None:
    random = np.random.default_rng(0)
    alpha = 1 + random.integers(0, 50, (300, 5)) / 10
    shuffled = np.apply_along_axis(random.permutation, 1, alpha)
    values = MEASURES[measure].of(Dirichlet(torch.tensor(np.concatenate([alpha, shuffled]))))
    assert torch.equal(values[:300], values[300:])
    assert (torch.tensor(alpha).sum(-1) != torch.tensor(shuffled).sum(-1)).any()
