"""Networks with one-sided evidence: an instance can speak for a class, and none can speak for the negative one."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from miue.bags import Segments, segment_logsumexp, segment_max, segment_mean, segment_softmax, segment_sum
from miue.common.values import Width
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders import Encoder

LOW = -40.0  # e^S < 1e-17 below it: log Σ exp s and the noisy or differ by less than the rounding of S
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


class OneSidedMaxNetwork(OneSidedNetwork):
    """The bag's score is the highest of its instances: S = max s_k.

    Monotone: S of a bag with one more instance is at least S. Only the highest instance has a gradient.
    """

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the highest score of each bag; there are no weights."""
        return segment_max(scores, segments), None


class OneSidedLogSumExpNetwork(OneSidedNetwork):
    """The odds of a bag are the sum of the odds of its instances: S = log Σ exp s_k.

    Monotone: S of a bag with one more instance exceeds S. A bag of n copies scores log n higher than one of them.
    The weight of an instance is its share of the odds, softmax(s) over the bag, which is also the derivative of S.

    Reference: Ramon & De Raedt 2000, without the division by the number of instances, which is not monotone.
    """

    has_attention: ClassVar[bool] = True

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return log Σ exp of the scores of each bag, and the share of each instance."""
        return segment_logsumexp(scores, segments), segment_softmax(scores, segments)


class OneSidedNoisyOrNetwork(OneSidedNetwork):
    """A bag is negative if all of its instances are: p = 1 − Π (1 − sigmoid(s_k)), and S is its log-odds.

    Monotone: p of a bag with one more instance is at least p.

    Reference: Maron & Lozano-Pérez 1997; Zhang et al. 2005.
    """

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the log-odds of a noisy or over each bag; there are no weights."""
        return (scores if segments.are_singletons else noisy_or(scores, segments)), None


class OneSidedAttentionNetwork(OneSidedNetwork):
    """The score of an instance is its attention: S = Σ a_k s_k with a = softmax(s) over the bag.

    S is between mean and maximum and not monotone, but nearly: m more instances of any kind lower it by at most
    W(m/e), W being Lambert's function: 0.28 for one, 1.8 for 30. An instance with a low score has no weight.
    """

    has_attention: ClassVar[bool] = True

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the sum of the scores of each bag, weighted by their softmax, and these weights."""
        attention = segment_softmax(scores, segments)
        return segment_sum(attention * scores, segments), attention


class OneSidedMeanNetwork(OneSidedNetwork):
    """The bag's score is the mean evidence of its instances, none below 0: S = b + mean softplus(s_k).

    Additive: each instance has a share of S. Not monotone, since one more instance dilutes the mean of n: S − b
    falls to n / (n + 1) of it at most, whatever the instance.

    Reference: Javed et al. 2022 (additive MIL), whose instances can also be evidence against a class.
    """

    def __init__(self, encoder: Encoder, num_classes: int, hidden: Width = 128) -> None:
        super().__init__(encoder, num_classes, hidden)
        self.bias = nn.Parameter(-softplus(torch.zeros(num_classes - 1)))

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the constant and the mean evidence of each bag; there are no weights."""
        return self.bias + segment_mean(softplus(scores), segments), None


def noisy_or(scores: Float[Tensor, "N scores"], segments: Segments) -> Float[Tensor, "B scores"]:
    """Return the log-odds that any instance of a bag is positive, from the log-odds of each.

    With t = −Σ log(1 − p_k), the log-odds are log(e^t − 1) = t + log(1 − e^(−t)), and log Σ exp s_k where that is
    below −40 and t would underflow.

    >>> noisy_or(torch.zeros(2, 1), Segments.of(2)).exp().tolist()  # p = 3/4
    [[3.0]]
    """
    lowest = segment_logsumexp(scores, segments)
    negative = -segment_sum(logsigmoid(-scores), segments)
    is_low = lowest < LOW
    total = torch.where(is_low, 1.0, negative)
    return torch.where(is_low, lowest, total + (-torch.expm1(-total)).log())
