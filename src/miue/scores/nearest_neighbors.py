"""Distance to the nearest training instances."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.principal_components import principal_components

NEIGHBORS = 10
SPARE = 4  # further candidates, so that rounding to float32 omits none of the nearest
COMPONENTS = 64
STORED = 4096  # of which the search costs less than the network; see docs/method.md
GROUP = 8  # points, or groups of points, of which the nearest is searched first
ROWS = 64  # instances whose closeness to all points, 1 MB, stays in a CPU's cache


class NearestNeighbors(FeatureDistance):
    """Mean distance to the k = 10 nearest training instances, in principal components of the features.

    d(h) = (1/k) Σ_{j nearest} ‖z − z_j‖ with z = Vᵀ(h − μ). V has up to 64 columns, fitted to all training
    instances; z_j are up to 4,096 of them drawn at random; with fewer than k points, all are used.

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
        return self.search(rows, (len(self.points),))[0]

    def search(self, rows: Float[Tensor, "n D"], counts: Sequence[int]) -> list[Float[Tensor, "n"]]:
        """Return the mean distance to the nearest among the first points, for each count of these, in one search.

        Args:
            rows: float64 features on the device of the points.
            counts: of points, each at least 1 and at most all.
        """
        projected = (rows - self.mean) @ self.components
        weights = self._weights.to(projected.device)
        # used again for each block, since new pages cost more than the product
        memory = weights.new_empty(ROWS, weights.shape[1])
        distances: list[list[Tensor]] = [[] for _ in counts]
        for block in projected.split(ROWS):
            padded = torch.nn.functional.pad(block.float(), (0, 1), value=1.0)
            closeness = torch.mm(padded, weights, out=memory[: len(block)])
            for chosen, count in zip(distances, counts, strict=True):
                among = closeness if count == len(self.points) else closeness[:, :count]
                chosen.append(self._mean_distance(block, _candidates(among, count)))
        return [torch.cat(blocks) for blocks in distances]

    def _mean_distance(
        self, projected: Float[Tensor, "n K"], candidates: Int64[Tensor, "n P"]
    ) -> Float[Tensor, "n"]:
        """Return exact distances by difference, so that an instance equal to a stored one has distance zero."""
        gaps = torch.linalg.vector_norm(projected.unsqueeze(1) - self.points[candidates], dim=2)
        nearest = gaps.topk(min(NEIGHBORS, candidates.shape[1]), largest=False, sorted=False).values
        return nearest.mean(1)

    @cached_property
    def _weights(self) -> Float[Tensor, "W P"]:
        """−2 pᵀ over ‖p‖² of every point p, and infinity up to a multiple of ``GROUP`` twice over."""
        points = self.points.float()
        weights = torch.cat([-2 * points.T, points.square().sum(1)[None]])
        missing = weights.new_zeros(len(weights), -len(points) % GROUP**2)
        missing[-1] = torch.inf
        return torch.cat([weights, missing], 1)


def _candidates(closeness: Float[Tensor, "n W"], points: int) -> Int64[Tensor, "n P"]:
    """Return the points that may be nearest, ``SPARE`` more than needed.

    The smallest of many values are among the groups with the smallest minima: groups of ``GROUP``, groups of
    these and so on are searched, from the largest down.

    Args:
        closeness: ‖p‖² − 2 z·p, which is ‖z − p‖² without a term that is the same for all points p.
        points: how many columns are of points.
    """
    levels = [closeness]
    wanted = min(NEIGHBORS + SPARE, points)
    while levels[-1].shape[1] % GROUP == 0 and levels[-1].shape[1] > GROUP * wanted:
        levels.append(levels[-1].unflatten(1, (GROUP, -1)).amin(1))
    chosen = levels[-1].topk(wanted, largest=False, sorted=False).indices
    for level in reversed(levels[:-1]):
        groups = level.shape[1] // GROUP
        firsts = groups * torch.arange(GROUP, device=chosen.device)[:, None]
        members = (chosen.unsqueeze(1) + firsts).flatten(1)
        nearest = level.gather(1, members).topk(wanted, largest=False, sorted=False).indices
        chosen = members.gather(1, nearest)
    return chosen
