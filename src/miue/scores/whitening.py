"""Mahalanobis distance of few numbers of different units."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from miue.common.eigen import symmetric_eigen


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
