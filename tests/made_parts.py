"""Predictions of bags of any sizes, to be written in parts, and their comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import miue
from miue.distributions import Categorical, Dirichlet, Draws
from miue.predictions import Predictions, PredictionTable, StoredInstances, read_predictions


def ragged(sizes: list[int], kind: str = "dirichlet", seed: int = 0) -> Predictions:
    """Predictions of bags of these sizes, in float32 as a network makes them."""
    random = np.random.default_rng(seed)
    classes, total = 3, sum(sizes)
    names = np.array([f"{number:03d}" for number in range(len(sizes))], object)

    def table(count: int, bag_ids: np.ndarray, instance: np.ndarray | None) -> PredictionTable:
        logits = torch.from_numpy(random.normal(size=(count, classes)).astype(np.float32) * 8)
        draws = [Categorical.of_logits(logits + number) for number in torch.arange(0.0, 3.0)]
        distributions = {
            "dirichlet": Dirichlet(logits.exp() + 1),
            "categorical": Categorical.of_logits(logits),
            "draws": Draws.of([*draws, Categorical.of_logits(-logits)]),
        }
        out = random.random(count) < 0.4
        return PredictionTable(
            distribution=distributions[kind],
            bag_ids=bag_ids,
            labels=miue.bags.known.Labels(random.integers(classes, size=count), random.random(count) < 0.8),
            is_ood=miue.bags.known.OodFlags(out, out | (random.random(count) < 0.7)),
            ood_sets=np.where(out, random.choice(["cats", "dogs"], count), "").astype(object),
            instance=instance,
            scores={"knn": random.gamma(2, 1, count).astype(np.float32).astype(np.float64)},
        )

    within = np.concatenate([np.arange(size) for size in sizes])
    return Predictions(
        table(len(sizes), names, None), table(total, np.repeat(names, sizes), within.astype(np.int64))
    )


def stored(predictions: Predictions, path: Path) -> StoredInstances:
    """Write and read again."""
    predictions.save(path, overwrite=True)
    instances = read_predictions(path).instances
    assert isinstance(instances, StoredInstances)
    return instances


def assert_same(found: PredictionTable, wanted: PredictionTable) -> None:
    assert type(found.distribution) is type(wanted.distribution)
    assert found.bag_ids.tolist() == wanted.bag_ids.tolist()
    assert found.ood_sets.tolist() == wanted.ood_sets.tolist()
    for ours, theirs in ((found.labels, wanted.labels), (found.is_ood, wanted.is_ood)):
        assert np.array_equal(ours.known, theirs.known)
        assert np.array_equal(ours.values[ours.known], theirs.values[theirs.known])
    assert found.instance is not None and wanted.instance is not None
    assert np.array_equal(found.instance, wanted.instance)
    assert list(found.uncertainties()) == list(wanted.uncertainties())
    for name, values in wanted.uncertainties().items():
        assert np.array_equal(found.uncertainty(name), values), name
