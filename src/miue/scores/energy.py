"""Scores of the logits: energy alone, and with the residual of the features (ViM)."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.principal_components import leading_half, principal_components, residual_norms


class Energy(FeatureDistance):
    """Energy −log Σ_c exp(T_c) of an instance's logits; nothing is fitted.

    Reference: Liu et al. 2020, "Energy-based out-of-distribution detection", Eq. 4, at temperature 1.

    Args:
        state: columns (2), zeros of the width of what is read: energy, largest logit.
    """

    name: ClassVar[str] = "energy"
    reads: ClassVar[str] = "logits"
    state_names: ClassVar[tuple[str, ...]] = ("columns",)

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        return {"columns": features.new_zeros(features.shape[1], dtype=torch.float64)}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        return rows[:, 0]


class VirtualLogit(FeatureDistance):
    """ViM: the residual of the features as one more logit, above the energy of the others.

    d(h) = α ‖(I − V Vᵀ)(h − μ)‖ − log Σ_c exp(T_c), α = |mean of max_c T_c| over the mean residual of training
    instances, V with 64 columns, at most D / 2. α is 0 where V leaves no residual of these but rounding.

    Reference: Wang et al. 2022, "ViM: out-of-distribution with virtual-logit matching", Eq. 4 to 6; differs from
    it: μ is the mean of the features, not the origin where logits vanish; logits of little evidence are negative,
    and a negative α would call what is unlike the training data near.

    Args:
        state: mean (D + 2) with zeros for energy and largest logit, components (D, K), weight α ().
    """

    name: ClassVar[str] = "vim"
    reads: ClassVar[str] = "features and logits"
    state_names: ClassVar[tuple[str, ...]] = ("mean", "components", "weight")
    mean: Tensor
    components: Tensor
    weight: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        encoded, largest = features[:, :-2], features[:, -1].double()
        mean, components = principal_components(encoded, leading_half(encoded.shape[1]))
        residuals = [residual_norms(rows.double() - mean, components) for rows in encoded.split(4096)]
        residual = torch.cat(residuals).mean()
        rounding = torch.finfo(torch.float32).eps * torch.linalg.vector_norm(encoded.double(), dim=1).mean()
        weight = largest.mean().abs() / residual if residual > rounding else mean.new_zeros(())
        return {"mean": torch.cat([mean, mean.new_zeros(2)]), "components": components, "weight": weight}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        return self.weight * residual_norms(rows[:, :-2] - self.mean[:-2], self.components) + rows[:, -2]
