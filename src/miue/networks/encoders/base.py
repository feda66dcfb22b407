"""The base classes of encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from miue.common.errors import ModelError
from miue.common.returned import describe_returned

SMALLEST_SIDE = 4
"""Pixels a side of the smallest images that an encoder of miue takes."""


class Encoder(nn.Module, ABC):
    """Map each instance to features: (N, *shape) → (N, D); images are (N, H, W, channels), bytes scaled to [0, 1].

    Attributes:
        out_features: D.
    """

    out_features: int

    def __init_subclass__(cls) -> None:
        """Let a class with a ``forward`` of its own not inherit the parts of another's."""
        super().__init_subclass__()
        if "forward" in vars(cls):
            for part in ("until_dropout", "from_dropout"):
                if part not in vars(cls):
                    setattr(cls, part, getattr(Encoder, part))

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn statistics of the inputs from all training instances, once before training; no-op by default.

        Results belong in buffers, which all members of an ensemble get.

        Args:
            batches: instances as ``forward`` takes them, to be iterated over once.
        """

    @property
    def also_try(self) -> str:
        """An option with another value for a training that learned hardly anything, "" for none."""
        return ""

    @abstractmethod
    def forward(self, instances: Float[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance."""

    def until_dropout(self, instances: Float[Tensor, "N *shape"]) -> Shaped[Tensor, "N *inner"]:
        """Return what comes before the first dropout layer, of each instance alone; by default the instances.

        The draws of MC dropout share it: it is computed once.
        """
        return instances

    def from_dropout(self, values: Shaped[Tensor, "N *inner"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance from what ``until_dropout`` returned."""
        features: Tensor = self(values)
        return features


def split_at_dropout(layers: nn.Sequential) -> tuple[nn.Sequential, nn.Sequential]:
    """Return the layers before the first dropout layer, none where there is none, and all others."""
    each = list(layers)
    place = next((place for place, layer in enumerate(each) if isinstance(layer, _DropoutNd)), 0)
    return nn.Sequential(*each[:place]), nn.Sequential(*each[place:])


def check_features(encoder: nn.Module, features: object, count: int, width: int | None = None) -> Tensor:
    """Return what an encoder returned for ``count`` instances; that of another package may return anything.

    Args:
        encoder: for the message.
        features: what was returned.
        count: of instances.
        width: D; None while it is not known.

    Raises:
        ModelError: no tensor of one vector per instance, of that width.
    """
    if isinstance(features, Tensor) and features.is_floating_point():
        shape = tuple(features.shape)
        if len(shape) == 2 and shape == (count, width or shape[1]):
            return features
    raise ModelError(
        item=f"encoder {type(encoder).__name__!r}",
        wanted=f"features of shape ({count}, {'D' if width is None else width})",
        got=f"{describe_returned(features)} for {count} instances",
        fix="return one vector per instance, and nothing else"
        + ("" if width is None else ", of as many numbers as its out_features"),
    )


def check_vectors(encoder: Encoder, instance_shape: tuple[int, ...]) -> int:
    """Return the number of input features of an encoder of feature vectors.

    Raises:
        ModelError: instances of another shape.
    """
    if len(instance_shape) == 1:
        return instance_shape[0]
    raise ModelError(
        item=f"encoder {type(encoder).__name__}",
        wanted="instances that are feature vectors",
        got=f"instances of shape {tuple(instance_shape)}",
        fix="choose an image encoder such as 'lenet' or 'compact'",
    )


class ImageEncoder(Encoder):
    """A convolutional stack and one linear layer; images are channels last, (N, H, W, channels).

    CPUs and GPUs convolve fastest in channels-last memory. Where ReLU and max pooling both follow a
    convolution, ReLU comes second: the result is the same, on a quarter of the values.
    """

    def __init__(
        self,
        instance_shape: tuple[int, ...],
        convolutions: Callable[[int], nn.Sequential],
        out_features: int,
        smallest_side: int,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if len(instance_shape) != 3 or min(instance_shape[:2]) < smallest_side:
            raise ModelError(
                item=f"encoder {name}",
                wanted=f"images (H, W, channels) of at least {smallest_side} pixels a side",
                got=f"instances of shape {tuple(instance_shape)}",
                fix=_fitting(instance_shape),
            )
        height, width, channels = instance_shape
        self.convolutions = convolutions(channels)
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


def _fitting(instance_shape: tuple[int, ...]) -> str:
    """Return what to do about instances that an image encoder cannot take."""
    if len(instance_shape) == 1:
        return "choose 'mlp', the encoder of features"
    if len(instance_shape) == 3 and min(instance_shape[:2]) >= SMALLEST_SIDE:
        return "choose 'compact', the encoder of small images"
    if len(instance_shape) == 3 and instance_shape[0] in (1, 3) and min(instance_shape[1:]) >= SMALLEST_SIDE:
        return "if the channels come first, move them to the end: numpy.moveaxis(bag, 1, -1)"
    return f"make them images of at least {SMALLEST_SIDE} pixels a side, or flatten each to a vector"
