"""One-sided evidence with a noisy or."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from miue.bags.segments import Segments, segment_logsumexp, segment_sum
from miue.networks.one_sided import OneSidedNetwork, Pooled

LOW = -40.0  # e^S < 1e-17 below it: log Σ exp s and the noisy or differ by less than the rounding of S


class OneSidedNoisyOrNetwork(OneSidedNetwork):
    """A bag is negative if all of its instances are: p = 1 − Π (1 − sigmoid(s_k)), and S is its log-odds.

    Monotone: p of a bag with one more instance is at least p.

    Reference: Maron & Lozano-Pérez 1997; Zhang et al. 2005.
    """

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the log-odds of a noisy or over each bag; there are no weights."""
        return (scores if segments.are_singletons else noisy_or(scores, segments)), None


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
