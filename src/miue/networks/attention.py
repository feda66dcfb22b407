"""Attention pooling (ABMIL), plain and gated."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from miue.bags import Segments, segment_softmax, segment_sum
from miue.common.values import Width
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders import Encoder


class AttentionNetwork(MILNetwork):
    """The bag's embedding is Σ a_k h_k with a = softmax(w tanh(V h)) over the bag; one linear head.

    The head is linear and the weights of a bag sum to one, so the bag's logits are Σ a_k · head(h_k): each
    instance is projected to C logits once, and S and T both sum these.

    Reference: Ilse et al. 2018, Eq. 7 and 8; Liu & Ji 2024, Eq. 2.

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
        hidden: width of V h.
    """

    has_attention: ClassVar[bool] = True
    embeds_bags: bool = True

    def __init__(self, encoder: Encoder, num_classes: int, hidden: Width = 256) -> None:
        super().__init__(encoder, num_classes)
        self.hidden = hidden
        self.attention = self._attention(encoder.out_features, hidden)
        self.head = nn.Linear(encoder.out_features, num_classes)

    def _attention(self, width: int, hidden: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the class logits and the attention score of each instance."""
        return self.head(features), self.attention(features)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return each bag's logits and the attention a_k of its instances."""
        logits, scores = projection
        attention = segment_softmax(scores, segments)
        return Scores(segment_sum(attention * logits, segments), attention)


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
