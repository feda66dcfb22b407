"""Networks with one-sided evidence: an instance can speak for a class, and none can speak for the negative one."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags.segments import Segments
from miue.common.values import Width
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders.base import Encoder

Pooled = tuple[Float[Tensor, "B scores"], Float[Tensor, "N scores"] | None]


class OneSidedNetwork(MILNetwork):
    """Each class but the first, the negative one, has a score s_c(h), which is pooled over the bag to S_c.

    The negative class has no score. The logits are (0, S_1, …, S_{C−1}) less their mean, for two classes (−S/2,
    S/2): the softmax is that of (0, S), and evidence for the negative class is what the others lack. Where pooling
    is monotone, an instance that is added to a bag can neither lower the log-odds of a class against the negative
    one nor raise the evidence of the negative class (docs/mil_assumption.md).

    Reference: Raff & Holt 2023, for what a network must not learn.

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C, at least 2.
        hidden: width of the layer between the features and the scores.
    """

    def __init__(self, encoder: Encoder, num_classes: int, hidden: Width = 128) -> None:
        super().__init__(encoder, num_classes)
        self.hidden = hidden
        self.head = nn.Sequential(
            nn.Linear(encoder.out_features, hidden), nn.Tanh(), nn.Linear(hidden, num_classes - 1)
        )

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the scores of each instance."""
        return (self.head(features),)

    @abstractmethod
    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the scores S of each bag and the weight of its instances in each, None without weights."""

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the logits of each bag and the weight of its instances in each score."""
        (scores,) = projection
        pooled, weights = self.pool(scores, segments)
        logits = torch.cat([torch.zeros_like(pooled[:, :1]), pooled], 1)
        return Scores(logits - logits.mean(1, keepdim=True), weights)
