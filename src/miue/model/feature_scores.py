"""Distances to the training features as scores of predictions: fitted after training, one forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from miue.bags import BagBatch, BagDataset, Segments, kind_of_pixels, ordered_batches, per_instance
from miue.common.devices import evaluated_on, torch_device
from miue.common.errors import ConfigError, DataError
from miue.common.seeds import derive_seed
from miue.common.tensors import has_double
from miue.distributions import MEASURES
from miue.methods import Method
from miue.model.encoding import encode_in_chunks
from miue.model.part import Part, find_part
from miue.model.predict import BATCH_INSTANCES, statistics_of, views_of
from miue.predictions import ERROR_PROBABILITY, OTHER_NAMES
from miue.scores import (
    DISTANCES,
    Combined,
    FeatureDistance,
    ImageStatistics,
    InstanceViews,
    NearestNeighbors,
    Typicality,
    bag_distances,
)

DistanceLike = str | type | FeatureDistance
FITTED_ON = 50_000  # instances at most, drawn without labels


def fit_distances(
    method: Method,
    bags: BagDataset,
    distances: Sequence[DistanceLike],
    *,
    seed: int,
    held_out: BagDataset | None = None,
    device: str = "auto",
) -> dict[str, FeatureDistance]:
    """Return distances fitted on training instances; instance labels are not used.

    "combined" brings those that it is made of: "knn", and "statistics" where the bags have images or their
    statistics, else "typicality".

    Args:
        method: trained; its first network's features and logits are used, dropout off.
        bags: training bags with labels.
        distances: which: names, import paths, classes, or distances that are fitted already.
        seed: of the draw of instances.
        held_out: bags that "combined" is standardized by, without shifts; the training bags if None.
        device: where instances are encoded, "auto", "cpu", "gpu", or torch's name of one; the distances are on the
            CPU in any case.

    Raises:
        ConfigError: a name that does not exist, two distances of one name, or a device that is not there.
        DataError: image statistics of features that were stored without them.
    """
    kinds = find_distances(distances)
    if Combined.name in kinds:
        looks = ImageStatistics if has_statistics(bags) else Typicality
        kinds = {kind.name: kind for kind in (NearestNeighbors, looks)} | kinds
    if not kinds:
        return {}
    check_statistics(kinds, bags)
    there = torch_device(device)
    views = _training_views(method, bags, seed, {kind.reads for kind in kinds.values()} - {Combined.reads}, there)
    fitted: dict[str, FeatureDistance] = {}
    for name, kind in kinds.items():
        if isinstance(kind, FeatureDistance):
            fitted[name] = kind
        elif kind is not Combined:
            generator = torch.Generator().manual_seed(derive_seed(seed, 1))
            fitted[name] = kind.fit(views[kind.reads], views["labels"], generator=generator)
    if Combined in kinds.values():
        fitted[Combined.name] = _fit_combined(method, bags if held_out is None else held_out, fitted, there)
    return fitted


def find_distances(distances: Sequence[DistanceLike]) -> dict[str, Any]:
    """Return classes of distances, and distances that are fitted already, by their names.

    Raises:
        ConfigError: a name that does not exist, or one of two different distances.
    """
    kinds: dict[str, Any] = {}
    for kind in map(find_distance, distances):
        made_by = kind if isinstance(kind, type) else type(kind)
        if DISTANCES.get(kind.name, made_by) is not made_by or kinds.get(kind.name, kind) is not kind:
            raise ConfigError(
                item=f"distance {kind.name!r}",
                wanted="one of this name",
                got=f"{made_by.__module__}.{made_by.__qualname__} beside another",
                fix="give each distance a 'name' of its own",
            )
        kinds[kind.name] = kind
    return kinds


def has_statistics(bags: BagDataset) -> bool:
    """Return whether the image statistics of the bags are stored, or can be computed."""
    return bags.statistics is not None or kind_of_pixels(bags) == "bytes"


def _reads_statistics(kinds: Mapping[str, Any]) -> bool:
    return any(kind.reads == ImageStatistics.reads for kind in kinds.values())


def check_statistics(distances: Mapping[str, Any], bags: BagDataset) -> None:
    """Raise where image statistics are needed that the bags do not have.

    Args:
        distances: of ``find_distances``.
        bags: to fit to, or to score.

    Raises:
        DataError: they are.
    """
    if _reads_statistics(distances) and not has_statistics(bags):
        are_images = len(bags.instance_shape) > 1
        start = "give the images as bytes (uint8)" if are_images else "tile the slides with 'miue data tile'"
        raise DataError(
            item=f"distance {ImageStatistics.name!r}",
            wanted="images of bytes, or features with the statistics of their patches beside them",
            got=f"{bags.instances.dtype} of shape {bags.instance_shape} without statistics",
            fix=f"{start}, or train with the distance {Typicality.name!r}",
        )


def find_distance(distance: DistanceLike) -> type[FeatureDistance] | FeatureDistance:
    """Return the class that a name, an import path or a class names, or the distance that is fitted already.

    Raises:
        ConfigError: a name that does not exist, something else than a distance, or one that lacks a method or a
            name by which its column and its tensors differ from all others.
    """
    part = part_of_distance(distance)
    kind = part.make
    if not (isinstance(kind, type) and issubclass(kind, FeatureDistance)):
        raise ConfigError(
            item=f"distance {part.name!r}",
            wanted="a class of the kind miue.scores.FeatureDistance",
            got=repr(kind),
            fix=f"choose one of {DISTANCES.help()}, or pass a class of that kind",
        )
    name: object = getattr(kind, "name", None)
    problem = "the name none" if name is None else f"the name {name!r}"
    if name in (*MEASURES, *OTHER_NAMES, ERROR_PROBABILITY):
        problem += ", which is a measure of uncertainty or a column"
    elif isinstance(name, str) and name and "." not in name:
        if not (missing := sorted(kind.__abstractmethods__)):
            return distance if isinstance(distance, FeatureDistance) else kind
        problem = f"one without {', '.join(missing)}"
    raise ConfigError(
        item=f"distance {kind.__qualname__!r}",
        wanted="a class with a 'name' of its own, a text without a dot, that defines _fitted_state and _distances",
        got=problem,
        fix="define these; docs/howto/own_network.md has an example",
    )


def part_of_distance(distance: DistanceLike) -> Part:
    """Return how a distance is named.

    Raises:
        ConfigError: a name that does not exist.
    """
    return find_part("distance", type(distance) if isinstance(distance, FeatureDistance) else distance)


class DistanceScores:
    """Distances as scores of predictions: "knn" of instances, "knn_mean" and "knn_high" (0.95 quantile) of bags.

    Args:
        distances: by name.
    """

    def __init__(self, distances: Mapping[str, FeatureDistance]) -> None:
        self.distances = distances
        neighbors, typicality = (distances.get(kind.name) for kind in (NearestNeighbors, Typicality))
        self._on_devices: dict[torch.device, DistanceScores] = {}
        self._by_one_search: tuple[NearestNeighbors, Typicality] | None = None
        if isinstance(neighbors, NearestNeighbors) and isinstance(typicality, Typicality):
            self._by_one_search = (neighbors, typicality) if typicality.points_are_first_of(neighbors) else None

    @property
    def reads_statistics(self) -> bool:
        """Whether a distance needs image statistics."""
        return _reads_statistics(self.distances)

    def check(self, bags: BagDataset) -> None:
        """Raise unless the bags have what the distances need.

        Raises:
            DataError: image statistics are not there.
        """
        check_statistics(self.distances, bags)

    def of_instances(self, views: InstanceViews) -> dict[str, Float[Tensor, "N"]]:
        """Return each distance of each instance, computed on the features' device where that has float64."""
        device = views.features.device
        if device.type != "cpu" and has_double(device):
            return self._on(device)._of_instances(views)
        return self._of_instances(views)

    def _on(self, device: torch.device) -> DistanceScores:
        """Return the same on another device, to which the distances are brought once."""
        if device not in self._on_devices:
            there = {}
            for name, distance in self.distances.items():
                state = {key: value.to(device) for key, value in distance.state_dict().items()}
                there[name] = type(distance).from_state(state)
            self._on_devices[device] = DistanceScores(there)
        return self._on_devices[device]

    def _of_instances(self, views: InstanceViews) -> dict[str, Float[Tensor, "N"]]:
        searched: dict[str, Tensor] = {}
        if self._by_one_search is not None:
            neighbors, typicality = self._by_one_search
            both = typicality.score_with(neighbors, views.features)
            searched = dict(zip((neighbors.name, typicality.name), both, strict=True))
        scores: dict[str, Tensor] = {}
        for name, distance in self.distances.items():
            if name in searched:
                scores[name] = searched[name]
            elif not isinstance(distance, Combined):
                scores[name] = distance.score(views.read(distance.reads))
        if isinstance(combined := self.distances.get(Combined.name), Combined):
            scores[Combined.name] = combined.score(combined_parts(scores))
        return scores

    def of_bags(self, scores: dict[str, Tensor], segments: Segments) -> dict[str, Float[Tensor, "B"]]:
        """Return mean and high quantile of each distance over each bag."""
        by_name = {name: bag_distances(distances, segments) for name, distances in scores.items()}
        if isinstance(combined := self.distances.get(Combined.name), Combined):
            by_name[Combined.name] = dict(combined.score_bags(combined_parts(scores), segments))
        return {f"{name}_{kind}": values for name, of in by_name.items() for kind, values in of.items()}


