"""A method: softmax with label smoothing."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from miue.bags.segments import BagBatch
from miue.methods import METHODS
from miue.networks import MILNetwork

Softmax = METHODS["softmax"]


class Smoothed(Softmax):  # type: ignore[valid-type, misc]
    """Cross-entropy with smoothed labels."""

    def __init__(self, network: MILNetwork, *, smoothing: float = 0.1) -> None:
        super().__init__(network)
        self.smoothing = smoothing

    def bag_losses(self, batch: BagBatch, epoch: int) -> Tensor:
        """Return the loss of each bag."""
        logits = self.scores(batch)[2].logits
        return cross_entropy(logits, batch.labels, reduction="none", label_smoothing=self.smoothing)
