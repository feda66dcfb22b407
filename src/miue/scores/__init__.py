"""Distances of instances to the training features: model uncertainty that needs no second model."""

from __future__ import annotations

from miue.scores.aggregation import bag_distances
from miue.scores.base import FeatureDistance
from miue.scores.mahalanobis import ClassConditionalMahalanobis, Mahalanobis
from miue.scores.nearest_neighbours import NearestNeighbours
from miue.scores.reconstruction import Reconstruction

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
