"""LeNet, the encoder of MNIST-bags."""

from __future__ import annotations

from torch import nn

from miue.common.values import Rate, Width
from miue.networks.encoders.base import ImageEncoder


class LeNet(ImageEncoder):
    """Two 5×5 convolutions of 20 and 50 channels, each with ReLU and 2×2 max pooling, and one linear layer.

    Reference: LeCun et al. 1998, as used by Ilse et al. 2018 and Liu & Ji 2024, Appendix D.3.

    Args:
        instance_shape: (H, W, channels).
        width: number of features D.
        dropout: rate of the channel dropout after each convolution (MC dropout: 0.25).
    """

    smallest_side = 16

    def __init__(self, instance_shape: tuple[int, ...], *, width: Width = 800, dropout: Rate = 0.0) -> None:
        def convolutions(channels: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(channels, 20, 5),
                nn.Dropout2d(dropout),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Conv2d(20, 50, 5),
                nn.Dropout2d(dropout),
                nn.MaxPool2d(2),
                nn.ReLU(),
            )

        super().__init__(instance_shape, convolutions, width, self.smallest_side)
