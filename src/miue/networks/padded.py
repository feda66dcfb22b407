"""Networks over bags padded to one length, with the ragged interface."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from miue.bags import Segments
from miue.common.tensors import in_double
from miue.networks.base import MILNetwork, Projection, Scores

SLOTS = 32_768  # instances and padding that are scored at once


class PaddedNetwork(MILNetwork):
    """A network over padded bags (b, L, D): bags of similar size are padded and scored together.

    S and T share only the encoder: T runs the whole network on bags of one, (b, 1, D). A bag is padded with
    copies of its first instance, so that a maximum that ignores the mask is still correct.

    Attributes:
        takes_mask: whether padding can be masked; otherwise only bags of equal size are scored together.
    """

    takes_mask: ClassVar[bool] = True

    @abstractmethod
    def score_padded(
        self, features: Float[Tensor, "b L D"], present: Bool[Tensor, "b L"]
    ) -> tuple[Float[Tensor, "b C"], Float[Tensor, "b L K"] | None]:
        """Return the logits of padded bags and the attention of their instances, None without attention."""

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the features unchanged: the network takes whole bags."""
        return (features,)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return each bag's logits and the attention of its instances."""
        (features,) = projection
        order, indices, logits, attention = [], [], [], []
        for bags in bags_of_like_size(segments, exactly=not self.takes_mask):
            positions, present = padded_positions(segments, bags)
            of_bags, of_instances = self.score_padded(features[positions], present)
            order.append(bags)
            indices.append(positions[present])
            logits.append(of_bags)
            if of_instances is not None:
                attention.append(of_instances[present])
        bag_logits = torch.cat(logits)[torch.cat(order).argsort()]
        return Scores(bag_logits, torch.cat(attention)[torch.cat(indices).argsort()] if attention else None)


def bags_of_like_size(segments: Segments, *, exactly: bool) -> Iterator[Int64[Tensor, "b"]]:
    """Yield positions of bags to be padded together, at most ``SLOTS`` instances including padding.

    Args:
        segments: the bags.
        exactly: group bags of equal size only; otherwise group bags whose sizes have the same number of binary
            digits, so that less than half of each batch is padding.

    >>> [bags.tolist() for bags in bags_of_like_size(Segments.of(2, 9, 3, 1), exactly=False)]
    [[3], [0, 2], [1]]
    """
    sizes = segments.sizes
    kinds = sizes if exactly else torch.frexp(in_double(sizes)).exponent.to(sizes.device)
    for kind in kinds.unique():
        bags = (kinds == kind).nonzero().flatten()
        yield from bags.split(max(1, SLOTS // int(sizes[bags].max())))


def padded_positions(
    segments: Segments, bags: Int64[Tensor, "b"]
) -> tuple[Int64[Tensor, "b L"], Bool[Tensor, "b L"]]:
    """Return the flat position of each slot of the padded bags, and whether it is an instance or padding.

    >>> positions, present = padded_positions(Segments.of(4, 1, 2), torch.tensor([1, 2]))
    >>> positions.tolist(), present.tolist()
    ([[4, 4], [5, 6]], [[True, False], [True, True]])
    """
    sizes = segments.sizes[bags].unsqueeze(1)
    slots = torch.arange(int(sizes.max()), device=sizes.device)
    present = slots < sizes
    return segments.offsets[bags].unsqueeze(1) + slots * present, present
