"""A method: softmax with label smoothing."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from miue.bags import BagBatch
from miue.methods import Softmax
from miue.networks import MILNetwork


class Smoothed(Softmax):
    """Cross-entropy with smoothed labels."""

    def __init__(self, network: MILNetwork, *, smoothing: float = 0.1) -> None:
        super().__init__(network)
        self.smoothing = smoothing

    def loss(self, batch: BagBatch, epoch: int) -> Tensor:
        """Return the mean loss of the bags."""
        logits = self.scores(batch)[2].logits
        return cross_entropy(logits, batch.labels, label_smoothing=self.smoothing)
