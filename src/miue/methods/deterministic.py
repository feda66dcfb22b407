"""Softmax cross-entropy: the baseline without model uncertainty."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from miue.bags import BagBatch
from miue.distributions import Categorical, Dirichlet
from miue.methods.base import Method


class Deterministic(Method):
    """Softmax probabilities from S for bags and from T for instances.

    Reference: the deep MIL networks of Liu & Ji 2024, trained with their L_BCE on two logits.
    """

    distribution: ClassVar[type[Categorical] | type[Dirichlet]] = Categorical

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the bags."""
        projection = self.network.project(self.encode(batch.instances))
        logits = self.network.score(projection, batch.segments).logits
        return cross_entropy(logits, batch.labels)

    def bag_parameters(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """Return the softmax of S."""
        return logits.softmax(-1)

    def instance_parameters(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N C"]
    ) -> Float[Tensor, "N C"]:
        """Return the softmax of T."""
        return logits.softmax(-1)

    def bag_log_probabilities(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """Return the log-softmax of S."""
        return logits.log_softmax(-1)
