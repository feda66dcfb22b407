"""How unlike the training data an instance is in looks and in meaning, as one score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.bags import Segments
from miue.scores.base import FeatureDistance, bag_distances
from miue.scores.whitening import floors_of, logs

LEVELS = ("instance", "mean", "high")


class Combined(FeatureDistance):
    """What is unusual in looks ("statistics", of features without images "typicality") and in meaning ("knn").

    d = √(z⁺(a)² + z⁺(b)²), z⁺ = max(0, z), z the log of a score, standardized over bags that were not trained on:
    instances by instances, bags by the means and by the 0.95 quantiles of bags.

    Args:
        state: centers, scales and floors of the logs, (3, 2) each: of instances, means and quantiles, and of looks
            and meaning.
    """

    name: ClassVar[str] = "combined"
    reads: ClassVar[str] = "scores"
    state_names: ClassVar[tuple[str, ...]] = ("centers", "scales", "floors")
    centers: Tensor
    scales: Tensor
    floors: Tensor

    @classmethod
    def fit_bags(cls, scores: Float[Tensor, "M 2"], segments: Segments) -> Combined:
        """Return the score fitted to the two scores of all instances of held-out bags."""
        by_level = _by_level(scores, segments)
        floors = torch.stack([floors_of(values) for values in by_level])
        of_levels = [logs(values, floor) for values, floor in zip(by_level, floors, strict=True)]
        scales = torch.stack([values.std(0, correction=0) for values in of_levels])
        return cls(
            centers=torch.stack([values.mean(0) for values in of_levels]),
            scales=torch.where(scales > 0, scales, torch.ones_like(scales)),
            floors=floors,
        )

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        ones = Segments.ones(len(features), features.device)
        return dict(cls.fit_bags(features.double(), ones).state_dict())

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        return self._at(0, rows)

    def score_bags(self, scores: Float[Tensor, "N 2"], segments: Segments) -> Mapping[str, Float[Tensor, "B"]]:
        """Return "mean" and "high" of each bag, from the two scores of its instances."""
        by_level = _by_level(scores, segments)
        return {LEVELS[level]: self._at(level, by_level[level]) for level in (1, 2)}

    def _at(self, level: int, values: Float[Tensor, "n 2"]) -> Float[Tensor, "n"]:
        offsets = logs(values, self.floors[level].to(values.device)) - self.centers[level].to(values.device)
        distances: Tensor = torch.linalg.vector_norm(
            (offsets / self.scales[level].to(values.device)).clamp(min=0), dim=1
        )
        return distances


def _by_level(scores: Float[Tensor, "N 2"], segments: Segments) -> list[Tensor]:
    """Return the scores of instances, and the means and high quantiles of bags, in columns."""
    looks, meaning = (bag_distances(column, segments) for column in scores.T)
    return [scores, *(torch.stack([looks[kind], meaning[kind]], 1) for kind in LEVELS[1:])]
