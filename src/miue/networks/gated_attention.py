"""Gated attention pooling."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from miue.networks.attention import AttentionNetwork


class GatedScore(nn.Module):
    """Score of each instance, w (tanh(V h) ⊙ sigmoid(U h)).

    Reference: Ilse et al. 2018, Eq. 9.

    Args:
        width: number of features D.
        hidden: width of the two branches.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.content = nn.Sequential(nn.Linear(width, hidden), nn.Tanh())
        self.gate = nn.Sequential(nn.Linear(width, hidden), nn.Sigmoid())
        self.score = nn.Linear(hidden, 1)

    def forward(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N 1"]:
        """Return the score of each instance."""
        score: Tensor = self.score(self.content(features) * self.gate(features))
        return score


class GatedAttentionNetwork(AttentionNetwork):
    """Attention pooling with a sigmoid gate on the attention scores.

    Reference: Ilse et al. 2018, Eq. 9.
    """

    def _attention(self, width: int, hidden: int) -> nn.Module:
        return GatedScore(width, hidden)
