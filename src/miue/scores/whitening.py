"""Mahalanobis distance of few numbers of different units."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def fit_whitening(rows: Float[Tensor, "M P"]) -> tuple[Float[Tensor, "P"], Float[Tensor, "P P"]]:
    """Return the mean μ and the matrix W for which ‖(x − μ) W‖ is the Mahalanobis distance, in float64.

    Columns are standardized before their covariance is shrunk. A direction without variance, such as the
    difference of channels that are equal, has that of rounding to float32.

    Reference: Ledoit & Wolf 2004.
    """
    from sklearn.covariance import LedoitWolf

    mean, deviation = rows.mean(0), rows.std(0, correction=0)
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    estimate = LedoitWolf(assume_centered=True, store_precision=False).fit(
        ((rows - mean) / deviation).cpu().numpy()
    )
    variances, directions = torch.linalg.eigh(torch.from_numpy(estimate.covariance_).to(rows))
    rounding = rows.shape[1] * torch.finfo(torch.float32).eps
    return mean, directions / variances.clamp(min=rounding).sqrt() / deviation[:, None]
