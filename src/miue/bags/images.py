"""Bags of images: which images a model takes, what their numbers are, and images turned and mirrored at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from miue.bags.dataset import BagDataset
from miue.bags.segments import BagBatch
from miue.common.errors import ConfigError
from miue.common.values import Augmentation

SAMPLED_BAGS = 8


def kind_of_pixels(bags: BagDataset) -> Literal["", "bytes", "numbers"]:
    """Return "bytes" or "numbers" of images, "" of features."""
    if len(bags.instance_shape) != 3:
        return ""
    return "bytes" if bags.instances.dtype == np.uint8 else "numbers"


def to_pixels(images: Shaped[np.ndarray, "n H W channels"]) -> UInt8[np.ndarray, "n H W shown"]:
    """Return images as they are shown, in gray or three channels; the largest number is white."""
    if images.dtype != np.uint8:
        top = max(1e-9, float(images.max(initial=0)))
        images = np.clip(images.astype(np.float32) / top * 255, 0, 255).astype(np.uint8)
    return images[..., : 1 if images.shape[-1] == 1 else 3]


def largest_pixel(bags: BagDataset) -> float:
    """Return the largest absolute value of images of numbers, in a few bags; 0 of bytes and of features."""
    if kind_of_pixels(bags) != "numbers":
        return 0.0
    rows = np.unique(np.linspace(0, len(bags) - 1, min(len(bags), SAMPLED_BAGS), dtype=int)).tolist()
    return max(float(bags.batch([row]).instances.abs().max()) for row in rows)


def advise_on_shape(model_shape: tuple[int, ...], bag_shape: tuple[int, ...]) -> str:
    """Return how to get instances of the shape that a model takes, as the end of an error.

    >>> advise_on_shape((28, 28, 1), (32, 32, 3))
    'give the images the size and the channels of those of training'
    >>> advise_on_shape((512,), (32, 32, 3))
    'the model takes features, not images: encode the images as those of training'

    Args:
        model_shape: shape of an instance, as the model takes it; an image if it has more than one axis.
        bag_shape: shape of an instance of the bags.
    """
    if len(model_shape) > 1 and len(bag_shape) > 1:
        return "give the images the size and the channels of those of training"
    if len(bag_shape) > 1:
        return "the model takes features, not images: encode the images as those of training"
    if len(model_shape) > 1:
        return "the model takes images, not features: pass the images themselves"
    return "extract these features with the encoder that the model was trained on"


def check_augmentation(augmentation: Augmentation, instance_shape: Sequence[int]) -> None:
    """Raise unless instances of this shape can be augmented.

    Raises:
        ConfigError: they are not images.
    """
    if augmentation != "none" and len(instance_shape) != 3:
        raise ConfigError(
            item=f"setting 'augmentation={augmentation}'",
            wanted="images, which can be rotated and mirrored",
            got=f"instances of shape {tuple(instance_shape)}",
            fix="leave it out; images are augmented before features are made of them",
        )


def augmented(batch: BagBatch, augmentation: Augmentation) -> BagBatch:
    """Return a batch of which each image is rotated and mirrored as torch's own generator draws.

    Args:
        batch: of images (N, H, W, channels), unless ``augmentation`` is "none".
        augmentation: "none" for the same batch, of which nothing is drawn; "rotate-flip" as ``rotate_flip`` does.
    """
    return batch if augmentation == "none" else replace(batch, instances=rotate_flip(batch.instances))


def rotate_flip(images: Shaped[Tensor, "N H W channels"]) -> Shaped[Tensor, "N H W channels"]:
    """Return each image in one of its eight positions, drawn at random: four quarter turns, mirrored or not.

    Images that are not square are in one of the four positions that keep their shape.

    >>> rotate_flip(torch.zeros(5, 4, 3, 1)).shape
    torch.Size([5, 4, 3, 1])
    """
    turns = 4 if images.shape[1] == images.shape[2] else 2
    drawn = torch.randint(2 * turns, (len(images),))
    result = torch.empty_like(images)
    for position in range(2 * turns):
        rows = (drawn == position).nonzero()[:, 0].to(images.device)
        chosen = images[rows].rot90(position % turns * (4 // turns), (1, 2))
        result[rows] = chosen.flip(1) if position >= turns else chosen
    return result
