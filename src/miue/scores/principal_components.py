"""The directions in which features vary most, and the distance to them."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.tensors import symmetric_eigen
from miue.scores.base import FeatureDistance, finite_chunks

COMPONENTS = 64  # at most; of a residual half of all directions at most, since all of them leave none


def principal_components(
    features: Float[Tensor, "M D"], limit: int = COMPONENTS
) -> tuple[Float[Tensor, "D"], Float[Tensor, "D K"]]:
    """Return the features' mean and their at most ``limit`` leading orthonormal directions, in float64.

    Eigenvectors of the D × D covariance Σ (h − μ)(h − μ)ᵀ / M, summed over chunks, so that memory does not
    grow with M. Directions without variance (eigenvalue zero within rounding) are omitted: at most M − 1 have
    variance, and the eigensolver's choice of the others is arbitrary.

    >>> mean, components = principal_components(torch.tensor([[0.0, 1.0], [4.0, 1.0]]), 2)
    >>> mean.tolist(), components.abs().tolist()
    ([2.0, 1.0], [[1.0], [0.0]])
    """
    count, width = features.shape
    total = features.new_zeros(width, dtype=torch.float64)
    for _, rows in finite_chunks(features):
        total += rows.sum(0)
    mean = total / count
    covariance = mean.new_zeros(width, width)
    for _, rows in finite_chunks(features):
        centered = rows - mean
        covariance.addmm_(centered.T, centered, alpha=1 / count)
    variances, directions = symmetric_eigen(covariance)  # ascending
    within_rounding = width * torch.finfo(torch.float64).eps * variances[-1]
    kept = min(limit, int((variances > within_rounding).sum()))
    return mean, directions[:, width - kept :]


def leading_half(width: int) -> int:
    """Return how many components of so many features leave a residual.

    >>> leading_half(512), leading_half(7)
    (64, 3)
    """
    return min(COMPONENTS, width // 2)


def residual_norms(centered: Float[Tensor, "n D"], components: Float[Tensor, "D K"]) -> Float[Tensor, "n"]:
    """Return ‖(I − V Vᵀ) x‖ of each row: what the components V do not reconstruct."""
    norms: Tensor = torch.linalg.vector_norm(centered - (centered @ components) @ components.T, dim=1)
    return norms


class Reconstruction(FeatureDistance):
    """Norm of the residual that the leading principal components of the features do not reconstruct.

    d(h) = ‖(I − V Vᵀ)(h − μ)‖; V has 64 columns, but at most D / 2, since all D directions would leave no
    residual.

    Args:
        state: mean (D) and components (D, K).

    >>> training = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
    >>> score = Reconstruction.fit(training, None, generator=torch.Generator())
    >>> score.score(torch.tensor([[9.0, 0.0], [0.0, 3.0]])).tolist()
    [0.0, 3.0]
    """

    name: ClassVar[str] = "reconstruction"
    state_names: ClassVar[tuple[str, ...]] = ("mean", "components")
    mean: Tensor
    components: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        mean, components = principal_components(features, leading_half(features.shape[1]))
        return {"mean": mean, "components": components}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        return residual_norms(rows - self.mean, self.components)
