"""Numbers of different units on one scale: logs of scores, and Mahalanobis distances of few numbers."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.tensors import symmetric_eigen
from miue.scores.base import FeatureDistance

ROUNDING = 1e-4
"""Values below this share of a column's root mean square may be rounding, such as the distance of an instance that
is there twice: its log would be noise."""


def floors_of(scores: Float[Tensor, "M K"], rounding: Float[Tensor, "K"] | None = None) -> Float[Tensor, "K"]:
    """Return the smallest value of each column that is no rounding, 1 where all are zero.

    Args:
        scores: at least 0.
        rounding: of each column, below which values say nothing; by default a share of its root mean square.

    >>> floors_of(torch.tensor([[0.0, 0.0], [3.0, 0.0], [2.0, 0.0]])).tolist()
    [2.0, 1.0]
    >>> floors_of(torch.tensor([[1e-9, 1e-9], [1.0, 1e-9]]), torch.tensor([0.5, 0.5])).tolist()
    [0.5, 0.5]
    """
    smallest = torch.where(scores > 0, scores, torch.inf).amin(0)
    smallest = torch.where(smallest.isinf(), torch.zeros_like(smallest), smallest)
    floors = torch.maximum(smallest, typical_rounding(scores) if rounding is None else rounding)
    return torch.where(floors > 0, floors, torch.ones_like(floors))


def typical_rounding(scores: Float[Tensor, "M K"]) -> Float[Tensor, "K"]:
    """Return ``ROUNDING`` times the root mean square of each column."""
    return ROUNDING * scores.square().mean(0).sqrt()


def logs(scores: Float[Tensor, "n K"], floors: Float[Tensor, "K"]) -> Float[Tensor, "n K"]:
    """Return the log of each score, of smaller ones that of the column's floor."""
    return torch.maximum(scores, floors).log()


def fit_whitening(rows: Float[Tensor, "M P"]) -> tuple[Float[Tensor, "P"], Float[Tensor, "P P"]]:
    """Return the mean μ and the matrix W for which ‖(x − μ) W‖ is the Mahalanobis distance, in float64.

    Columns are standardized before their covariance is shrunk, but for one that varies by no more than rounding to
    float32, such as the log norm of features of length 1. A direction without variance, such as the difference of
    channels that are equal, has that of rounding to float32.

    Reference: Ledoit & Wolf 2004.

    Args:
        rows: logs, or other numbers of about 1, whose rounding is at least that of 1.
    """
    from sklearn.covariance import LedoitWolf

    mean, deviation = rows.mean(0), rows.std(0, correction=0)
    eps = torch.finfo(torch.float32).eps
    varies = deviation > eps * rows.abs().amax(0).clamp(min=1)
    deviation = torch.where(varies, deviation, torch.ones_like(deviation))
    estimate = LedoitWolf(assume_centered=True, store_precision=False).fit(
        ((rows - mean) / deviation).cpu().numpy()
    )
    variances, directions = symmetric_eigen(torch.from_numpy(estimate.covariance_).to(rows))
    return mean, directions / variances.clamp(min=rows.shape[1] * eps).sqrt() / deviation[:, None]


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