def combined_parts(scores: Mapping[str, Tensor]) -> Float[Tensor, "N 2"]:
    """Return the two scores that "combined" is made of: of looks, and of meaning."""
    looks = scores.get(ImageStatistics.name, scores.get(Typicality.name))
    assert looks is not None
    return torch.stack([looks, scores[NearestNeighbors.name]], 1)


def _fit_combined(
    method: Method, bags: BagDataset, fitted: Mapping[str, FeatureDistance], device: torch.device
) -> Combined:
    """Return "combined" standardized by all bags, of more than ``FITTED_ON`` instances by as many of each bag."""
    names = [name for name in fitted if name in (ImageStatistics.name, Typicality.name, NearestNeighbors.name)]
    scorer = DistanceScores({name: fitted[name] for name in names})
    rows, sizes = [], []
    chosen = _some_of_each(bags)
    for features, kept, batch, statistics in _encoded(method, bags, scorer.reads_statistics, device, chosen):
        views = views_of(method.members()[0], features, statistics)
        rows.append(combined_parts(scorer.of_instances(views)).cpu())
        sizes.append(torch.bincount(batch.segments.index[kept], minlength=len(batch.segments.sizes)))
    return Combined.fit_bags(torch.cat(rows), Segments(torch.cat(sizes)))


