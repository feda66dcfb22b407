"""An encoder: instances times a learned factor for each feature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from miue.networks.encoders import Encoder


class Scaling(Encoder):
    """h = s x."""

    def __init__(self, instance_shape: tuple[int, ...], spread: float = 0.1) -> None:
        super().__init__()
        (self.out_features,) = instance_shape
        self.factors = nn.Parameter(1 + spread * torch.randn(self.out_features))

    def forward(self, instances: Tensor) -> Tensor:
        """Return the features of each instance."""
        return self.factors * instances
