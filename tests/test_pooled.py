"""Baselines on pooled features beside scikit-learn, and through the commands that networks go through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import RAGGED_SIZES, build_network, labeled_batch, separable_bags
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import miue
from miue.common.errors import ConfigError
from miue.methods.pooled import PENALTIES, PooledForest, PooledLogistic
from miue.networks.encoders import Identity

METHODS = ["pooled-logistic", "pooled-forest"]


def statistics(bags: miue.BagDataset) -> np.ndarray:
    arrays = [
        np.asarray(bags.instances[start : start + size], dtype=np.float64)
        for start, size in zip(bags.starts, bags.sizes, strict=True)
    ]
    return np.stack([np.concatenate([a.mean(0), a.max(0), a.std(0)]) for a in arrays])


def train(bags: miue.BagDataset, method: str, **more: object) -> miue.Model:
    settings = {"device": "cpu", "distances": (), "validation_fraction": 0.0}
    return miue.train(bags, method=method, settings=settings, progress=False, **more)  # type: ignore[arg-type]


def test_pooled_statistics_are_those_of_each_bag() -> None:
    batch = labeled_batch(RAGGED_SIZES)
    method = PooledLogistic(build_network("pooled", Identity((5,)), 3)).double()
    scores = method.bag_scores(batch).logits
    for row, bag in zip(scores, batch.instances.split(RAGGED_SIZES), strict=True):
        expected = np.concatenate([bag.mean(0), bag.max(0).values, bag.std(0, correction=0)])
        np.testing.assert_allclose(row, expected, atol=1e-12)


def test_the_regression_is_that_of_scikit_learn_at_the_best_penalty() -> None:
    bags = separable_bags(60)
    x, y = statistics(bags), bags.labels.values
    rows = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    predicted = train(bags, "pooled-logistic").predict(bags).bags.probabilities
    fits = [LogisticRegression(C=c, max_iter=500).fit(rows, y).predict_proba(rows) for c in PENALTIES]
    assert min(np.abs(fit - predicted).max() for fit in fits) < 1e-3
    assert np.abs(fits[0] - fits[-1]).max() > 0.1


def test_the_forest_is_that_of_scikit_learn_with_one_bag_more_in_each_leaf() -> None:
    bags = separable_bags(80)
    x, y = statistics(bags).astype(np.float32), bags.labels.values
    model = PooledForest(build_network("pooled", Identity((5,)), 3), trees=20, leaves=9)
    torch.manual_seed(5)
    model.fit_after_training([bags.batch(list(range(80)))])
    torch.manual_seed(5)
    seed = int(torch.randint(2**31 - 1, ()))
    seen = model.statistics([bags.batch(list(range(80)))])[0]
    np.testing.assert_allclose(seen, x, rtol=1e-4, atol=1e-5)
    forest = RandomForestClassifier(20, max_leaf_nodes=9, random_state=seed).fit(seen, y)
    new = np.random.default_rng(0).normal(size=(50, 15)).astype(np.float32)
    each = []
    for tree in forest.estimators_:
        leaf = tree.apply(new)
        counts = np.zeros((50, 3))
        counts[:, :2] = tree.tree_.value[leaf, 0] * tree.tree_.weighted_n_node_samples[leaf, None]
        each.append((counts + 1 / 3) / (counts.sum(1, keepdims=True) + 1))
    got = model.distribution(torch.from_numpy(new))
    np.testing.assert_allclose(got.probabilities, np.mean(each, 0), rtol=1e-6)
    entropy = np.mean([-(p * np.log(p)).sum(1) for p in each], 0)
    np.testing.assert_allclose(got.expected_entropy(), entropy, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_baseline_is_saved_resumed_and_predicts_instances_as_bags_of_one(method: str, tmp_path: Path) -> None:
    bags = separable_bags(40)
    model = miue.train(bags, method=method, settings={"device": "cpu"}, out=tmp_path / "run", progress=False)
    predicted = model.predict(bags)
    loaded = miue.Model.load(tmp_path / "run").predict(bags)
    assert np.array_equal(predicted.bags.probabilities, loaded.bags.probabilities)
    assert model.config.network.name == "pooled" and model.config.encoder.name == "identity"
    assert (predicted.bags.probabilities.argmax(1) == bags.labels.values).mean() > 0.9
    alone = miue.BagDataset.from_arrays([np.asarray(bags.instances[[row]]) for row in range(5)])
    one = model.predict(alone)
    assert one.instances is not None
    np.testing.assert_allclose(one.bags.probabilities, one.instances.probabilities, rtol=1e-6)
    again = miue.train(
        bags, method=method, settings={"device": "cpu"}, out=tmp_path / "run", if_exists="resume", progress=False
    )
    assert again.weights_sha256 == model.weights_sha256


@pytest.mark.parametrize("method", METHODS)
def test_other_networks_and_images_are_refused(method: str) -> None:
    with pytest.raises(ConfigError) as error:
        miue.train(separable_bags(), method=method, network="mean", progress=False)
    assert "pooled" in str(error.value)
    images = miue.BagDataset.from_arrays([np.zeros((2, 3, 8, 8), np.uint8)] * 8, [0, 1] * 4)
    with pytest.raises(miue.MiueError) as refused:
        miue.train(images, method=method, progress=False)
    assert "feature vectors" in str(refused.value)


def test_a_class_without_a_training_bag_is_never_predicted() -> None:
    bags = separable_bags(20)
    model = PooledLogistic(build_network("pooled", Identity((5,)), 3))
    model.fit_after_training([bags.batch(list(range(20)))])
    p = model.bag_log_probabilities(bags.batch([0, 1])).exp()
    assert (p[:, 2] < 1e-9).all()


def test_no_class_of_a_bag_far_beyond_the_training_bags_has_a_probability_of_zero() -> None:
    bags = separable_bags(40, seed=0)
    model = miue.train(bags, method="pooled-logistic", progress=False, settings={"device": "cpu"})
    far = np.full((1, *bags.instance_shape), 1e6, np.float32)
    p = model.predict([far, -far]).bags.probabilities
    assert (p > 1e-14).all() and (p.min(1) < 1e-9).any()
