"""Distance to the principal subspace of the training features."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.principal_components import leading_half, principal_components, residual_norms


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
