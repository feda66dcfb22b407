"""One-sided networks: pooling by its definition, and what an instance can and cannot do to its bag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_bags import ONE_SIDED_NETWORKS, build_network, separable_bags, train_with
from scipy.special import lambertw
from torch import Tensor

import miue
from miue.bags import Segments
from miue.distributions import Dirichlet
from miue.evidence import residual_log_evidence
from miue.methods import METHODS, DensityAwareEDL
from miue.networks import OneSidedNetwork, initialize
from miue.networks.encoders import MLP
from miue.networks.one_sided import noisy_or

MONOTONE = ["one-sided-max", "one-sided-log-sum-exp", "one-sided-noisy-or"]
SIZES = [3, 1, 4, 2]
SCORES = st.lists(st.floats(-300, 300), min_size=1, max_size=6)


def build(name: str, classes: int = 3) -> OneSidedNetwork:
    network = build_network(name, MLP((5,), width=7), classes, hidden=11)
    initialize(network, torch.Generator().manual_seed(3))
    assert isinstance(network, OneSidedNetwork)
    return network.double()


def pooled(name: str, scores: list[float]) -> float:
    """S of a bag with these scores of its instances, of two classes."""
    column = torch.tensor(scores, dtype=torch.float64).unsqueeze(1)
    return build(name, 2).pool(column, Segments.of(len(scores)))[0].item()


def by_definition(name: str, scores: Tensor, network: OneSidedNetwork) -> Tensor:
    """S of one bag (n, C − 1), as its docstring defines it."""
    if name == "one-sided-max":
        return scores.amax(0)
    if name == "one-sided-log-sum-exp":
        return scores.exp().sum(0).log()
    if name == "one-sided-noisy-or":
        return torch.logit(1 - (1 - scores.sigmoid()).prod(0))
    if name == "one-sided-attention":
        return (scores.softmax(0) * scores).sum(0)
    return network.get_parameter("bias") + torch.nn.functional.softplus(scores).mean(0)


@pytest.mark.parametrize("name", ONE_SIDED_NETWORKS)
def test_a_bag_is_pooled_by_its_definition(name: str) -> None:
    network, instances = build(name), torch.randn(sum(SIZES), 5, dtype=torch.float64)
    (scores,) = network.project(network.encode(instances))
    expected = torch.stack([by_definition(name, bag, network) for bag in scores.split(SIZES)])
    logits = network(instances, Segments.of(*SIZES)).bag_logits
    torch.testing.assert_close(logits[:, 1:] - logits[:, :1], expected)
    torch.testing.assert_close(logits.sum(1), torch.zeros(len(SIZES), dtype=torch.float64))


@pytest.mark.parametrize("name", ONE_SIDED_NETWORKS)
def test_the_gradient_of_a_bag_is_exact(name: str) -> None:
    network = build(name)

    def logits(scores: Tensor) -> Tensor:
        return network.score((scores,), Segments.of(*SIZES)).logits

    assert torch.autograd.gradcheck(logits, torch.randn(sum(SIZES), 2, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("name", MONOTONE)
@given(scores=SCORES, other=st.floats(-300, 300))
def test_no_instance_lowers_the_score_of_its_bag(name: str, scores: list[float], other: float) -> None:
    before, after = pooled(name, scores), pooled(name, [*scores, other])
    assert after >= before - 1e-12 * max(1.0, abs(before))


def test_without_one_sided_evidence_an_instance_overturns_its_bag() -> None:
    network = build_network("max", MLP((5,), width=7), 2)
    initialize(network, torch.Generator().manual_seed(3))
    weight = network.get_parameter("head.weight")
    features = torch.stack([torch.zeros(7), 100.0 * (weight[0] > weight[1])])
    alone = network.score((features[:1],), Segments.of(1)).logits.diff().item()
    beside = network.score((features,), Segments.of(2)).logits.diff().item()
    assert beside < alone - 1


@pytest.mark.long
@given(scores=SCORES, others=st.lists(st.floats(-300, 300), min_size=1, max_size=40))
def test_instances_lower_self_weighted_attention_by_lambert_w_at_most(
    scores: list[float], others: list[float]
) -> None:
    before, after = (pooled("one-sided-attention", bag) for bag in (scores, [*scores, *others]))
    assert after >= before - lambertw(len(others) / np.e).real - 1e-12 * max(1.0, abs(before))


@pytest.mark.parametrize("count", [1, 5, 30])
def test_the_bound_of_self_weighted_attention_is_attained(count: int) -> None:
    bound = lambertw(count / np.e).real
    lowered = pooled("one-sided-attention", [0.0, *[-1 - bound] * count])
    assert lowered == pytest.approx(-bound, rel=1e-12)


@given(scores=SCORES, other=st.floats(-300, 300))
def test_an_instance_only_dilutes_the_mean(scores: list[float], other: float) -> None:
    bias, n = build("one-sided-mean", 2).get_parameter("bias").item(), len(scores)
    before, after = (pooled("one-sided-mean", bag) - bias for bag in (scores, [*scores, other]))
    assert after >= before * n / (n + 1) * (1 - 1e-12) - 1e-12


def test_log_sum_exp_and_noisy_or_count_copies() -> None:
    assert pooled("one-sided-log-sum-exp", [0.3] * 7) == pytest.approx(0.3 + np.log(7))
    odds = (1 + np.exp(0.3)) ** 7 - 1
    assert pooled("one-sided-noisy-or", [0.3] * 7) == pytest.approx(np.log(odds))


@pytest.mark.parametrize("score", [-700.0, -90.0, -40.5, -39.5, -1.0, 21.0, 50.0, 900.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_noisy_or_is_exact_where_its_naive_form_is_not(score: float, dtype: torch.dtype) -> None:
    scores = torch.tensor([[score], [score - 1]], dtype=dtype, requires_grad=True)
    with mpmath.workdps(800):
        exact = float(mpmath.log((1 + mpmath.exp(score)) * (1 + mpmath.exp(score - 1)) - 1))
    result = noisy_or(scores, Segments.of(2))
    rounding = 4 * torch.finfo(dtype).eps
    assert result.item() == pytest.approx(exact, rel=rounding, abs=rounding)
    (gradient,) = torch.autograd.grad(result.sum(), scores)
    assert gradient.isfinite().all()
    assert gradient.sum().item() > 0.99
    naive = torch.logit(1 - (1 - scores.sigmoid()).prod(0)).item()
    if score not in (-1.0, -39.5, 21.0):
        assert not np.isfinite(naive)


@pytest.mark.parametrize("method", ["edl", "i-edl", "r-edl", "mirel"])
@pytest.mark.parametrize("activation", ["exp", "softplus", "elu"])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", MONOTONE)
def test_no_instance_raises_the_evidence_of_the_negative_class(
    name: str, classes: int, activation: str, method: str
) -> None:
    options: dict[str, Any] = {"activation": activation}
    model = METHODS[method](build(name, classes), **options)
    scores = 5 * torch.randn(50, 3, classes - 1, dtype=torch.float64)

    def alpha(size: int) -> Tensor:
        projection, segments = (scores[:, :size].flatten(0, 1),), Segments.of(*[size] * 50)
        distribution = model.distribution(model.network.score(projection, segments).logits)
        assert isinstance(distribution, Dirichlet)
        return distribution.alpha

    assert (alpha(3)[:, 0] <= alpha(2)[:, 0] + 1e-12).all()
    assert (alpha(3)[:, 0] < alpha(2)[:, 0]).any()


@pytest.mark.parametrize("method", ["edl", "r-edl", "mirel"])
def test_of_three_classes_an_instance_raises_the_probability_of_the_negative_one_and_never_predicts_it(
    method: str,
) -> None:
    model = METHODS[method](build("one-sided-max", 3))
    grid = torch.linspace(-30, 30, 61, dtype=torch.float64)
    scores = torch.cartesian_prod(grid, grid)
    logits = model.network.score((scores,), Segments.ones(len(scores), scores.device)).logits
    p = model.distribution(logits).probabilities.reshape(61, 61, 3)
    lowest = p[..., 0].cummin(0).values.cummin(1).values  # of bags with no score above those of this one
    assert 0.05 < (p[..., 0] - lowest).max() < 0.29
    is_positive = (scores > 0).any(1).reshape(61, 61)
    assert (p.argmax(-1) > 0)[is_positive].all()
    assert (p.argmax(-1) == 0)[(scores < 0).all(1).reshape(61, 61)].all()


@pytest.mark.parametrize("name", MONOTONE)
def test_an_unlikely_instance_takes_evidence_from_a_bag_of_daedl_but_not_its_class(name: str) -> None:
    model = DensityAwareEDL(build(name, 2)).double()
    with torch.no_grad():
        model.extremes.copy_(torch.tensor([-40.0, 0.0]))  # s is 1 where the density is that of the mean
        model.offsets.zero_()
        model.means.zero_()
        model.whitening[:] = torch.eye(7)
    network, features = model.network, torch.zeros(3, 7, dtype=torch.float64)
    features[1:, 0] = torch.tensor([1.0, 60.0])
    score = network.score(network.project(features[:1]), Segments.of(1)).logits.diff()
    if score < 0:
        last = network.get_submodule("head.2")
        assert isinstance(last, torch.nn.Linear)
        with torch.no_grad():
            last.weight.mul_(-1)
            last.bias.mul_(-1).add_(2)
    few = model.predict([features[:2]], Segments.of(2), "bag-of-one").bags
    more = model.predict([features], Segments.of(3), "bag-of-one").bags
    assert few.predicted.item() == 1
    assert more.probabilities[0, 0] > few.probabilities[0, 0]
    assert more.probabilities[0, 0] <= 0.5


@given(score=st.floats(-20, 20), first=st.floats(-1, 1), second=st.floats(-1, 1))
def test_the_residual_keeps_the_side_of_an_instance_of_two_classes(
    score: float, first: float, second: float
) -> None:
    of_t = torch.tensor([[-score / 2, score / 2]], dtype=torch.float64)
    of_r = residual_log_evidence(of_t, torch.tensor([[first, second]], dtype=torch.float64))
    assert (of_r.diff() * score >= 0).all()


@pytest.mark.long
@pytest.mark.parametrize("network", ONE_SIDED_NETWORKS)
def test_a_one_sided_network_is_trained_saved_loaded_and_wrapped(network: str, tmp_path: Path) -> None:
    bags = separable_bags()
    options: dict[str, Any] = {"settings": {"max_epochs": 2, "seed": 3}, "progress": False}
    model = train_with(bags, network=network, method="mirel", out=tmp_path / "run", device="cpu", **options)
    ours = model.predict(bags, progress=False)
    again = miue.Model.load(tmp_path / "run").predict(bags, progress=False)
    np.testing.assert_array_equal(ours.bags.probabilities, again.bags.probabilities)
    assert ours.instances is not None
    assert again.instances is not None
    np.testing.assert_array_equal(ours.instances.probabilities, again.instances.probabilities)
    classifier = miue.MILUncertaintyClassifier(network=network, method="softmax", max_epochs=2)
    arrays = [bags.batch([row]).instances for row in range(len(bags))]
    assert classifier.fit(arrays, bags.labels.values).predict_proba(arrays).shape == (len(bags), 2)
