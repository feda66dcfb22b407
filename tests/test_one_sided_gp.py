"""One-sided attention over scores that are a Gaussian process: gradient, covariance, bags of one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_bags import RAGGED_SIZES, build_network, labeled_batch, separable_bags

import miue
from miue.common.errors import ConfigError
from miue.methods.one_sided_gp import OneSidedGP
from miue.networks.encoders import MLP


def build(classes: int = 2, **options: float) -> OneSidedGP:
    torch.manual_seed(3)
    network = build_network("one-sided-attention", MLP((5,), width=7), classes, hidden=6)
    model = OneSidedGP(network, features=11, **options).double()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.6)
    model.process.reset_parameters(torch.Generator().manual_seed(1))
    return model.eval()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_is_that_of_the_bag_score_by_the_weights(classes: int) -> None:
    model, batch = build(classes), labeled_batch(RAGGED_SIZES, classes)
    embeddings = model.network.encode_and_project(batch.instances)[1][0]
    gradient = model.gradient(embeddings, batch.segments)
    scores, weight = model.process(embeddings), model.process.output.weight
    pooled = model.network.pool(scores, batch.segments)[0]
    for bag in range(len(RAGGED_SIZES)):
        for c in range(classes - 1):
            (by_weights,) = torch.autograd.grad(pooled[bag, c], weight, retain_graph=True)
            np.testing.assert_allclose(gradient[bag, c].detach(), by_weights[c] * (2 / 11) ** 0.5, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_variance_is_by_the_inverse_of_the_precision(classes: int) -> None:
    model, batch = build(classes, ridge=0.4), labeled_batch(RAGGED_SIZES, classes)
    model.fit_after_training([batch])
    embeddings = model.network.encode_and_project(batch.instances)[1][0]
    gradient = model.gradient(embeddings, batch.segments).detach()
    p = model.bag_log_probabilities(batch).exp().detach()
    for c in range(classes - 1):
        rows = gradient[:, c]
        weights = p[:, c + 1] * (1 - p[:, c + 1])
        precision = 0.4 * torch.eye(11).double() + torch.einsum("n,nd,ne->de", weights, rows, rows)
        expected = [float(row @ torch.linalg.solve(precision, row)) for row in rows]
        np.testing.assert_allclose(model.variances(gradient)[:, c], expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_means_over_normal_scores_and_the_negative_class_has_none(classes: int) -> None:
    model, batch = build(classes), labeled_batch(RAGGED_SIZES, classes)
    model.factor.normal_(generator=torch.Generator().manual_seed(4))
    features = model.encode(batch.instances)
    predicted = model.predict([features], batch.segments, "bag-of-one")
    embeddings = model.network.project(features)[0]
    phi = model.process.features(embeddings).unsqueeze(1)
    draws = torch.randn(200_000, classes - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for mean, variances, probabilities in (
        (
            model.network.pool(model.process(embeddings), batch.segments)[0],
            model.variances(model.gradient(embeddings, batch.segments)),
            predicted.bags.probabilities,
        ),
        (model.process(embeddings), model.variances(phi), predicted.instances.probabilities),
    ):
        drawn = mean[2] + variances[2].sqrt() * draws
        expected = torch.cat([torch.zeros(len(draws), 1), drawn], 1).softmax(1).mean(0)
        np.testing.assert_allclose(probabilities[2].detach(), expected.detach(), atol=4e-3)


def test_an_instance_alone_is_predicted_as_its_bag_and_blocks_change_nothing() -> None:
    model = build()
    model.fit_after_training([labeled_batch(RAGGED_SIZES)])
    batch = labeled_batch([1, 1, 1])
    features = model.encode(batch.instances)
    alone = model.predict([features], batch.segments, "bag-of-one")
    torch.testing.assert_close(alone.bags.probabilities, alone.instances.probabilities)
    torch.testing.assert_close(alone.bags.mutual_information(), alone.instances.mutual_information())
    assert (alone.bags.mutual_information() > 0).all()
    split = model.predict(features.split(2), batch.segments, "bag-of-one")
    torch.testing.assert_close(split.bags.probabilities, alone.bags.probabilities)
    torch.testing.assert_close(split.instances.probabilities, alone.instances.probabilities)


def test_other_networks_are_refused() -> None:
    with pytest.raises(ConfigError) as error:
        miue.train(separable_bags(), method="one-sided-gp", network="mean", progress=False)
    assert "one-sided-attention" in str(error.value)


def test_it_trains_predicts_and_is_read_again(tmp_path: object) -> None:
    bags = separable_bags(30)
    settings = {"max_epochs": 2, "options": {"method.features": 16}, "device": "cpu", "distances": ()}
    model = miue.train(
        bags, network="one-sided-attention", method="one-sided-gp", settings=settings, progress=False
    )
    model.save(tmp_path)  # type: ignore[arg-type]
    again = miue.Model.load(tmp_path).predict(bags)  # type: ignore[arg-type]
    assert np.array_equal(model.predict(bags).bags.probabilities, again.bags.probabilities)
    assert model.predict(bags, estimator="attention").instances is not None
