"""One-sided evidence with attention by the scores themselves."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from miue.bags.segments import Segments, segment_softmax, segment_sum
from miue.networks.one_sided import OneSidedNetwork, Pooled


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
