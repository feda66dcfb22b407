"""Laplace and SNGP: Hessians, kernels and integrals against numerical ones in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import (
    RAGGED_NETWORKS,
    RAGGED_SIZES,
    TORCHMIL_NETWORKS,
    build_method,
    build_network,
    labeled_batch,
    separable_bags,
    train_with,
)
from scipy import integrate, stats
from sklearn.gaussian_process.kernels import RBF
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

import miue
from miue.common.errors import ConfigError
from miue.distributions import Draws
from miue.distributions.gaussian_logits import contrast_basis, softmax_of_gaussian
from miue.methods import SNGP, EmbeddingMethod, Laplace
from miue.methods.laplace import best_prior_precision
from miue.methods.sngp import RandomFeatureLayer
from miue.networks import NETWORKS
from miue.networks.encoders import MLP
from miue.predictions import read_predictions

EMBEDDING = [name for name in RAGGED_NETWORKS if NETWORKS[name].embeds_bags]
SETTINGS = {"max_epochs": 3, "learning_rate": 1e-3, "seed": 3}


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 10.0, 60.0])
@pytest.mark.parametrize("gap", [-4.0, 0.0, 0.7, 20.0])
def test_two_normal_logits_are_integrated_as_by_quadrature(gap: float, spread: float) -> None:
    """``spread`` is the standard deviation of the difference of the logits, √2 times that of the contrast."""
    draws = softmax_of_gaussian(torch.tensor([[0.0, gap]]), torch.tensor([[[spread**2 / 2]]]))
    points = [-gap / spread] if spread else None

    def expected(function: Any) -> float:
        if not spread:
            return float(function(gap))
        inside = [p for p in points or [] if abs(p) < 8.5]
        value = integrate.quad(
            lambda t: function(gap + spread * t) * stats.norm.pdf(t), -8.5, 8.5, points=inside or None, limit=800
        )
        return float(value[0])

    def entropy(difference: float) -> float:
        q = np.exp(-np.logaddexp(0, [-difference, difference]))
        return float(np.logaddexp(0, [-difference, difference]) @ q)

    tolerance = 1e-3 if spread > 10 else 1e-8
    probability = expected(lambda difference: np.exp(-np.logaddexp(0, -difference)))
    assert draws.probabilities[0, 1].item() == pytest.approx(probability, abs=tolerance)
    assert draws.expected_entropy().item() == pytest.approx(expected(entropy), abs=tolerance)


def test_more_normal_logits_are_integrated_as_by_many_draws(generator: torch.Generator) -> None:
    mean = torch.tensor([[0.0, 1.0, -2.0, 0.5]], dtype=torch.float64)
    root = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    draws = softmax_of_gaussian(mean, (root @ root.T).unsqueeze(0))
    normal = torch.randn(400_000, 3, generator=generator, dtype=torch.float64) @ root.T
    p = (mean + normal @ contrast_basis(4).T).softmax(-1)
    torch.testing.assert_close(draws.probabilities[0], p.mean(0), atol=5e-3, rtol=0)
    entropy = -torch.xlogy(p, p).sum(-1).mean()
    assert draws.expected_entropy().item() == pytest.approx(entropy.item(), abs=5e-3)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_small_spread_of_the_logits_moves_probabilities_by_its_square(classes: int) -> None:
    logits, spread = torch.linspace(-1, 2, classes, dtype=torch.float64).unsqueeze(0), 1e-6
    draws = softmax_of_gaussian(logits, spread**2 * torch.eye(classes - 1, dtype=torch.float64).unsqueeze(0))
    torch.testing.assert_close(draws.probabilities, logits.softmax(1), atol=spread**2, rtol=0)


def test_a_covariance_of_fewer_directions_than_logits_is_integrated(generator: torch.Generator) -> None:
    direction = torch.randn(500, 3, dtype=torch.float64, generator=generator)
    covariance = direction.unsqueeze(2) * direction.unsqueeze(1)  # of rank one, whose other roots are rounding
    assert (torch.linalg.eigvalsh(covariance) < 0).any()
    assert softmax_of_gaussian(torch.zeros(500, 4), covariance).probabilities.isfinite().all()


def test_probabilities_of_one_logit_are_near_the_closed_approximation() -> None:
    logit, variance = torch.linspace(-5, 5, 21).double(), 2.3
    draws = softmax_of_gaussian(torch.stack([torch.zeros(21), logit], 1), torch.full((21, 1, 1), variance / 2))
    probit = torch.sigmoid(logit / (1 + torch.pi * variance / 8) ** 0.5)
    torch.testing.assert_close(draws.probabilities[:, 1], probit, atol=0.01, rtol=0)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("network", EMBEDDING)
def test_the_covariance_is_the_inverse_of_a_numerical_hessian(network: str, classes: int) -> None:
    """H of −log posterior in all C (E + 1) weights by autograd; the variance of T and S by its inverse."""
    model = build_method("laplace", network, classes, prior_precision=0.7)
    assert isinstance(model, Laplace)
    batch = labeled_batch(RAGGED_SIZES, classes)
    layer = model.network.last_layer
    width = layer.get_parameter("weight").shape[1]
    with torch.no_grad():
        z = model.bag_scores(batch).logits
        projection = model.network.project(model.encode(batch.instances))
        of_instances = model.network.score(projection, batch.segments.singletons()).logits

    def loss(flat: Tensor) -> Tensor:
        weight, bias = flat[: width * classes].reshape(classes, width), flat[width * classes :]
        return cross_entropy(linear(z, weight, bias), batch.labels, reduction="sum") + 0.35 * flat.square().sum()

    flat = torch.cat([parameter.flatten() for parameter in layer.parameters()]).detach()
    inverse = torch.autograd.functional.hessian(loss, flat).inverse()
    model.fit_after_training([batch])
    basis = contrast_basis(classes)
    for embedding in (z, of_instances):

        def contrasts(flat: Tensor, embedding: Tensor = embedding) -> Tensor:
            weight, bias = flat[: width * classes].reshape(classes, width), flat[width * classes :]
            return linear(embedding, weight, bias) @ basis

        jacobian = torch.autograd.functional.jacobian(contrasts, flat)
        torch.testing.assert_close(model.covariance(embedding), jacobian @ inverse @ jacobian.mT)


def test_the_prior_precision_is_that_of_the_largest_marginal_likelihood() -> None:
    """By the determinant of the whole Hessian, on a grid."""
    model, batch = build_method("laplace"), labeled_batch(RAGGED_SIZES)
    z = model.bag_scores(batch).logits.detach()
    layer = model.network.last_layer
    padded = torch.cat([z, torch.ones(len(z), 1)], 1)
    p = model.logits(z).softmax(-1).detach()
    hessian = torch.einsum("nij,nd,ne->idje", torch.diag_embed(p) - p[:, :, None] * p[:, None], padded, padded)
    hessian = hessian.reshape(24, 24)
    squares = sum(parameter.square().sum().item() for parameter in layer.parameters())
    grid = np.exp(np.linspace(-5, 8, 2001))
    evidence = [
        12 * np.log(c) - c / 2 * squares - 0.5 * torch.logdet(hessian + c * torch.eye(24)).item() for c in grid
    ]
    model.fit_after_training([batch])
    assert model.fitted_precision.item() == pytest.approx(grid[int(np.argmax(evidence))], rel=0.02)


def test_directions_that_no_bag_tells_of_have_the_variance_of_any_prior_however_wide() -> None:
    """Their curvature is 0, or a little below by rounding."""
    model, batch = build_method("laplace", prior_precision=1e-20), labeled_batch(RAGGED_SIZES[:2])
    assert isinstance(model, Laplace)
    model.fit_after_training([batch])
    assert model.factor.isfinite().all()


def test_a_prior_precision_stays_in_its_range_where_nothing_was_learned() -> None:
    assert 1e-4 <= best_prior_precision(torch.zeros(5), 1.0) <= 2e-4


@pytest.mark.parametrize("method", ["laplace", "sngp"])
def test_an_instance_alone_is_predicted_as_its_bag(method: str) -> None:
    model = build_method(method)
    model.fit_after_training([labeled_batch(RAGGED_SIZES)])
    batch = labeled_batch([1, 1, 1])
    output = model.predict([model.encode(batch.instances)], batch.segments, "bag-of-one")
    torch.testing.assert_close(output.bags.probabilities, output.instances.probabilities)
    torch.testing.assert_close(output.bags.mutual_information(), output.instances.mutual_information())


@pytest.mark.long
@pytest.mark.parametrize("method", ["laplace", "sngp"])
def test_mutual_information_grows_away_from_the_training_bags_where_softmax_is_sure(method: str) -> None:
    bags = separable_bags(60)
    options = {"encoder.width": 16} | ({"method.features": 256} if method == "sngp" else {})
    model = miue.train(
        bags,
        method=method,
        settings={
            **SETTINGS,
            "max_epochs": 30,
            "learning_rate": 6e-3,
            "options": options,
            "device": "cpu",
            "distances": (),
        },
        progress=False,
    )
    far = miue.BagDataset.from_arrays([array + 30 for array in (np.zeros((3, 5)), np.ones((2, 5)))])
    near, away = model.predict(bags).bags, model.predict(far).bags
    assert isinstance(near.distribution, Draws)
    measured = [float(np.median(one.uncertainties()["mutual_information"])) for one in (near, away)]
    assert measured[1] > 1.2 * measured[0]


def test_random_features_approximate_the_gaussian_kernel(generator: torch.Generator) -> None:
    layer = RandomFeatureLayer(5, 3, 60_000, length_scale=1.7).double()
    layer.reset_parameters(generator)
    rows = torch.randn(11, 5, dtype=torch.float64, generator=generator)
    features = layer.features(rows)
    np.testing.assert_allclose((features @ features.T).detach(), RBF(1.7)(rows), atol=0.02)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_variance_of_sngp_is_by_the_inverse_of_its_precision(classes: int) -> None:
    model, batch = (
        build_method("sngp", classes=classes, features=13, ridge=0.4),
        labeled_batch(RAGGED_SIZES, classes),
    )
    assert isinstance(model, SNGP)
    z = model.bag_scores(batch).logits.detach()
    phi, p = model.process.features(z), model.logits(z).softmax(-1).detach()
    model.fit_after_training([batch])
    for c in range(classes):
        precision = 0.4 * torch.eye(13).double()
        for row, weight in zip(phi, p[:, c] * (1 - p[:, c]), strict=True):
            precision = precision + weight * torch.outer(row, row)
        expected = [float(row @ torch.linalg.solve(precision, row)) for row in phi]
        np.testing.assert_allclose(model.variances(z)[:, c], expected)


def test_the_length_scale_of_sngp_is_in_units_of_the_embedding() -> None:
    model = build_method("sngp", features=16, length_scale=0.5)
    assert model.process.length_scale == pytest.approx(0.5 * 7**0.5)


def test_updates_bound_the_spectral_norms_of_the_encoder() -> None:
    model = build_method("sngp", features=13, norm_bound=0.5)
    for layer in model.network.encoder.layers[::3]:
        layer.weight.data.mul_(10)
    for _ in range(30):
        model.loss(labeled_batch(RAGGED_SIZES), 1)
    norms = [torch.linalg.matrix_norm(layer.weight, 2).item() for layer in model.network.encoder.layers[::3]]
    assert norms == pytest.approx([0.5, 0.5], rel=1e-2)
    free = build_method("sngp", features=13, norm_bound=0.0)
    before = free.network.encoder.layers[0].weight.clone()
    free.loss(labeled_batch(RAGGED_SIZES), 1)
    assert torch.equal(free.network.encoder.layers[0].weight, before)


def test_layers_within_the_bound_of_their_norm_stay_and_one_of_zeros_is_no_error() -> None:
    model = build_method("sngp", features=13, norm_bound=1e3)
    first, second = model.network.encoder.layers[::3]
    second.weight.data.zero_()
    before = first.weight.clone()
    for _ in range(2):
        model.loss(labeled_batch(RAGGED_SIZES), 1)
    assert torch.equal(first.weight, before) and not second.weight.any()
    assert not model.get_buffer("direction_1").any()


@pytest.mark.long
@pytest.mark.parametrize("method", ["laplace", "sngp"])
@pytest.mark.parametrize("network", EMBEDDING)
def test_what_is_fitted_after_training_is_saved_and_resumed(method: str, network: str, tmp_path: Path) -> None:
    def train(**more: Any) -> miue.Model:
        options = {"encoder.width": 8} | ({"method.features": 16} if method == "sngp" else {})
        return train_with(
            separable_bags(),
            network=network,
            method=method,
            settings={**SETTINGS, "options": options, "device": "cpu", "distances": ()},
            out=tmp_path / "run",
            progress=False,
            **more,
        )

    model = train()
    assert model.method.get_buffer("factor").abs().sum() > 0
    predicted = model.predict(separable_bags(7))
    loaded = miue.Model.load(tmp_path / "run").predict(separable_bags(7))
    assert np.array_equal(predicted.bags.probabilities, loaded.bags.probabilities)
    predicted.save(tmp_path / "p")
    back = read_predictions(tmp_path / "p").bags.uncertainties()["mutual_information"]
    np.testing.assert_allclose(back, predicted.bags.uncertainties()["mutual_information"], atol=1e-12)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    assert train(if_exists="resume").weights_sha256 == model.weights_sha256


@pytest.mark.parametrize("network", TORCHMIL_NETWORKS)
def test_a_network_of_torchmil_has_a_posterior_or_is_refused(network: str) -> None:
    pytest.importorskip("torchmil")
    if not NETWORKS[network].embeds_bags:
        with pytest.raises(ConfigError, match="one linear layer of the bag's embedding"):
            build_method("laplace", network)
        return
    made = build_network(network, MLP((5,), width=8), 3, hidden=8)
    model, batch = Laplace(made).double().eval(), labeled_batch(RAGGED_SIZES)
    plain = build_network(network, MLP((5,), width=8), 3, hidden=8).double().eval()
    plain.load_state_dict(made.state_dict())
    logits = plain(batch.instances, batch.segments).bag_logits
    torch.testing.assert_close(model.bag_log_probabilities(batch), logits.log_softmax(-1))


@pytest.mark.parametrize("method", ["laplace", "sngp"])
def test_a_network_without_an_embedding_of_the_bag_is_refused(method: str) -> None:
    with pytest.raises(ConfigError, match=f"method '{method}': expected a network whose logits are one linear"):
        miue.train(separable_bags(), method=method, network="dsmil", settings=SETTINGS, progress=False)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("laplace", {"prior_precision": 0.0}, "option 'method.prior_precision'"),
        ("sngp", {"ridge": 0.0}, "option 'method.ridge'"),
        ("sngp", {"length_scale": -1.0}, "option 'method.length_scale'"),
        ("sngp", {"norm_bound": -1.0}, "option 'method.norm_bound'"),
    ],
)
def test_values_out_of_range_are_refused(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_method(method, **options)


def test_a_covariance_too_large_for_memory_is_refused_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match="got 3 × 3001 = 9,003"):
        Laplace(build_network("mean", MLP((5,), width=3000), 4))


def test_embeddings_of_pooled_features_are_those_features() -> None:
    model, batch = build_method("laplace", "mean"), labeled_batch(RAGGED_SIZES)
    features = model.encode(batch.instances)
    means = torch.stack([bag.mean(0) for bag in features.split(RAGGED_SIZES)])
    torch.testing.assert_close(model.bag_scores(batch).logits, means)


@pytest.mark.parametrize("method", ["laplace", "sngp"])
def test_instances_are_predicted_by_attention_beside_embeddings(method: str) -> None:
    bags = separable_bags(20)
    model = miue.train(bags, method=method, settings={**SETTINGS, "device": "cpu"}, progress=False)
    instances = model.predict(bags, estimator="attention").instances
    assert instances is not None
    for own in np.split(instances.probabilities[:, 1], bags.starts[1:]):
        assert (own.min(), own.max()) == ((0.0, 1.0) if len(own) > 1 else (0.5, 0.5))


@pytest.mark.parametrize("method", ["laplace", "sngp"])
def test_the_energy_is_that_of_the_logits_of_instances_and_not_of_their_embeddings(method: str) -> None:
    bags = separable_bags(20)
    model = miue.train(
        bags, method=method, settings={**SETTINGS, "distances": ("energy",), "device": "cpu"}, progress=False
    )
    instances = model.predict(bags).instances
    assert instances is not None
    fitted = model.method.eval()
    assert isinstance(fitted, EmbeddingMethod)
    with torch.no_grad():  # with attention, the embedding of a bag of one is its features
        logits = fitted.logits(fitted.encode(bags.batch(list(range(len(bags)))).instances))
    np.testing.assert_allclose(instances.scores["energy"], -logits.logsumexp(1), rtol=1e-5)
