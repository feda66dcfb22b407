"""One-sided evidence with log-sum-exp pooling."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from miue.bags.segments import Segments, segment_logsumexp, segment_softmax
from miue.networks.one_sided import OneSidedNetwork, Pooled


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
