"""The directions in which features vary most, for the scores that work in or outside their span."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from miue.scores.base import finite_chunks


def principal_components(
    features: Float[Tensor, "M D"], limit: int
) -> tuple[Float[Tensor, "D"], Float[Tensor, "D K"]]:
    """Return the features' mean and their at most ``limit`` leading orthonormal directions, in float64.

    Eigenvectors of the D × D covariance Σ (h − μ)(h − μ)ᵀ / M, summed over chunks, so that memory does
    not grow with M. Directions without variance (eigenvalue within rounding of zero) are left out: there
    are at most M − 1 with any, and which of the others an eigensolver returns is arbitrary.

    >>> mean, components = principal_components(torch.tensor([[0.0, 1.0], [4.0, 1.0]]), 2)
    >>> mean.tolist(), components.abs().tolist()
    ([2.0, 1.0], [[1.0], [0.0]])
    """
    count, width = features.shape
    total = features.new_zeros(width, dtype=torch.float64)
    for _, rows in finite_chunks(features, "training features"):
        total += rows.sum(0)
    mean = total / count
    covariance = mean.new_zeros(width, width)
    for _, rows in finite_chunks(features, "training features"):
        centred = rows - mean
        covariance.addmm_(centred.T, centred, alpha=1 / count)
    variances, directions = torch.linalg.eigh(covariance)  # ascending
    within_rounding = width * torch.finfo(torch.float64).eps * variances[-1]
    kept = min(limit, int((variances > within_rounding).sum()))
    return mean, directions[:, width - kept :]
