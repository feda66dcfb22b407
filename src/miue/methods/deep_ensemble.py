"""Deep ensemble: networks trained alike from different seeds, averaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags.segments import BagBatch
from miue.methods.base import Method
from miue.methods.deterministic import Deterministic
from miue.methods.mc_dropout import positive_count
from miue.networks.base import MILNetwork


class DeepEnsemble(Deterministic):
    """The mean of the softmax of members that differ in initial weights and bag order.

    Member i of an ensemble with seed s is the network that deterministic training with
    ``seed_of(s, i)`` gives.

    Reference: Lakshminarayanan et al. 2017; Liu & Ji 2024, Appendix "Related UE methods".

    Args:
        network: any MIL network; each member gets a copy with weights of its own.
        size: number of members.
    """

    def __init__(self, network: MILNetwork, *, size: int = 10) -> None:
        super().__init__(network)
        copies = [network, *(deepcopy(network) for _ in range(positive_count("size", size) - 1))]
        self.ensemble = nn.ModuleList(Deterministic(copy) for copy in copies)

    def members(self) -> Sequence[Method]:
        """Return the members, each to be trained by itself."""
        return [member for member in self.ensemble if isinstance(member, Method)]

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield each member."""
        yield from self.members()

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the sum of the members' losses, which trains all on the same batches."""
        return torch.stack([member.loss(batch, epoch) for member in self.members()]).sum()

    def bag_log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log of the members' mean probabilities."""
        each = torch.stack([member.bag_log_probabilities(batch) for member in self.members()])
        return each.logsumexp(0) - torch.tensor(float(len(each))).log()
