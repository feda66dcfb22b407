"""A network: a plain module of PyTorch."""

from __future__ import annotations

from torch import Tensor, nn


class TopHalf(nn.Module):
    """The mean of the higher half of the instances' logits, class by class."""

    def __init__(self, in_features: int, num_classes: int, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, bag: Tensor) -> Tensor:
        """Return the logits of one bag, (n, D) → (C,)."""
        logits: Tensor = self.layers(bag)
        return logits.topk((len(bag) + 1) // 2, dim=0).values.mean(0)