def _some_of_each(bags: BagDataset) -> Bool[Tensor, "M"] | None:
    """Return which instances of each bag are kept so that about ``FITTED_ON`` are; None where all are."""
    if int(bags.sizes.sum()) <= FITTED_ON:
        return None
    most, draw = max(1, FITTED_ON // len(bags)), np.random.default_rng(0)
    chosen = []
    for size in bags.sizes.tolist():
        kept = np.zeros(size, bool)
        kept[draw.permutation(size)[:most]] = True
        chosen.append(kept)
    return torch.from_numpy(np.concatenate(chosen))


def _encoded(
    method: Method, bags: BagDataset, statistics: bool, device: torch.device, chosen: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, BagBatch, Tensor | None]]:
    """Yield features, rows, batch and image statistics, a batch at a time; of all instances, or those chosen.

    Features and statistics are on the device; of a batch, only the rows are brought there.
    """
    network, end = method.members()[0], 0
    with evaluated_on(device, network):
        for group in ordered_batches(bags, BATCH_INSTANCES).groups:
            batch = bags.batch(group, statistics=statistics)
            start, end = end, end + len(batch.instances)
            rows = torch.arange(end - start) if chosen is None else chosen[start:end].nonzero().flatten()
            with torch.no_grad():
                of_images = statistics_of(batch, rows) if statistics else None
                features = encode_in_chunks(network.encode, batch.instances[rows].to(device))
                yield features, rows, batch, None if of_images is None else of_images.to(device)


def _training_views(
    method: Method, bags: BagDataset, seed: int, kinds: Set[str], device: torch.device
) -> dict[str, Tensor]:
    """Return up to ``FITTED_ON`` instances drawn at random, by what is read of them, and their bags' "labels"."""
    total = int(bags.sizes.sum())
    kept = torch.randperm(total, generator=torch.Generator().manual_seed(derive_seed(seed, 0)))[:FITTED_ON]
    chosen = torch.zeros(total, dtype=torch.bool)
    chosen[kept] = True
    parts: dict[str, list[Tensor]] = {kind: [] for kind in (*kinds, "labels")}
    for features, rows, batch, of_images in _encoded(method, bags, ImageStatistics.reads in kinds, device, chosen):
        views = views_of(method.members()[0], features, of_images)
        with torch.no_grad():
            for kind in kinds:
                parts[kind].append(views.read(kind).cpu())
        parts["labels"].append(per_instance(batch.labels, batch.segments)[rows])
    return {kind: torch.cat(values) for kind, values in parts.items()}
