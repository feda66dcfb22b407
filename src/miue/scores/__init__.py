"""Distances of instances to the training features: epistemic uncertainty from a single forward pass."""

from __future__ import annotations

from miue.common.parts import DISTANCES as _DISTANCES
from miue.common.registry import Registry
from miue.scores.aggregation import bag_distances
from miue.scores.base import FeatureDistance
from miue.scores.class_density import ClassDensity
from miue.scores.combined import Combined
from miue.scores.energy import Energy, VirtualLogit
from miue.scores.mahalanobis import ClassConditionalMahalanobis, Mahalanobis
from miue.scores.nearest_neighbors import NearestNeighbors
from miue.scores.reconstruction import Reconstruction
from miue.scores.statistics import ImageStatistics
from miue.scores.typicality import Typicality
from miue.scores.views import InstanceViews

DISTANCES: Registry[type[FeatureDistance]] = _DISTANCES

__all__ = [
    "DISTANCES",
    "ClassConditionalMahalanobis",
    "ClassDensity",
    "Combined",
    "Energy",
    "FeatureDistance",
    "ImageStatistics",
    "InstanceViews",
    "Mahalanobis",
    "NearestNeighbors",
    "Reconstruction",
    "Typicality",
    "VirtualLogit",
    "bag_distances",
]
