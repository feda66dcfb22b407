"""Distances to the training features as scores of predictions: fitted after training, one forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags.batches import ordered_batches
from miue.bags.dataset import BagDataset
from miue.bags.segments import Segments, per_instance
from miue.common.errors import unknown_name
from miue.common.seeds import seed_of
from miue.methods import Method
from miue.model.predict import BATCH_INSTANCES, encode_in_chunks
from miue.scores import DISTANCES, FeatureDistance, bag_distances

FITTED_ON = 50_000  # instances at most, drawn without labels


def fit_distances(
    method: Method, bags: BagDataset, names: Sequence[str], *, seed: int
) -> dict[str, FeatureDistance]:
    """Return distances fitted on the features of training instances; instance labels are not used.

    Args:
        method: trained; its first network's features are used, dropout off.
        bags: training bags with labels.
        names: which distances.
        seed: of the draw of instances.

    Raises:
        ConfigError: a name that does not exist.
    """
    for name in names:
        if name not in DISTANCES:
            raise unknown_name("distance", name, DISTANCES)
    if not names:
        return {}
    features, labels = _training_features(method, bags, seed)
    return {
        name: DISTANCES[name].fit(features, labels, generator=torch.Generator().manual_seed(seed_of(seed, 1)))
        for name in names
    }


class DistanceScores:
    """Distances as scores of predictions: "knn" of instances, "knn_mean" and "knn_high" (0.95 quantile) of bags.

    Args:
        distances: by name.
    """

    def __init__(self, distances: Mapping[str, FeatureDistance]) -> None:
        self.distances = distances

    def of_instances(self, features: Float[Tensor, "N D"]) -> dict[str, Float[Tensor, "N"]]:
        """Return each distance of each instance."""
        return {name: distance.score(features) for name, distance in self.distances.items()}

    def of_bags(self, scores: dict[str, Tensor], segments: Segments) -> dict[str, Float[Tensor, "B"]]:
        """Return mean and high quantile of each distance over each bag."""
        return {
            f"{name}_{kind}": values
            for name, distances in scores.items()
            for kind, values in bag_distances(distances, segments).items()
        }


def _training_features(method: Method, bags: BagDataset, seed: int) -> tuple[Tensor, Tensor]:
    """Return features of up to ``FITTED_ON`` instances drawn at random, and the labels of their bags."""
    total = int(bags.sizes.sum())
    kept = torch.randperm(total, generator=torch.Generator().manual_seed(seed_of(seed, 0)))[:FITTED_ON]
    chosen = torch.zeros(total, dtype=torch.bool)
    chosen[kept] = True
    network = method.members()[0]
    was_training = network.training
    network.eval()
    features, labels, end = [], [], 0
    with torch.no_grad():
        for batch in ordered_batches(bags, BATCH_INSTANCES):
            start, end = end, end + len(batch.instances)
            members = chosen[start:end]
            features.append(encode_in_chunks(network, batch.instances[members]))
            labels.append(per_instance(batch.labels, batch.segments)[members])
    network.train(was_training)
    return torch.cat(features), torch.cat(labels)
