"""Training images rotated and mirrored at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Shaped
from torch import Tensor

from miue.bags.segments import BagBatch
from miue.common.errors import ConfigError
from miue.common.values import Augmentation


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
