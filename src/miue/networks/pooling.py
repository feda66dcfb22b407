"""Mean and max pooling, and the statistics of a bag."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags import Segments, per_instance, segment_max, segment_mean
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders import Encoder


class MeanNetwork(MILNetwork):
    """The bag's embedding is the mean of its instances' features; one linear head."""

    embeds_bags: bool = True

    def __init__(self, encoder: Encoder, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(encoder.out_features, num_classes)

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the class logits of each instance: the head is linear, so it commutes with the mean."""
        return (self.head(features),)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the mean of the instances' logits, which is the logits of their mean."""
        (logits,) = projection
        return Scores(segment_mean(logits, segments), None)


class MaxNetwork(MILNetwork):
    """The bag's embedding is the element-wise maximum of its instances' features; one linear head."""

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


class PooledNetwork(MILNetwork):
    """The bag's embedding is mean, maximum and standard deviation of each feature; one linear head.

    Of a bag of one, mean and maximum are the instance, and the deviation is 0.
    """

    embeds_bags: bool = True

    def __init__(self, encoder: Encoder, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(3 * encoder.out_features, num_classes)

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the features unchanged."""
        return (features,)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the logits of each bag's statistics."""
        (features,) = projection
        mean = segment_mean(features, segments)
        variance = segment_mean((features - per_instance(mean, segments)).square(), segments)
        deviation = torch.where(variance > 0, variance, 1).sqrt() * (variance > 0)  # the root of 0 has no gradient
        return Scores(self.head(torch.cat([mean, segment_max(features, segments), deviation], 1)), None)
