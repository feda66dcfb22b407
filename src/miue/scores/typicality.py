"""Joint typicality of features: two-sided, so that features nearer than usual count too."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.errors import DataError
from miue.scores.base import finite_chunks
from miue.scores.nearest_neighbors import NearestNeighbors
from miue.scores.principal_components import leading_half, principal_components
from miue.scores.whitening import ROUNDING, fit_whitening, floors_of, logs, typical_rounding

STORED = 1024  # fewer than of the nearest neighbors, since one coordinate of four needs no more
LEAST = 4
OF_PRODUCTS = 1e-12  # rounding of products, relative to the largest
ROUNDING_OF_NORM = 1e-5  # of float32, times the norm of features: a shorter distance may be that of two copies


class Typicality(NearestNeighbors):
    """Mahalanobis distance of four numbers of the features, large where one of them is unusually small or large.

    d(h) = ‖(t − μ) W‖, W Wᵀ = Σ⁻¹ with the shrunk covariance Σ of t over training instances. t are the logs of the
    distance to the nearest training instances, the residual outside of 64 principal components (of D / 2 where
    there are fewer), the Mahalanobis distance inside them, and the norm ‖h‖. Features of a blurred image, say, are
    nearer to their neighbors. Neighbors are at most 1,024, or half, of the instances; t is fitted to the others.

    Args:
        state: of ``NearestNeighbors``; variances (K) of the components; floors (4), the smallest values that are
            no rounding; center (4) and whitening (4, 4).
    """

    name: ClassVar[str] = "typicality"
    state_names: ClassVar[tuple[str, ...]] = (
        *NearestNeighbors.state_names,
        "variances",
        "floors",
        "center",
        "whitening",
    )
    variances: Tensor
    floors: Tensor
    center: Tensor
    whitening: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        if len(features) < LEAST:
            wanted, fix = f"{LEAST} instances or more for {cls.name!r}", "fit it on more bags, or use 'knn'"
            raise DataError(item="training features", wanted=wanted, got=str(len(features)), fix=fix)
        order = torch.randperm(len(features), generator=generator, device=generator.device).to(features.device)
        stored = min(STORED, len(features) // 2)
        mean, components = principal_components(features)
        variances = components.new_zeros(components.shape[1])
        for _, rows in finite_chunks(features):
            variances += ((rows - mean) @ components).square().sum(0) / len(features)
        few = features.new_zeros(4, dtype=torch.float64)
        state = {
            "mean": mean,
            "components": components,
            "points": (features[order[:stored]].double() - mean) @ components,
            "variances": variances,
            "floors": few,
            "center": few,
            "whitening": torch.eye(4).to(few),
        }
        unfinished = cls(**state)
        others = finite_chunks(features[order[stored:]])
        values = torch.cat([unfinished._values(rows) for _, rows in others])
        rounding = typical_rounding(values)
        rounding[:2] = ROUNDING_OF_NORM / ROUNDING * rounding[3]  # both are distances between features
        floors = floors_of(values, rounding)
        center, whitening = fit_whitening(logs(values, floors))
        return {**state, "floors": floors, "center": center, "whitening": whitening}

    def _values(
        self, rows: Float[Tensor, "n D"], nearest: Float[Tensor, "n"] | None = None
    ) -> Float[Tensor, "n 4"]:
        """Return the four numbers of each instance, before the log; the first, unless passed, by a search."""
        centered = rows - self.mean
        kept = min(leading_half(rows.shape[1]), self.components.shape[1])
        leading = self.components[:, self.components.shape[1] - kept :]
        inside = centered @ leading
        norm = torch.linalg.vector_norm
        parts = (
            super()._distances(rows) if nearest is None else nearest,
            norm(centered - inside @ leading.T, dim=1),
            norm(inside / self.variances[len(self.variances) - kept :].sqrt(), dim=1),
            norm(rows, dim=1),
        )
        return torch.stack(parts, 1)

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        return self._of_values(self._values(rows))

    def _of_values(self, values: Float[Tensor, "n 4"]) -> Float[Tensor, "n"]:
        offsets = logs(values, self.floors) - self.center
        distances: Tensor = torch.linalg.vector_norm(offsets @ self.whitening, dim=1)
        return distances

    def points_are_first_of(self, neighbors: NearestNeighbors) -> bool:
        """Return whether the stored points are the first of those of "knn", as where both were fitted together."""
        first = neighbors.points[: len(self.points)]
        return (
            torch.equal(self.mean, neighbors.mean)
            and torch.equal(self.components, neighbors.components)
            and self.points.shape == first.shape
            # products of more rows may be rounded otherwise
            and float((self.points - first).abs().amax()) <= OF_PRODUCTS * float(first.abs().amax())
        )

    @torch.no_grad()
    def score_with(
        self, neighbors: NearestNeighbors, features: Float[Tensor, "N D"]
    ) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
        """Return the scores of "knn" and of this distance, by one search.

        Args:
            neighbors: of which ``points_are_first_of`` is true.
            features: as for ``score``.

        Raises:
            DataError: as ``score`` does.
        """
        counts = (len(neighbors.points), len(self.points))

        def both(rows: Tensor) -> Tensor:
            of_all, of_ours = neighbors.search(rows, counts)
            return torch.stack([of_all, self._of_values(self._values(rows, of_ours))])

        of_neighbors, of_typicality = self._by_chunk(features, both)
        return of_neighbors, of_typicality
