"""R-EDL, DAEDL, ensembles of evidential members, and the Dirichlet of an ensemble's moments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import RAGGED_NETWORKS, RAGGED_SIZES, build_method, labeled_batch, separable_bags, train_with
from scipy import stats
from scipy.special import digamma, gammaln
from sklearn.covariance import oas

import miue
from miue.bags import BagBatch, Segments
from miue.common.errors import ConfigError
from miue.distributions import Categorical, Dirichlet, Draws, to_dirichlet
from miue.distributions.measures import compute_measures
from miue.evidence.losses import EvidentialLoss, kl_penalty, squared_error
from miue.methods import DeepEnsemble, DensityAwareEDL, RelaxedEDL
from miue.methods.density_aware_edl import Moments
from miue.model.build import member_seeds

SETTINGS = {"max_epochs": 2, "learning_rate": 1e-3, "seed": 3}


@pytest.mark.parametrize(("epoch", "epochs", "share"), [(1, 5, 0.2), (3, 5, 0.6), (9, 5, 1.0), (9, 0, 0.0)])
def test_the_relaxed_loss_is_that_of_its_paper_bag_by_bag(epoch: int, epochs: int, share: float) -> None:
    model, batch = build_method("r-edl", prior=0.3, annealing_epochs=epochs), labeled_batch(RAGGED_SIZES)
    assert isinstance(model, RelaxedEDL)
    logits = model.network(batch.instances, batch.segments).bag_logits.detach().numpy()
    total = 0.0
    for row, label in zip(logits, batch.labels.tolist(), strict=True):
        evidence, target = np.logaddexp(0, row), np.eye(3)[label]
        mean = (evidence + 0.3) / (evidence.sum() + 0.9)
        a = evidence * (1 - target) + 0.3
        divergence = gammaln(a.sum()) - gammaln(0.9) - (gammaln(a) - gammaln(0.3)).sum()
        divergence += ((a - 0.3) * (digamma(a) - digamma(a.sum()))).sum()
        total += ((target - mean) ** 2).sum() + share * divergence
    assert model.loss(batch, epoch).item() == pytest.approx(total / len(RAGGED_SIZES), rel=1e-9)


def test_the_vacuity_of_relaxed_evidence_is_the_papers_uncertainty_over_its_prior() -> None:
    model = build_method("r-edl", prior=0.1)
    logits = torch.randn(5, 3, dtype=torch.float64)
    evidence = torch.nn.functional.softplus(logits)
    uncertainty = 0.1 * 3 / (evidence.sum(1) + 0.1 * 3)
    torch.testing.assert_close(0.1 * model.distribution(logits).vacuity(), uncertainty)


@pytest.mark.parametrize("coefficient", [0.0, 0.2])
def test_a_density_aware_model_is_trained_with_the_expected_squared_error_of_its_dirichlet(
    coefficient: float,
) -> None:
    model, batch = build_method("daedl", divergence_coefficient=coefficient), labeled_batch(RAGGED_SIZES)
    alpha = model.network(batch.instances, batch.segments).bag_logits.exp()
    expected = (squared_error(alpha, batch.labels) + coefficient * kl_penalty(alpha, batch.labels)).mean()
    torch.testing.assert_close(model.loss(batch, 1), expected)


@pytest.mark.parametrize("parts", [[40], [1, 39], [17, 3, 20]])
def test_a_shrunk_covariance_of_parts_is_that_of_sklearn(parts: list[int], generator: torch.Generator) -> None:
    rows = 1e3 + torch.randn(40, 7, dtype=torch.float64, generator=generator) @ torch.randn(7, 7).double()
    moments = Moments(7)
    for part in rows.split(parts):
        moments.add(part)
    torch.testing.assert_close(moments.mean, rows.mean(0))
    torch.testing.assert_close(moments.shrunk_covariance(), torch.from_numpy(oas(rows.numpy())[0]))


def test_features_that_never_vary_have_a_covariance() -> None:
    moments = Moments(3)
    moments.add(torch.ones(1, 3, dtype=torch.float64))
    assert torch.equal(moments.shrunk_covariance(), torch.eye(3).double())


def test_the_variance_of_a_single_feature_is_not_shrunk() -> None:
    moments = Moments(1)
    moments.add(torch.tensor([[0.0], [2.0]], dtype=torch.float64))
    assert moments.shrunk_covariance().tolist() == [[1.0]]


def fitted(network: str = "attention") -> tuple[DensityAwareEDL, list[BagBatch]]:
    model, batches = build_method("daedl", network), [labeled_batch(RAGGED_SIZES), labeled_batch([5, 2, 9, 1])]
    model.fit_after_training(batches)
    return model, batches


def test_the_log_density_is_that_of_the_classes_normal_distributions() -> None:
    model, batches = fitted()
    features = torch.cat([model.encode(batch.instances) for batch in batches]).detach().numpy()
    labels = np.concatenate([np.repeat(b.labels.numpy(), b.segments.sizes.numpy()) for b in batches])
    density = 0.0
    for label in range(3):
        rows = features[labels == label]
        normal = stats.multivariate_normal(rows.mean(0), oas(rows)[0])
        density = density + len(rows) / len(features) * normal.pdf(features)
    expected = torch.from_numpy(np.log(density))
    torch.testing.assert_close(model.log_density(torch.from_numpy(features)), expected)
    torch.testing.assert_close(model.extremes, torch.stack([expected.min(), expected.max()]))


@pytest.mark.parametrize("network", RAGGED_NETWORKS)
def test_logits_are_scaled_by_the_mean_log_density_of_the_instances(network: str) -> None:
    model, batches = fitted(network)
    batch = batches[0]
    features = model.encode(batch.instances).detach()
    whole = model.network(batch.instances, batch.segments)
    density = model.log_density(features)
    predicted = model.predict(features.split(9), batch.segments, "bag-of-one")
    of_bags = torch.stack([bag.mean() for bag in density.split(RAGGED_SIZES)])
    for output, logits, log_p in (
        (predicted.bags, whole.bag_logits, of_bags),
        (predicted.instances, whole.instance_logits, density),
    ):
        assert isinstance(output, Dirichlet)
        torch.testing.assert_close(output.alpha, (model.scale(log_p)[:, None] * logits).exp().detach())


def test_what_is_unlike_all_training_instances_has_no_evidence() -> None:
    model, _ = fitted()
    far = model.predict([1e3 + torch.rand(4, 7).double()], Segments.of(3, 1), "bag-of-one")
    assert far.bags.vacuity().tolist() == [1.0, 1.0]  # type: ignore[attr-defined]
    assert far.instances.vacuity().tolist() == [1.0] * 4  # type: ignore[attr-defined]


def test_training_instances_whose_densities_differ_by_rounding_alone_can_be_predicted() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        model, batch = build_method("daedl").float(), labeled_batch([2])  # two are equally far from their mean
        batch = replace(batch, instances=batch.instances.float())
        model.fit_after_training([batch])
        assert model.extremes[0] < model.extremes[1]
        predicted = model.predict([model.encode(batch.instances)], batch.segments, "bag-of-one").instances
        assert predicted.alpha.isfinite().all()


def test_an_instance_much_likelier_than_those_of_training_has_finite_measures_in_single_precision() -> None:
    model, batch = build_method("daedl"), labeled_batch([4, 4])
    model.fit_after_training([batch])
    model.extremes[1] = model.extremes[0] + 1e-3  # as of instances that are about equally far from their mean
    prediction = model._scaled(
        model.distribution(torch.tensor([[10.0, -10.0, 1.0]]).double()), model.extremes[:1] + 5
    )
    assert prediction.alpha[0].log().tolist() == pytest.approx([80, -80, 80])
    measures = torch.stack([*compute_measures(prediction).values()])
    assert measures.float().isfinite().all()


def test_the_relaxed_divergence_keeps_its_digits_in_single_precision() -> None:
    model = build_method("r-edl", prior=0.3)
    alpha = torch.tensor([[4e4, 0.3, 3e4]])
    naive = torch.distributions.kl_divergence(
        torch.distributions.Dirichlet(alpha), torch.distributions.Dirichlet(torch.full_like(alpha, 0.3))
    )
    expected = model._divergence(alpha.double())
    torch.testing.assert_close(model._divergence(alpha).double(), expected, rtol=1e-6, atol=0)
    assert abs(naive.item() - expected.item()) > 1e-4 * expected.item()


def test_edl_has_no_fisher_weights_and_i_edl_has() -> None:
    batch = labeled_batch(RAGGED_SIZES)
    for name, is_weighted in (("edl", False), ("i-edl", True)):
        model = build_method(name, annealing_epochs=5)
        logits = model.network(batch.instances, batch.segments).bag_logits
        expected = EvidentialLoss(fisher_weighted=is_weighted, annealing_epochs=5)(logits, batch.labels, 2).mean()
        torch.testing.assert_close(model.loss(batch, 2), expected)


def test_a_class_without_training_bags_has_no_density() -> None:
    model, batch = build_method("daedl"), labeled_batch(RAGGED_SIZES, classes=2)
    model.fit_after_training([batch])
    assert model.log_density(model.encode(batch.instances)).isfinite().all()
    assert model.offsets.tolist()[2] == -torch.inf


@pytest.mark.parametrize("method", ["daedl", "r-edl"])
def test_a_model_predicts_the_same_after_it_is_loaded(method: str, tmp_path: Path) -> None:
    model = miue.train(
        separable_bags(),
        method=method,
        settings={**SETTINGS, "options": {"encoder.width": 8}, "device": "cpu"},
        out=tmp_path / "run",
        progress=False,
    )
    loaded = miue.Model.load(tmp_path / "run").predict(separable_bags(9))
    for level in ("bags", "instances"):
        one, other = getattr(model.predict(separable_bags(9)), level), getattr(loaded, level)
        assert torch.equal(one.distribution.alpha, other.distribution.alpha)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("r-edl", {"prior": 0.0}, "option 'method.prior'"),
        ("r-edl", {"annealing_epochs": -1}, "option 'method.annealing_epochs'"),
        ("r-edl", {"activation": "exq"}, "did you mean"),
        ("mirel", {"background": 3}, "background: expected a class from 0 to 2"),
        ("daedl", {"divergence_coefficient": -1.0}, "option 'method.divergence_coefficient'"),
        ("deep-ensemble", {"member": "mirl"}, "did you mean 'mirel'"),
        ("deep-ensemble", {"member": "mirel", "routin": "residual-only"}, "did you mean 'method.routing'"),
        ("deep-ensemble", {"member": "mirel", "routing": 3}, "option 'method.routing': expected "),
        ("deep-ensemble", {"routing": "residual-only"}, "option 'method.routing'"),
    ],
)
def test_options_that_cannot_be_are_refused(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_method(method, **options)


def test_the_mutual_information_of_a_mixture_is_over_its_members_and_within_them(
    generator: torch.Generator,
) -> None:
    """Against draws: a member at random, then probabilities of its Dirichlet distribution."""
    members = [Dirichlet(torch.tensor([[9.0, 2.0, 1.5]])), Dirichlet(torch.tensor([[1.2, 3.0, 4.0]]))]
    mixture = Draws.of(members)
    p = np.concatenate([stats.dirichlet(m.alpha[0].numpy()).rvs(200_000, random_state=5) for m in members])
    entropy = lambda q: -np.sum(q * np.log(q), -1)  # noqa: E731
    expected = entropy(p.mean(0)) - entropy(p).mean()
    assert mixture.mutual_information().item() == pytest.approx(expected, abs=3e-3)
    within = np.mean([m.mutual_information().item() for m in members])
    over = mixture.entropy().item() - np.mean([m.entropy().item() for m in members])
    assert mixture.mutual_information().item() == pytest.approx(over + within)


def test_an_ensemble_of_mirel_predicts_instances_from_the_residual_of_each(tmp_path: Path) -> None:
    bags = separable_bags()
    model = miue.train(
        bags,
        method="deep-ensemble",
        settings={
            **SETTINGS,
            "device": "cpu",
            "options": {"method.size": 2, "method.member": "mirel", "method.routing": "residual-only"},
        },
        progress=False,
        out=tmp_path / "run",
    )
    assert isinstance(model.method, DeepEnsemble)
    predicted = model.predict(bags).instances
    assert predicted is not None
    batch = bags.batch(np.arange(len(bags)))
    each = [
        member.predict([member.encode(batch.instances)], batch.segments, "residual").instances
        for member in model.method.members()
    ]
    np.testing.assert_allclose(predicted.probabilities, Draws.of(each).probabilities.detach(), rtol=1e-5)
    loaded = miue.Model.load(tmp_path / "run").predict(bags).instances
    assert loaded is not None and np.array_equal(loaded.probabilities, predicted.probabilities)


@pytest.mark.parametrize("member", ["mirel", "laplace", "sngp", "daedl"])
def test_a_member_is_what_its_method_trains_alone(member: str) -> None:
    bags, rest = separable_bags(24), separable_bags(8, seed=1)
    options = {"encoder.width": 8} | ({"method.features": 16} if member == "sngp" else {})
    more: dict[str, Any] = {"validation": rest, "progress": False, "device": "cpu", "distances": ()}
    ensemble = train_with(
        bags,
        method="deep-ensemble",
        settings={**SETTINGS, "options": {**options, "method.size": 2, "method.member": member}},
        **more,
    )
    for one, seed in zip(ensemble.method.members(), member_seeds(ensemble.method, 3), strict=True):
        alone = train_with(bags, method=member, settings={**SETTINGS, "seed": seed, "options": options}, **more)
        for name, value in alone.method.state_dict().items():
            assert torch.equal(one.state_dict()[name], value), name


def test_an_ensemble_of_drawing_members_draws_from_each() -> None:
    ensemble = build_method("deep-ensemble", network="attention", classes=2, size=3, member="bayes-mil", draws=4)
    assert [member.copies for member in ensemble.passes(seed=0)] == [4, 4, 4]


@pytest.mark.parametrize("member", ["deep-ensemble", "parts_of_others:CountingEnsemble"])
def test_an_ensemble_of_ensembles_is_refused(member: str) -> None:
    options = {"method.member": member}
    with pytest.raises(ConfigError, match=f"option 'method.member': .*, got '{member}'"):
        miue.train(
            separable_bags(),
            method="deep-ensemble",
            settings={"options": options, "device": "cpu"},
            progress=False,
        )


def test_an_ensemble_as_a_dirichlet_has_evidence_and_the_same_probabilities() -> None:
    bags = separable_bags()
    options: dict[str, Any] = {"method.size": 3, "encoder.width": 8}
    more: dict[str, Any] = {"settings": SETTINGS, "progress": False, "device": "cpu", "distances": ()}
    plain = train_with(bags, method="deep-ensemble", options=options, **more).predict(bags).bags
    options["method.as_dirichlet"] = True
    evidential = train_with(bags, method="deep-ensemble", options=options, **more).predict(bags).bags
    np.testing.assert_allclose(evidential.probabilities, plain.probabilities, rtol=1e-9)
    assert "vacuity" in evidential.uncertainties()


@pytest.mark.long
def test_the_dirichlet_of_draws_has_their_moments() -> None:
    """The moments of many draws of a Dirichlet distribution give it back."""
    alpha = np.array([2.0, 5.0, 0.7])
    p = stats.dirichlet(alpha).rvs(100_000, random_state=1)
    matched = to_dirichlet([Categorical(torch.from_numpy(row[None])) for row in p[:20_000]])
    np.testing.assert_allclose(matched.alpha[0], alpha, rtol=0.05)


def test_a_class_that_is_nearly_certain_counts_as_the_others_in_the_evidence_of_draws() -> None:
    p = np.array([[0.9999, 6e-5, 4e-5], [0.9997, 1e-4, 2e-4]])
    mean, variance = p.mean(0), p.var(0)
    matched = to_dirichlet([Categorical(torch.from_numpy(row[None])) for row in p])
    np.testing.assert_allclose(matched.alpha[0], mean * np.mean(mean * (1 - mean) / variance - 1))


def test_the_dirichlet_of_one_dirichlet_is_itself() -> None:
    alpha = torch.tensor([[2.0, 5.0, 0.7], [1e4, 1.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(to_dirichlet([Dirichlet(alpha)]).alpha, alpha)


def test_members_that_agree_have_the_most_evidence_and_those_that_contradict_each_other_hardly_any() -> None:
    sure, opposite = Categorical(torch.tensor([[1.0, 0.0]])), Categorical(torch.tensor([[0.0, 1.0]]))
    assert to_dirichlet([sure, sure]).alpha0.item() == pytest.approx(1e6)
    contradicted = to_dirichlet([sure, opposite, sure])
    assert contradicted.alpha0.item() == pytest.approx(0.01)
    torch.testing.assert_close(
        contradicted.probabilities, torch.tensor([[2 / 3, 1 / 3]]).double(), atol=1e-4, rtol=0
    )
