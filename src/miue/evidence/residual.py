"""The residual instance estimator R."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class ResidualNetwork(nn.Module):
    """r(h) = tanh(W₂ tanh(W₁ h)) in [−1, 1], one value per class.

    Reference: Liu & Ji 2024, Eq. 9 and Appendix D.3.

    Args:
        in_features: D.
        num_classes: number of classes C.
        hidden: width of the hidden layer.
    """

    def __init__(self, in_features: int, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, hidden), nn.Tanh(), nn.Linear(hidden, num_classes), nn.Tanh()
        )

    def forward(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return r of each instance."""
        residual: Tensor = self.layers(features)
        return residual


def residual_log_evidence(
    log_evidence: Float[Tensor, "N C"], residual: Float[Tensor, "N C"]
) -> Float[Tensor, "N C"]:
    """log e_R = (1 + r) · log e_T, that is R = T + r·T: a residual proportional to T.

    Reference: Liu & Ji 2024, Eq. 9, with the proportional residual of Appendix D.3 and the published code
    (e_R = e_T^(1 + r)).

    Returns:
        In [−20, 20] if the log-evidence of T is in [−10, 10].
    """
    return (1 + residual) * log_evidence
