"""Distance to the nearest training instances."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.principal_components import principal_components

NEIGHBORS = 10
COMPONENTS = 64
STORED = 10_000


class NearestNeighbors(FeatureDistance):
    """Mean distance to the k = 10 nearest training instances, in principal components of the features.

    d(h) = (1/k) Σ_{j nearest} ‖z − z_j‖ with z = Vᵀ(h − μ). V has up to 64 columns, fitted to all training
    instances; z_j are up to 10,000 of them drawn at random; with fewer than k points, all are used.

    Reference: Sun et al. 2022, "Out-of-distribution detection with deep nearest neighbors", Sec. 3.
    Differs from it: the mean of the k distances, not the k-th; principal components, not unit-length features.

    Args:
        state: mean (D), components (D, K) and points (P, K).

    >>> training = torch.tensor([[0.0], [2.0]])
    >>> score = NearestNeighbors.fit(training, None, generator=torch.Generator())
    >>> score.score(torch.tensor([[1.0], [5.0]])).tolist()
    [1.0, 4.0]
    """

    name: ClassVar[str] = "knn"
    state_names: ClassVar[tuple[str, ...]] = ("mean", "components", "points")
    mean: Tensor
    components: Tensor
    points: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        mean, components = principal_components(features, COMPONENTS)
        order = torch.randperm(len(features), generator=generator, device=generator.device)
        drawn = features[order[:STORED].to(features.device)].double()
        return {"mean": mean, "components": components, "points": (drawn - mean) @ components}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        projected = (rows - self.mean) @ self.components
        # Candidates by ‖z − p‖² − ‖z‖², whose second term is the same for all points p, in float32: twice as
        # many as needed, so that rounding omits none of the nearest.
        points = self.points.float()
        closeness = torch.addmm(points.square().sum(1), projected.float(), points.T, alpha=-2)
        candidates = closeness.topk(min(2 * NEIGHBORS, len(points)), largest=False, sorted=False).indices
        # Exact distances by difference, so that an instance equal to a stored one has distance zero.
        gaps = torch.linalg.vector_norm(projected.unsqueeze(1) - self.points[candidates], dim=2)
        nearest = gaps.topk(min(NEIGHBORS, len(points)), largest=False, sorted=False).values
        return nearest.mean(1)
