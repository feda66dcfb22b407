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
    network = build_network("pooled", Identity((5,)), 3).double()
    scores = network.score(network.project(batch.instances), batch.segments).logits
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
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(80, 15)), generator.integers(0, 3, 80)
    model = PooledForest(build_network("pooled", Identity((5,)), 3), trees=20, leaves=9)
    torch.manual_seed(5)
    model.fit_statistics(x, y)
    torch.manual_seed(5)
    seed = int(torch.randint(2**31 - 1, ()))
    forest = RandomForestClassifier(20, max_leaf_nodes=9, random_state=seed).fit(x.astype(np.float32), y)
    new = generator.normal(size=(50, 15)).astype(np.float32)
    each = []
    for tree in forest.estimators_:
        leaf = tree.apply(new)
        counts = tree.tree_.value[leaf, 0] * tree.tree_.weighted_n_node_samples[leaf, None]
        each.append((counts + 1 / 3) / (counts.sum(1, keepdims=True) + 1))
    got = model.distribution(torch.from_numpy(new))
    np.testing.assert_allclose(got.probabilities, np.mean(each, 0), rtol=1e-6)
    entropy = np.mean([-(p * np.log(p)).sum(1) for p in each], 0)
    np.testing.assert_allclose(got.expected_entropy(), entropy, rtol=1e-6)
    assert (got.mutual_information() > 0.01).all()


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


def test_classes_without_a_training_bag_have_no_weight() -> None:
    model = PooledLogistic(build_network("pooled", Identity((2,)), 3))
    generator = np.random.default_rng(0)
    model.fit_statistics(generator.normal(size=(20, 6)), np.array([0, 2] * 10))
    p = model.distribution(torch.zeros(1, 6)).probabilities
    assert p[0, 1] == 0 and abs(float(p.sum()) - 1) < 1e-12
