"""Distance to the nearest training instances."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance, per_step
from miue.scores.principal_components import principal_components

NEIGHBORS = 10
SPARE = 4  # further candidates, so that rounding to float32 hardly ever hides one of the nearest
TIED = 1e-6  # squared distances that differ by less, relatively, count as equal
STORED = 4096  # of which the search costs less than the network; see docs/method.md
GROUP = 8  # points, or groups of points, of which the nearest is searched first
ROWS = 256  # instances whose closeness to all points, 4 MB, is held at a time; with fewer, calls cost more


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
    is_threaded: ClassVar[bool] = True
    state_names: ClassVar[tuple[str, ...]] = ("mean", "components", "points")
    mean: Tensor
    components: Tensor
    points: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        mean, components = principal_components(features)
        order = torch.randperm(len(features), generator=generator, device=generator.device)
        drawn = features[order[:STORED].to(features.device)].double()
        return {"mean": mean, "components": components, "points": (drawn - mean) @ components}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        return self.search(rows, (len(self.points),))[0]

    def search(self, rows: Float[Tensor, "n D"], counts: Sequence[int]) -> list[Float[Tensor, "n"]]:
        """Return the mean distance to the nearest among the first points, for each count of these, in one search.

        Rows of which rounding to float32 may hide a nearest point are searched again in float64, and those of
        which this may as well, by the differences to all points.

        Args:
            rows: float64 features on the device of the points.
            counts: of points, each at least 1 and at most all.
        """
        blocks = rows.split(per_step(ROWS, rows.device))
        projected = torch.cat([(block - self.mean) @ self.components for block in blocks])
        distances = []
        for count, (found, is_proved) in zip(counts, self._search(projected, counts, self._weights), strict=True):
            unsure = (~is_proved).nonzero().squeeze(1)
            if len(unsure):
                [(again, is_proved)] = self._search(projected[unsure], (count,), self._double_weights)
                found[unsure] = again
                unsure = unsure[~is_proved]
                found[unsure] = self._by_all_differences(projected[unsure], count)
            distances.append(found)
        return distances

    def _search(
        self, projected: Float[Tensor, "n K"], counts: Sequence[int], weights: Float[Tensor, "W P"]
    ) -> list[tuple[Float[Tensor, "n"], Bool[Tensor, "n"]]]:
        """Return the mean distance for each count, and whether it is proved to be that to the nearest points.

        Args:
            projected: z of each row, float64.
            counts: of points.
            weights: of the points, in the precision in which candidates are sought.
        """
        weights, size = weights.to(projected.device), per_step(ROWS, projected.device)
        # used again for each block, since new pages cost more than the product
        memory = weights.new_empty(size, weights.shape[1])
        blocks: list[list[tuple[Tensor, ...]]] = [[] for _ in counts]
        for block in projected.split(size):
            padded = torch.nn.functional.pad(block.to(weights.dtype), (0, 1), value=1.0)
            closeness = torch.mm(padded, weights, out=memory[: len(block)])
            for of_count, count in zip(blocks, counts, strict=True):
                among = closeness if count == len(self.points) else closeness[:, :count]
                candidates, values = _candidates(among, count)
                of_count.append((self._nearest_of(block, candidates), values))
        squares = projected.square().sum(1)
        largest = (squares.sqrt() + self._reach.to(squares.device)).square()
        least = squares - self._rounding(largest, weights.dtype)  # squared distance, less its closeness, at least
        equal = largest.sqrt() * len(self.mean) * torch.finfo(torch.float64).eps  # as far as projections are exact
        searched = []
        for of_count, count in zip(blocks, counts, strict=True):
            nearest, values = map(torch.cat, zip(*of_count, strict=True))
            farthest, last = nearest.amax(1), values.amax(1).double()
            # no other point is closer than the last candidate, as far as its closeness is exact
            is_proved = (last + least >= farthest.square() * (1 - TIED)) | (farthest <= equal)
            searched.append(
                (nearest.mean(1), last.isfinite() & (is_proved if count > NEIGHBORS + SPARE else True))
            )
        return searched

    def _rounding(self, largest: Float[Tensor, "n"], dtype: torch.dtype) -> Float[Tensor, "n"]:
        """Return by how much the closeness of a row to a point may be wrong, infinity where it may overflow.

        Args:
            largest: bound of the squared distance to any point.
            dtype: in which closeness is computed.
        """
        limits = torch.finfo(dtype)
        is_coarser = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
        unit = (torch.finfo(torch.bfloat16) if is_coarser else limits).eps / 2
        terms = self.points.shape[1] + 6  # of the sum, and the roundings of each
        rounding = terms * (unit * largest + 8 * limits.tiny)
        return torch.where(largest < limits.max / 16, rounding, torch.inf)

    def _nearest_of(
        self, projected: Float[Tensor, "n K"], candidates: Int64[Tensor, "n P"]
    ) -> Float[Tensor, "n k"]:
        """Return the smallest distances, by difference, which is zero to a point that equals the instance."""
        gaps = torch.nn.functional.embedding(candidates, self.points).sub_(projected.unsqueeze(1))
        return _smallest(torch.linalg.vector_norm(gaps, dim=2))

    def _by_all_differences(self, projected: Float[Tensor, "n K"], count: int) -> Float[Tensor, "n"]:
        """Return the mean distance to the nearest of the first ``count`` points, of which each is looked at."""
        exact = "donot_use_mm_for_euclid_dist"
        points = self.points[:count]
        blocks = projected.split(per_step(ROWS, projected.device))
        nearest = (_smallest(torch.cdist(block, points, compute_mode=exact)) for block in blocks)
        return torch.cat([gaps.mean(1) for gaps in nearest])

    @cached_property
    def _weights(self) -> Float[Tensor, "W P"]:
        return self._weights_in(torch.float32)

    @cached_property
    def _double_weights(self) -> Float[Tensor, "W P"]:
        return self._weights_in(torch.float64)

    def _weights_in(self, dtype: torch.dtype) -> Float[Tensor, "W P"]:
        """Return −2 pᵀ over ‖p‖² of every point p, and infinity up to a multiple of ``GROUP`` twice over."""
        weights = torch.cat([-2 * self.points.T, self.points.square().sum(1)[None]]).to(dtype)
        missing = weights.new_zeros(len(weights), -len(self.points) % GROUP**2)
        missing[-1] = torch.inf
        return torch.cat([weights, missing], 1)

    @cached_property
    def _reach(self) -> Float[Tensor, ""]:
        """The largest ‖p‖."""
        return torch.linalg.vector_norm(self.points, dim=1).amax()


def _smallest(gaps: Float[Tensor, "n P"]) -> Float[Tensor, "n k"]:
    return gaps.topk(min(NEIGHBORS, gaps.shape[1]), largest=False, sorted=False).values


def _candidates(closeness: Float[Tensor, "n W"], points: int) -> tuple[Int64[Tensor, "n P"], Float[Tensor, "n P"]]:
    """Return the points that may be nearest, ``SPARE`` more than needed, and their closeness.

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
    values, chosen = _least(levels[-1], wanted)
    for level in reversed(levels[:-1]):
        groups = level.shape[1] // GROUP
        firsts = groups * torch.arange(GROUP, device=chosen.device)[:, None]
        members = (chosen.unsqueeze(1) + firsts).flatten(1)
        values, nearest = _least(level.gather(1, members), wanted)
        chosen = members.gather(1, nearest)
    return chosen.clamp(max=points - 1), values  # columns of no point beside values that overflow alone


def _least(values: Float[Tensor, "n W"], wanted: int) -> tuple[Float[Tensor, "n P"], Int64[Tensor, "n P"]]:
    """Return the smallest values of each row and their columns, in no order; on a CPU by NumPy, twice as fast."""
    if values.device.type != "cpu":
        found = values.topk(wanted, largest=False, sorted=False)
        return found.values, found.indices
    columns = torch.from_numpy(np.argpartition(values.numpy(), wanted - 1, axis=1)[:, :wanted])
    return values.gather(1, columns), columns
