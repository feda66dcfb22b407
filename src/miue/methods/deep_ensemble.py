"""Deep ensemble: the average of networks trained from different seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags.segments import BagBatch
from miue.methods.base import Method
from miue.methods.mc_dropout import positive_count
from miue.methods.softmax import Softmax
from miue.networks.base import MILNetwork


class DeepEnsemble(Softmax):
    """The mean softmax of networks that differ in initial weights and bag order.

    Member i of an ensemble with seed s is the network that method "softmax" trains with the seed
    ``derive_seed(s, i)``.

    Reference: Lakshminarayanan et al. 2017; Liu & Ji 2024, Appendix D.3.

    Args:
        network: any MIL network; each member gets a copy with its own weights.
        size: number of members.
    """

    def __init__(self, network: MILNetwork, *, size: int = 10) -> None:
        super().__init__(network)
        copies = [network, *(deepcopy(network) for _ in range(positive_count("size", size) - 1))]
        self.ensemble = nn.ModuleList(Softmax(copy) for copy in copies)

    def members(self) -> Sequence[Method]:
        """Return the members, which are trained separately."""
        return [member for member in self.ensemble if isinstance(member, Method)]

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield each member."""
        yield from self.members()

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the sum of the members' losses on one batch."""
        return torch.stack([member.loss(batch, epoch) for member in self.members()]).sum()

    def bag_log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log of the members' mean probabilities."""
        each = torch.stack([member.bag_log_probabilities(batch) for member in self.members()])
        return each.logsumexp(0) - torch.tensor(float(len(each))).log()
