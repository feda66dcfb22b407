"""A small convolutional encoder for small images."""

from __future__ import annotations

from torch import nn

from miue.common.values import Rate, Width
from miue.networks.encoders.base import SMALLEST_SIDE, ImageEncoder


class CompactCNN(ImageEncoder):
    """Two padded 3×3 convolutions of 32 and 64 channels, one 2×2 max pooling and one linear layer.

    Args:
        instance_shape: (H, W, channels), from 4 pixels a side.
        width: number of features D.
        dropout: rate of the channel dropout after each convolution.
    """

    smallest_side = SMALLEST_SIDE

    def __init__(self, instance_shape: tuple[int, ...], *, width: Width = 128, dropout: Rate = 0.0) -> None:
        def convolutions(channels: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(channels, 32, 3, padding=1),
                nn.Dropout2d(dropout),
                nn.ReLU(),
                nn.Conv2d(32, 64, 3, padding=1),
                nn.Dropout2d(dropout),
                nn.MaxPool2d(2),
                nn.ReLU(),
            )

        super().__init__(instance_shape, convolutions, width, self.smallest_side)
