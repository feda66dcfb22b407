"""Distance to the nearest training instances."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.principal_components import principal_components

NEIGHBOURS = 10
COMPONENTS = 64
STORED = 10_000


class NearestNeighbours(FeatureDistance):
    """Mean distance to the k = 10 nearest training instances, in the principal components of the features.

    d(h) = (1/k) Σ_{j nearest} ‖z − z_j‖ with z = Vᵀ(h − μ); V holds up to 64 directions fitted to all
    training instances, z_j are up to 10,000 of them drawn at random; k is their number if they are fewer.

    Reference: Sun et al. 2022, "Out-of-distribution detection with deep nearest neighbors", Sec. 3.
    Differs from it: the mean of the k distances, not the k-th; components in place of unit-length features.

    Args:
        state: mean (D), components (D, K) and points (P, K).

    >>> training = torch.tensor([[0.0], [2.0]])
    >>> score = NearestNeighbours.fit(training, None, generator=torch.Generator())
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
        cls,
        features: Float[Tensor, "M D"],
        bag_labels: Int64[Tensor, "M"] | None,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        mean, components = principal_components(features, COMPONENTS)
        order = torch.randperm(len(features), generator=generator, device=generator.device)
        drawn = features[order[:STORED].to(features.device)].double()
        return {"mean": mean, "components": components, "points": (drawn - mean) @ components}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        projected = (rows - self.mean) @ self.components
        # Candidates by ‖z − p‖² less ‖z‖², which is the same for all points p, in float32: twice as many as
        # are wanted, so that rounding leaves out none of the nearest.
        points = self.points.float()
        closeness = torch.addmm(points.square().sum(1), projected.float(), points.T, alpha=-2)
        candidates = closeness.topk(min(2 * NEIGHBOURS, len(points)), largest=False, sorted=False).indices
        # Then by difference, so that an instance equal to a stored one is at distance zero, not at rounding.
        gaps = torch.linalg.vector_norm(projected.unsqueeze(1) - self.points[candidates], dim=2)
        nearest = gaps.topk(min(NEIGHBOURS, len(points)), largest=False, sorted=False).values
        return nearest.mean(1)
