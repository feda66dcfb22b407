"""One-sided evidence, averaged: additive pooling."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from miue.bags.segments import Segments, segment_mean
from miue.common.values import Width
from miue.networks.encoders.base import Encoder
from miue.networks.one_sided import OneSidedNetwork, Pooled


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
