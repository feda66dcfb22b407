"""Cumulative links: one score of a bag and ordered thresholds, for classes in an order."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from miue.bags import BagBatch
from miue.distributions import Categorical, PredictiveDistribution
from miue.methods.softmax import Softmax, negative_log_likelihood
from miue.networks import MILNetwork

GAIN = 30.0
"""By which thresholds move faster than their parameters: a step of Adam moves η by many weights at once."""


class Thresholds(nn.Module):
    """Ascending thresholds θ_1 < … < θ_{C−1}.

    Args:
        num_classes: number of classes C.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1))
        self.steps = nn.Parameter(torch.zeros(num_classes - 2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set them so that all classes are as probable where the score is 0."""
        classes = len(self.steps) + 2
        even = (torch.arange(1, classes) / classes).logit()
        self.first.copy_(even[:1] / GAIN)
        self.steps.copy_(even.diff().expm1().log() / GAIN)

    def forward(self) -> Float[Tensor, "_"]:
        """Return the thresholds."""
        first = GAIN * self.first
        return torch.cat([first, first + softplus(GAIN * self.steps).cumsum(0)])


class CumulativeLinks(Softmax):
    """P(class ≤ k) = σ(θ_k − η) with the first logit η of a bag: proportional odds, for grades, numbers and times.

    What makes one grade likelier makes the next likelier in turn, so that few bags of a grade suffice.

    Reference: McCullagh 1980, "Regression Models for Ordinal Data".
    """

    def __init__(self, network: MILNetwork) -> None:
        super().__init__(network)
        self.thresholds = Thresholds(network.num_classes)

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the bags."""
        return negative_log_likelihood(self.log_probabilities(self.bag_scores(batch).logits), batch)

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return log(σ(a) − σ(b)) = log σ(a) + log σ(−b) + log(1 − exp(b − a)) of neighboring thresholds a > b."""
        thresholds = self.thresholds().to(logits.dtype)
        above = thresholds - logits[:, :1]
        ends = logsigmoid(above), logsigmoid(-above)
        within = torch.log(-torch.expm1(-thresholds.diff()))
        return torch.cat([ends[0][:, :1], ends[0][:, 1:] + ends[1][:, :-1] + within, ends[1][:, -1:]], 1)

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return the probabilities of the classes."""
        return Categorical.of_logits(self.log_probabilities(logits))
