"""Softmax cross-entropy: the baseline without model uncertainty."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from miue.bags.segments import BagBatch
from miue.distributions import Categorical, PredictiveDistribution
from miue.methods.base import Method


class Deterministic(Method):
    """Softmax probabilities.

    Reference: the deep MIL networks of Liu & Ji 2024, trained with their L_BCE on two logits.
    """

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the bags."""
        return cross_entropy(self.scores(batch)[2].logits, batch.labels, reduction="none").mean()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return the log-softmax."""
        return logits.log_softmax(-1)

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return the softmax."""
        return Categorical.of_logits(logits)
