"""Shifts that make images of a bag unlike the training images without leaving the training data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import UInt8

from miue.bags import BagDataset, Labels, check_dataset, kind_of_pixels
from miue.common.errors import DataError, lacking
from miue.common.values import checked

NOISE_DEVIATION = 60.0  # gray levels of 255


def rotated(images: UInt8[np.ndarray, "m H W c"], random: np.random.Generator) -> UInt8[np.ndarray, "m H W c"]:
    """Turn each image by a quarter to the left or to the right; a square image is needed for its shape to stay."""
    left = random.random(len(images)) < 0.5
    turned = np.where(
        left[:, None, None, None], np.rot90(images, 1, axes=(1, 2)), np.rot90(images, -1, axes=(1, 2))
    )
    return turned.astype(np.uint8)


def noisy(images: UInt8[np.ndarray, "m H W c"], random: np.random.Generator) -> UInt8[np.ndarray, "m H W c"]:
    """Add Gaussian noise of a standard deviation of 60 gray levels."""
    shifted = images + random.normal(0, NOISE_DEVIATION, images.shape)
    return np.clip(np.round(shifted), 0, 255).astype(np.uint8)


def blended(images: UInt8[np.ndarray, "m H W c"], random: np.random.Generator) -> UInt8[np.ndarray, "m H W c"]:
    """Average each image with one of the same set, each being taken once; the few that meet themselves stay."""
    partner = random.permutation(len(images))
    return ((images.astype(np.uint16) + images[partner]) // 2).astype(np.uint8)


ImageShift = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(uint8 images (m, H, W, channels), what draws) → images of the same shape."""

SHIFTS: dict[str, ImageShift] = {"rotation": rotated, "noise": noisy, "blend": blended}


@checked()
def shifted_copies(bags: BagDataset, *, seed: int, shifts: Mapping[str, ImageShift] = SHIFTS) -> BagDataset:
    """Return the bags followed by a copy of them for each shift, marked as out of distribution by its name.

    Labels and patients stay: a shifted image shows what it showed, of whom it showed it.

    Args:
        bags: bags of uint8 images.
        seed: of the shifts.
        shifts: functions by name; a stain shift that is drawn per slide is drawn once for each bag.

    Raises:
        ConfigError: something else than bags, a seed and functions by name.
        DataError: no bags, or instances that are not uint8 images.
    """
    check_dataset(bags)
    if not len(bags):
        raise lacking("the bags to shift", "at least one bag", "choose bags to shift")
    if kind_of_pixels(bags) != "bytes":
        raise DataError(
            item="the bags to shift",
            wanted="uint8 images",
            got=f"{bags.instances.dtype} of shape {bags.instance_shape}",
            fix="shift images before features are taken from them",
        )
    arrays: list[np.ndarray] = []
    ids: list[str] = []
    sets: list[str] = []
    images = bags.instances[bags.positions]
    for name in ("", *shifts):
        random = np.random.default_rng((seed, len(arrays)))
        of_bags = np.split(images, bags.sizes.cumsum()[:-1])
        if name and getattr(shifts[name], "drawn_per", "patch") == "slide":
            of_bags = [shifts[name](bag, random) for bag in of_bags]
        elif name:
            of_bags = np.split(shifts[name](images, random), bags.sizes.cumsum()[:-1])
        arrays.extend(of_bags)
        ids.extend(f"{bag}_{name}" if name else bag for bag in bags.ids)
        sets.extend([name] * len(bags))
    shifted = BagDataset.from_arrays(arrays, ids=ids, is_ood=[bool(name) for name in sets])
    copies = 1 + len(shifts)
    labels, instance_labels = bags.labels, bags.own_instance_labels
    return replace(
        shifted,
        ood_sets=tuple(sets),
        class_names=bags.class_names,
        patients=None if bags.patients is None else bags.patients * copies,
        labels=Labels(np.tile(labels.values, copies), np.tile(labels.known, copies)),
        instance_labels=Labels(np.tile(instance_labels.values, copies), np.tile(instance_labels.known, copies)),
    )
