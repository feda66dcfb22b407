"""The dual-stream network (DSMIL)."""

from __future__ import annotations

from math import sqrt
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags import Segments, segment_argmax, segment_products, segment_softmax, segment_weighted_sum
from miue.common.errors import unknown_name
from miue.common.values import Width
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders import Encoder

InitialWeights = Literal["normal", "uniform"]


class BagHead(nn.Conv1d):
    """The convolution over the attended values.

    Weights and bias are initialized from N(0, 1) ("normal"), or from U(±1/sqrt(fan-in)) as those of all other
    layers ("uniform").

    Reference: the published code of Liu & Ji 2024 ("normal").
    """

    def __init__(self, num_classes: int, hidden: int, initial_weights: str) -> None:
        self.initial_weights = initial_weights
        super().__init__(num_classes, num_classes, kernel_size=hidden)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the initial weights."""
        bound = 1 / sqrt(self.weight[0].numel())
        for parameter in (self.weight, self.bias):
            if parameter is not None and self.initial_weights == "normal":
                parameter.normal_(0, 1, generator=generator)
            elif parameter is not None:
                parameter.uniform_(-bound, bound, generator=generator)


class DualStreamNetwork(MILNetwork):
    """Two streams: the highest instance logit of each class, and attention to that critical instance.

    The critical instance of a class is the one with the highest logit for it. Attention is the softmax over
    the bag of query · critical query / sqrt(hidden). A convolution over the C attended values gives C
    logits, and S is the mean of the two streams' logits.

    Reference: Li et al. 2021, as used by Liu & Ji 2024 (linear queries and values).

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
        hidden: width of queries and values.
        initial_weights: of the convolution: "normal", N(0, 1), as published, or "uniform", as in all other layers.
            Where features are large, the first gives logits beyond ±10, where evidence has no gradient.

    Raises:
        ConfigError: other initial weights.
    """

    has_attention: ClassVar[bool] = True
    instance_routing: ClassVar[str] = "residual-only"

    def __init__(
        self, encoder: Encoder, num_classes: int, hidden: Width = 256, initial_weights: str = "normal"
    ) -> None:
        super().__init__(encoder, num_classes)
        self.hidden, self.initial_weights = hidden, initial_weights
        if initial_weights not in get_args(InitialWeights):
            raise unknown_name("initial weights", initial_weights, get_args(InitialWeights))
        width = encoder.out_features
        self.instance_head = nn.Linear(width, num_classes)
        self.query = nn.Linear(width, hidden)
        self.value = nn.Linear(width, hidden)
        self.bag_head = BagHead(num_classes, hidden, initial_weights)

    @property
    def also_try(self) -> str:
        """The other initial weights, with which logits begin small."""
        return "network.initial_weights=uniform" if self.initial_weights == "normal" else ""

    @property
    def last_layer(self) -> nn.Module:
        """The convolution over the attended values; the other stream takes its logits from single instances."""
        return self.bag_head

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return class logits, query and value of each instance."""
        return self.instance_head(features), self.query(features), self.value(features)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return each bag's logits and, per class, the attention of its instances."""
        instance_logits, queries, values = projection
        if segments.are_singletons:
            attended = self._bag_stream_of_one(values)
            return Scores((instance_logits + attended) / 2, torch.ones_like(instance_logits))
        critical = segment_argmax(instance_logits, segments)  # (B, C), position of the critical instance
        highest = instance_logits.gather(0, critical)
        similarity = segment_products(queries, queries[critical], segments) / sqrt(self.hidden)
        attention = segment_softmax(similarity, segments)
        attended = self.bag_head(segment_weighted_sum(values, attention, segments)).squeeze(-1)
        return Scores((highest + attended) / 2, attention)

    def _bag_stream_of_one(self, values: Float[Tensor, "N hidden"]) -> Float[Tensor, "N C"]:
        """Return the bag stream of bags of one instance, where all C attended values equal its value."""
        return nn.functional.linear(values, self.bag_head.weight.sum(1), self.bag_head.bias)
