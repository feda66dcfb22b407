"""Distances of instances to the training features: model uncertainty that needs no second model."""

from __future__ import annotations

from miue.common.parts import DISTANCES as _DISTANCES
from miue.common.registry import Registry
from miue.scores.aggregation import bag_distances
from miue.scores.base import FeatureDistance
from miue.scores.mahalanobis import ClassConditionalMahalanobis, Mahalanobis
from miue.scores.nearest_neighbours import NearestNeighbours
from miue.scores.reconstruction import Reconstruction

DISTANCES: Registry[type[FeatureDistance]] = _DISTANCES

__all__ = [
    "DISTANCES",
    "ClassConditionalMahalanobis",
    "FeatureDistance",
    "Mahalanobis",
    "NearestNeighbours",
    "Reconstruction",
    "bag_distances",
]
