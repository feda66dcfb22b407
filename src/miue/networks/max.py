"""Max pooling."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from miue.bags.segments import Segments, segment_max
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders.base import Encoder


class MaxNetwork(MILNetwork):
    """The bag's embedding is the maximum of its instances' features, one by one; one linear head."""

    embeds_bags: bool = True

    def __init__(self, encoder: Encoder, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(encoder.out_features, num_classes)

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the features unchanged."""
        return (features,)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the logits of each bag's maximum."""
        (features,) = projection
        return Scores(self.head(segment_max(features, segments)), None)
