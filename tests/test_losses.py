"""Evidential losses against mpmath and autograd, and the strategies against the paper's proposition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import one_hot

from miue.bags import Segments
from miue.common.errors import ConfigError
from miue.distributions.special import trigamma
from miue.evidence import ACTIVATIONS, residual_log_evidence, to_alpha
from miue.evidence.losses import (
    EvidentialLoss,
    kl_penalty,
    log_fisher_determinant,
    red_loss,
    squared_error,
)
from miue.evidence.weak_supervision import (
    STRATEGIES,
    Supervision,
    every_instance,
    instance_weights,
    supervise,
    weighted_evidence,
    weighted_loss,
)

mpmath.mp.dps = 40

LOG_EVIDENCE = [[0.3, -1.2, 2.0], [-9.0, 9.5, 0.0], [5.0, 4.9, -3.0], [-10.0, -10.0, -10.0]]
TARGET = torch.tensor([0, 1, 2, 0])


def mp_alpha(row: list[float]) -> list[mpmath.mpf]:
    return [mpmath.exp(mpmath.mpf(s)) + 1 for s in row]


def mp_squared_error(row: list[float], target: int, weighted: bool) -> mpmath.mpf:
    alpha = mp_alpha(row)
    total = mpmath.fsum(alpha)
    result = mpmath.mpf(0)
    for i, a in enumerate(alpha):
        error = ((i == target) - a / total) ** 2 + a * (total - a) / (total**2 * (total + 1))
        result += error * (mpmath.psi(1, a) if weighted else 1)
    return result


def mp_log_fisher(row: list[float]) -> mpmath.mpf:
    alpha = mp_alpha(row)
    total = mpmath.fsum(alpha)
    ratio = mpmath.fsum(mpmath.psi(1, total) / mpmath.psi(1, a) for a in alpha)
    return mpmath.fsum(mpmath.log(mpmath.psi(1, a)) for a in alpha) + mpmath.log(1 - ratio)


def mp_divergence(row: list[float], target: int) -> mpmath.mpf:
    alpha = [mpmath.mpf(1) if i == target else a for i, a in enumerate(mp_alpha(row))]
    total, count = mpmath.fsum(alpha), len(alpha)
    gaps = mpmath.fsum((a - 1) * (mpmath.digamma(a) - mpmath.digamma(total)) for a in alpha)
    return mpmath.loggamma(total) - mpmath.loggamma(count) - mpmath.fsum(map(mpmath.loggamma, alpha)) + gaps


def mp_red(row: list[float], target: int) -> mpmath.mpf:
    alpha = mp_alpha(row)
    return -len(row) / mpmath.fsum(alpha) * mpmath.log(alpha[target] - 1)


def test_each_term_equals_its_formula_in_forty_digits() -> None:
    log_evidence = torch.tensor(LOG_EVIDENCE, dtype=torch.float64)
    alpha = to_alpha(log_evidence)
    ours = {
        "edl": squared_error(alpha, TARGET),
        "fisher": squared_error(alpha, TARGET, trigamma(alpha)),
        "determinant": log_fisher_determinant(alpha),
        "divergence": kl_penalty(alpha, TARGET),
        "red": red_loss(log_evidence, TARGET),
    }
    for row, (values, target) in enumerate(zip(LOG_EVIDENCE, TARGET.tolist(), strict=True)):
        truths = {
            "edl": mp_squared_error(values, target, weighted=False),
            "fisher": mp_squared_error(values, target, weighted=True),
            "determinant": mp_log_fisher(values),
            "divergence": mp_divergence(values, target),
            "red": mp_red(values, target),
        }
        for name, truth in truths.items():
            assert ours[name][row].item() == pytest.approx(float(truth), rel=1e-11, abs=1e-12), name


def test_the_complete_loss_is_the_sum_of_its_terms_with_annealed_divergence() -> None:
    loss = EvidentialLoss(fisher_coefficient=0.4)
    log_evidence = torch.tensor(LOG_EVIDENCE, dtype=torch.float64)
    at_once = EvidentialLoss(fisher_coefficient=0.4, annealing_epochs=1)
    assert torch.equal(at_once(log_evidence, TARGET, 1), loss(log_evidence, TARGET, 10))
    for epoch, rising in ((1, 0.1), (4, 0.4), (10, 1.0), (50, 1.0)):
        expected = [
            mp_squared_error(row, target, weighted=True)
            - mpmath.mpf(0.4) * mp_log_fisher(row)
            + rising * mp_divergence(row, target)
            + mp_red(row, target)
            for row, target in zip(LOG_EVIDENCE, TARGET.tolist(), strict=True)
        ]
        result = loss(log_evidence, TARGET, epoch)
        torch.testing.assert_close(result, torch.tensor([float(e) for e in expected], dtype=torch.float64))


def test_two_classes_equal_the_binary_formulas() -> None:
    negative, positive = 1.7, 6.2
    log_evidence = torch.tensor([[negative, positive]], dtype=torch.float64).log()
    a, b = negative + 1, positive + 1
    p, total = b / (a + b), a + b
    variance = p * (1 - p) / (total + 1)
    binary = (p - 1) ** 2 * 2 + 2 * variance
    alpha = to_alpha(log_evidence)
    assert squared_error(alpha, torch.tensor([1])).item() == pytest.approx(binary, rel=1e-12)
    # KL(Beta(a, 1) ‖ uniform) = log a − (a − 1) / a
    beta = torch.log(torch.tensor(a, dtype=torch.float64)).item() - (a - 1) / a
    assert kl_penalty(alpha, torch.tensor([1])).item() == pytest.approx(beta, rel=1e-12)


@pytest.mark.parametrize(
    "loss",
    [EvidentialLoss(), EvidentialLoss(fisher_coefficient=0.05), EvidentialLoss(fisher_weighted=False, red=False)],
    ids=["i-edl with red", "with log-determinant", "plain edl"],
)
def test_the_gradient_of_the_loss_is_its_derivative(loss: EvidentialLoss) -> None:
    log_evidence = torch.randn(7, 3, dtype=torch.float64, requires_grad=True) * 3
    target = torch.randint(3, (7,))
    assert torch.autograd.gradcheck(lambda s: loss(s, target, 3), log_evidence)


def test_gradients_are_finite_over_the_whole_range_of_the_residual() -> None:
    loss = EvidentialLoss(fisher_coefficient=0.05)
    for dtype in (torch.float32, torch.float64):
        grid = torch.cartesian_prod(*[torch.linspace(-20, 20, 41, dtype=dtype)] * 2).requires_grad_()
        for target in (0, 1):
            value = loss(grid, torch.full((len(grid),), target), 10)
            (gradient,) = torch.autograd.grad(value.sum(), grid)
            assert value.isfinite().all()
            assert gradient.isfinite().all()


def test_gradients_are_as_exact_in_float32_over_the_whole_range_of_the_residual() -> None:
    loss = EvidentialLoss(fisher_coefficient=0.05)
    grid = torch.cartesian_prod(*[torch.linspace(-20, 20, 13)] * 3)
    for target in (0, 2):
        gradients = []
        for dtype in (torch.float32, torch.float64):
            log_evidence = grid.to(dtype).requires_grad_()
            value = loss(log_evidence, torch.full((len(grid),), target), 10)
            gradients.append(torch.autograd.grad(value.sum(), log_evidence)[0].double())
        torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


def test_the_log_determinant_survives_float32_where_the_formula_does_not() -> None:
    alpha = torch.tensor([[4e8, 3e8]])  # what a residual of 1 makes of the strongest evidence
    ratio = (trigamma(alpha.sum(-1, keepdim=True)) / trigamma(alpha)).sum(-1)
    naive = trigamma(alpha).log().sum(-1) + (1 - ratio).log()
    truth = float(
        mpmath.fsum(mpmath.log(mpmath.psi(1, a)) for a in (4e8, 3e8))
        + mpmath.log(1 - mpmath.fsum(mpmath.psi(1, 7e8) / mpmath.psi(1, a) for a in (4e8, 3e8)))
    )
    assert log_fisher_determinant(alpha).item() == pytest.approx(truth, rel=1e-5)
    assert not abs(naive.item() - truth) < 0.1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_gives_finite_log_evidence_that_grows(name: str) -> None:
    logits = torch.linspace(-300, 300, 601, dtype=torch.float64, requires_grad=True)
    log_evidence = ACTIVATIONS[name](logits)
    (gradient,) = torch.autograd.grad(log_evidence.sum(), logits)
    assert log_evidence.isfinite().all()
    assert gradient.isfinite().all()
    assert (log_evidence.diff() >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradients_of_log_evidence_are_exact_where_evidence_underflows_or_exp_overflows(
    dtype: torch.dtype,
) -> None:
    logits = torch.tensor([-1000.0, -200.0, -16.0, -15.0, -1.0, 0.5, 16.0, 1000.0], dtype=dtype)
    exact = [mpmath.mpf(logit) for logit in logits.tolist()]
    slopes = {
        "softplus": [1 / ((1 + mpmath.exp(-s)) * mpmath.log1p(mpmath.exp(s))) for s in exact],
        "elu": [1 / (1 + max(s, 0)) for s in exact],
    }
    for name, slope in slopes.items():
        s = logits.clone().requires_grad_()
        [gradient] = torch.autograd.grad(ACTIVATIONS[name](s).sum(), s)
        torch.testing.assert_close(gradient, torch.tensor([float(value) for value in slope], dtype=dtype))


def test_exponential_evidence_is_clamped_at_ten() -> None:
    logits = torch.tensor([-300.0, -10.0, 3.0, 10.0, 11.0])
    assert ACTIVATIONS["exp"](logits).tolist() == [-10, -10, 3, 10, 10]


def test_softplus_evidence_is_the_logarithm_of_softplus() -> None:
    logits = torch.tensor([-40.0, -14.9, -15.1, 0.0, 3.0, 50.0], dtype=torch.float64)
    truth = [float(mpmath.log(mpmath.log1p(mpmath.exp(s)))) for s in logits.tolist()]
    exact = torch.tensor(truth, dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS["softplus"](logits), exact, rtol=1e-13, atol=1e-13)


def test_the_residual_scales_log_evidence() -> None:
    evidence = torch.tensor([[4.0, 0.5]], dtype=torch.float64)
    residual = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    result = residual_log_evidence(evidence.log(), residual).exp()
    torch.testing.assert_close(result, torch.tensor([[8.0, 1.0]], dtype=torch.float64))  # e_T ** (1 + r)


def bag_losses(items: Supervision, loss: Callable[[Tensor, Tensor], Tensor], segments: Segments) -> Tensor:
    """Σ weight · loss of the items of each bag."""
    weighted = items.weight * loss(items.log_evidence, items.target)
    return torch.stack([weighted[items.bag == bag].sum() for bag in range(segments.num_bags)])


def test_aggregated_evidence_is_the_weighted_sum_of_evidence() -> None:
    segments, target = Segments.of(2, 3), torch.tensor([1, 1])
    log_evidence = torch.randn(5, 2, dtype=torch.float64)
    weights = torch.tensor([0.25, 0.75, 0.2, 0.3, 0.5], dtype=torch.float64)
    items = weighted_evidence(log_evidence, weights, target, segments)
    expected = [
        (w[:, None] * e).sum(0)
        for w, e in zip(weights.split([2, 3]), log_evidence.exp().split([2, 3]), strict=True)
    ]
    torch.testing.assert_close(items.log_evidence.exp(), torch.stack(expected))


@pytest.mark.long
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 10_000))
def test_weighted_evidence_is_below_weighted_loss_below_every_instance(sizes: list[int], seed: int) -> None:
    """Prop. prop:insloss: a loss that is convex in alpha, and weights that fall as the loss rises."""
    random = torch.Generator().manual_seed(seed)
    segments, target = Segments.of(*sizes), torch.ones(len(sizes), dtype=torch.int64)
    log_evidence = torch.randn(sum(sizes), 2, generator=random, dtype=torch.float64) * 2

    def convex(log_evidence: Tensor, target: Tensor) -> Tensor:
        return -to_alpha(log_evidence).gather(1, target[:, None]).squeeze(1).log()

    merit = to_alpha(log_evidence)[
        :, 1
    ]  # the loss falls with it, so weights that rise with it satisfy the condition
    weights = torch.cat([part / part.sum() for part in merit.split(sizes)])
    plus, two, one = (
        bag_losses(strategy(log_evidence, weights, target, segments), convex, segments)
        for strategy in (weighted_evidence, weighted_loss, every_instance)
    )
    assert (plus <= two + 1e-12).all()
    assert (two <= one + 1e-12).all()


def test_weights_are_the_expected_probability_of_the_bags_own_class() -> None:
    log_evidence = torch.tensor([[0.0, 0.0, 2.0], [1.0, 0.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64)
    weights = instance_weights(log_evidence.requires_grad_(), torch.tensor([2, 1]), Segments.of(2, 1))
    alpha = to_alpha(log_evidence.detach())
    p = alpha[:2, 2] / alpha[:2].sum(1)
    torch.testing.assert_close(weights, torch.cat([p / p.sum(), torch.ones(1, dtype=torch.float64)]))
    assert not weights.requires_grad


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_background_bags_teach_each_instance_whatever_the_strategy(strategy: Callable[..., Supervision]) -> None:
    segments, target = Segments.of(2, 3, 1), torch.tensor([1, 0, 2])
    log_evidence = torch.randn(6, 3, dtype=torch.float64)
    weights = instance_weights(log_evidence, target, segments)
    items = supervise(log_evidence, weights, target, segments, strategy, background=0)
    taken = items.bag == 1
    assert (items.weight > 0).all()  # no bag has items of both kinds
    assert items.target[taken].tolist() == [0, 0, 0]
    torch.testing.assert_close(items.weight[taken], torch.full((3,), 1 / 3, dtype=torch.float64))
    torch.testing.assert_close(items.log_evidence[taken], log_evidence[2:5])
    for bag in range(3):
        assert items.weight[items.bag == bag].sum().item() == pytest.approx(1)
    everything = supervise(log_evidence, weights, target, segments, strategy, background=None)
    loss = partial(EvidentialLoss(), epoch=1)
    expected = bag_losses(strategy(log_evidence, weights, target, segments), loss, segments)
    torch.testing.assert_close(bag_losses(everything, loss, segments), expected)


def test_the_background_class_is_the_one_that_is_named() -> None:
    segments, target = Segments.of(2, 3), torch.tensor([0, 1])
    log_evidence = torch.randn(5, 2, dtype=torch.float64)
    weights = instance_weights(log_evidence, target, segments)
    items = supervise(log_evidence, weights, target, segments, weighted_evidence, background=1)
    assert items.bag.bincount().tolist() == [1, 3]  # the sum of one bag, each instance of the other
    torch.testing.assert_close(items.log_evidence[items.bag == 1], log_evidence[2:])


@pytest.mark.parametrize("options", [{"annealing_epochs": 0}, {"fisher_coefficient": -0.1}])
def test_settings_that_no_loss_has_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        EvidentialLoss(**options)


def test_targets_are_one_hot_per_class() -> None:
    alpha = torch.full((3, 3), 2.0, dtype=torch.float64)
    by_class = squared_error(alpha, torch.arange(3))
    expected = ((one_hot(torch.arange(3)) - 1 / 3) ** 2 + (1 / 3) * (2 / 3) / 7).sum(1).double()
    torch.testing.assert_close(by_class, expected)
