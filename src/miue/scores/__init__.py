"""Distances of instances to the training features: epistemic uncertainty from a single forward pass."""

from __future__ import annotations

from miue.common.parts import DISTANCES as _DISTANCES
from miue.common.registry import Registry
from miue.scores.base import FeatureDistance, InstanceViews, bag_distances
from miue.scores.combined import Combined
from miue.scores.energy import Energy, VirtualLogit
from miue.scores.mahalanobis import ClassConditionalMahalanobis, ClassDensity, Mahalanobis
from miue.scores.nearest_neighbors import NearestNeighbors
from miue.scores.principal_components import Reconstruction
from miue.scores.typicality import Typicality
from miue.scores.whitening import ImageStatistics

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
