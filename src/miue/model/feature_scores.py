"""Distances to the training features as scores of predictions: fitted after training, one forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags.batches import ordered_batches
from miue.bags.dataset import BagDataset
from miue.bags.segments import Segments, per_instance
from miue.common.errors import ConfigError
from miue.common.seeds import derive_seed
from miue.methods import Method
from miue.model.part import Part, find_part
from miue.model.predict import BATCH_INSTANCES, encode_in_chunks
from miue.scores import DISTANCES, FeatureDistance, bag_distances

DistanceLike = str | type | FeatureDistance
FITTED_ON = 50_000  # instances at most, drawn without labels


def fit_distances(
    method: Method, bags: BagDataset, distances: Sequence[DistanceLike], *, seed: int
) -> dict[str, FeatureDistance]:
    """Return distances fitted on the features of training instances; instance labels are not used.

    Args:
        method: trained; its first network's features are used, dropout off.
        bags: training bags with labels.
        distances: which: names, import paths, classes, or distances that are fitted already.
        seed: of the draw of instances.

    Raises:
        ConfigError: a name that does not exist.
    """
    kinds = [find_distance(distance) for distance in distances]
    if not kinds:
        return {}
    features, labels = _training_features(method, bags, seed)
    return {
        kind.name: kind
        if isinstance(kind, FeatureDistance)
        else kind.fit(features, labels, generator=torch.Generator().manual_seed(derive_seed(seed, 1)))
        for kind in kinds
    }


def find_distance(distance: DistanceLike) -> type[FeatureDistance] | FeatureDistance:
    """Return the class that a name, an import path or a class names, or the distance that is fitted already.

    Raises:
        ConfigError: a name that does not exist, or something else than a distance.
    """
    if isinstance(distance, FeatureDistance):
        return distance
    part = find_part("distance", distance)
    if not (isinstance(part.make, type) and issubclass(part.make, FeatureDistance)):
        raise ConfigError(
            item=f"distance {part.name!r}",
            wanted="a class of the kind miue.scores.FeatureDistance",
            got=repr(part.make),
            fix=f"choose one of {DISTANCES.help()}, or pass a class of that kind",
        )
    return part.make


def part_of_distance(distance: DistanceLike) -> Part:
    """Return how a distance is named.

    Raises:
        ConfigError: a name that does not exist.
    """
    return find_part("distance", type(distance) if isinstance(distance, FeatureDistance) else distance)


def check_saveable_distances(distances: Sequence[DistanceLike]) -> None:
    """Raise unless another process can import the classes of these distances.

    Raises:
        ConfigError: it cannot.
    """
    for distance in distances:
        part = part_of_distance(distance)
        if part.unsaveable:
            raise ConfigError(
                item=f"distance {part.name!r}",
                wanted="a class that another process can import, so that the model can be saved",
                got=part.unsaveable,
                fix="define it in a module that can be imported, or keep the model in memory",
            )


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
    kept = torch.randperm(total, generator=torch.Generator().manual_seed(derive_seed(seed, 0)))[:FITTED_ON]
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
