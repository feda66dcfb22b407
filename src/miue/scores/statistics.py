"""Distance of image statistics: does an image look like the training images?"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.whitening import fit_whitening


class ImageStatistics(FeatureDistance):
    """Mahalanobis distance of 27 statistics of an image (6 of a gray one): sharpness, noise and color.

    d(x) = ‖(s(x) − μ) W‖, W Wᵀ = Σ⁻¹ with the shrunk covariance Σ of s over training images. It is large for
    sharper images as well as for blurred ones. It needs images of bytes, or features beside which
    ``miue data tile`` stored the statistics of their patches.

    Args:
        state: mean (S) and whitening (S, S).
    """

    name: ClassVar[str] = "statistics"
    reads: ClassVar[str] = "statistics"
    state_names: ClassVar[tuple[str, ...]] = ("mean", "whitening")
    mean: Tensor
    whitening: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        mean, whitening = fit_whitening(features.double())
        return {"mean": mean, "whitening": whitening}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        distances: Tensor = torch.linalg.vector_norm((rows - self.mean) @ self.whitening, dim=1)
        return distances
