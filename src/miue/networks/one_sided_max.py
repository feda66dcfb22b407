"""One-sided evidence with max pooling."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from miue.bags.segments import Segments, segment_max
from miue.networks.one_sided import OneSidedNetwork, Pooled


class OneSidedMaxNetwork(OneSidedNetwork):
    """The bag's score is the highest of its instances: S = max s_k.

    Monotone: S of a bag with one more instance is at least S. Only the highest instance has a gradient.
    """

    def pool(self, scores: Float[Tensor, "N scores"], segments: Segments) -> Pooled:
        """Return the highest score of each bag; there are no weights."""
        return segment_max(scores, segments), None
