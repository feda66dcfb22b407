"""The reduced AlexNet of CIFAR10-bags."""

from __future__ import annotations

from torch import nn

from miue.common.values import Rate, Width
from miue.networks.encoders.base import ImageEncoder


class AlexNet(ImageEncoder):
    """Five 3×3 convolutions with batch normalization, three max poolings and one linear layer.

    Reference: Liu & Ji 2024, Appendix D.3 (a modified AlexNet).

    Args:
        instance_shape: (H, W, channels).
        width: number of features D.
        dropout: rate of the channel dropout after the fourth and fifth convolution.
    """

    smallest_side = 15

    def __init__(self, instance_shape: tuple[int, ...], *, width: Width = 1024, dropout: Rate = 0.0) -> None:
        def block(inputs: int, outputs: int, drop: bool = False, pool: bool = False) -> list[nn.Module]:
            convolution = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
            dropped = [nn.Dropout2d(dropout)] if drop else []
            pooled = [nn.MaxPool2d(3, 2)] if pool else []
            return [*convolution, *dropped, *pooled, nn.ReLU()]

        def convolutions(channels: int) -> nn.Sequential:
            return nn.Sequential(
                *block(channels, 96, pool=True),
                *block(96, 192, pool=True),
                *block(192, 384),
                *block(384, 384, drop=True),
                *block(384, 192, drop=True, pool=True),
            )

        super().__init__(instance_shape, convolutions, width, self.smallest_side)
