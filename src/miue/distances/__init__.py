"""Distances of instances to the training features: model uncertainty that needs no second model."""

from __future__ import annotations

from miue.distances.aggregation import bag_distances
from miue.distances.base import FeatureDistance
from miue.distances.mahalanobis import ClassConditionalMahalanobis, Mahalanobis
from miue.distances.nearest_neighbours import NearestNeighbours
from miue.distances.reconstruction import Reconstruction

DISTANCES: dict[str, type[FeatureDistance]] = {
    score.name: score for score in (NearestNeighbours, Mahalanobis, ClassConditionalMahalanobis, Reconstruction)
}

__all__ = [
    "DISTANCES",
    "ClassConditionalMahalanobis",
    "FeatureDistance",
    "Mahalanobis",
    "NearestNeighbours",
    "Reconstruction",
    "bag_distances",
]
