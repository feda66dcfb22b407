"""Softmax cross-entropy, the baseline without epistemic uncertainty."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from miue.bags.segments import BagBatch
from miue.distributions import Categorical, PredictiveDistribution
from miue.methods.base import Method


class Softmax(Method):
    """Cross-entropy on softmax probabilities: the baseline without epistemic uncertainty.

    Reference: Liu & Ji 2024, Table 4 ("Deep MIL", L_BCE), here with two logits.
    """

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the bags."""
        return cross_entropy(self.bag_scores(batch).logits, batch.labels, reduction="none").mean()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return the log-softmax."""
        return logits.log_softmax(-1)

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return the softmax."""
        return Categorical.of_logits(logits)
