"""Convolutional encoders of images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from miue.common.errors import ModelError
from miue.common.values import Rate, Width
from miue.networks.encoders.base import Encoder, split_at_dropout


class ImageEncoder(Encoder):
    """A convolutional stack and one linear layer; images are channels last, (N, H, W, channels).

    CPUs and GPUs convolve fastest in channels-last memory. Where ReLU and max pooling both follow a
    convolution, ReLU comes second: the result is the same, on a quarter of the values.

    Attributes:
        smallest_side: pixels a side of the smallest images.
    """

    smallest_side: ClassVar[int]

    def __init__(self, instance_shape: tuple[int, ...], layers: Iterable[nn.Module], out_features: int) -> None:
        super().__init__()
        if len(instance_shape) != 3 or min(instance_shape[:2]) < self.smallest_side:
            raise ModelError(
                item=f"encoder {type(self).__name__}",
                wanted=f"images (H, W, channels) of at least {self.smallest_side} pixels a side",
                got=f"instances of shape {tuple(instance_shape)}",
                fix="choose 'mlp' for vectors, 'compact' for small images, or move the channels to the end",
            )
        height, width, channels = instance_shape
        self.convolutions = nn.Sequential(*layers)
        with torch.no_grad():
            probe = self.convolutions.eval()(torch.zeros(1, channels, height, width))
        self.convolutions.train()
        self.projection = nn.Sequential(nn.Linear(probe.numel(), out_features), nn.ReLU())
        self.out_features = out_features
        for parameter in self.convolutions.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(self, instances: Float[Tensor, "N H W channels"]) -> Float[Tensor, "N D"]:
        """Return the features of each image."""
        features: Tensor = self.projection(self.convolutions(instances.permute(0, 3, 1, 2)).flatten(1))
        return features

    def until_dropout(self, instances: Float[Tensor, "N H W channels"]) -> Shaped[Tensor, "N h w inner"]:
        """Return what the layers before the first dropout layer make of each image, channels last."""
        first, _ = split_at_dropout(self.convolutions)
        images: Tensor = first(instances.permute(0, 3, 1, 2))
        return images.permute(0, 2, 3, 1)

    def from_dropout(self, values: Shaped[Tensor, "N h w inner"]) -> Float[Tensor, "N D"]:
        """Return the features of each image from what ``until_dropout`` returned."""
        _, last = split_at_dropout(self.convolutions)
        features: Tensor = self.projection(last(values.permute(0, 3, 1, 2)).flatten(1))
        return features


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
        layers = [
            nn.Conv2d(instance_shape[-1], 20, 5),
            nn.Dropout2d(dropout),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(20, 50, 5),
            nn.Dropout2d(dropout),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ]
        super().__init__(instance_shape, layers, width)


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

        layers = [
            *block(instance_shape[-1], 96, pool=True),
            *block(96, 192, pool=True),
            *block(192, 384),
            *block(384, 384, drop=True),
            *block(384, 192, drop=True, pool=True),
        ]
        super().__init__(instance_shape, layers, width)


class CompactCNN(ImageEncoder):
    """Two padded 3×3 convolutions of 32 and 64 channels, one 2×2 max pooling and one linear layer.

    Args:
        instance_shape: (H, W, channels), from 4 pixels a side.
        width: number of features D.
        dropout: rate of the channel dropout after each convolution.
    """

    smallest_side = 4

    def __init__(self, instance_shape: tuple[int, ...], *, width: Width = 128, dropout: Rate = 0.0) -> None:
        layers = [
            nn.Conv2d(instance_shape[-1], 32, 3, padding=1),
            nn.Dropout2d(dropout),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.Dropout2d(dropout),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ]
        super().__init__(instance_shape, layers, width)
