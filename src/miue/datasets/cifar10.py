"""CIFAR10-bags: bags of small photographs, positive where they contain a truck."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from typing_extensions import Unpack

from miue.bags import BagDataset
from miue.datasets.drawing import Draw, splits_with_ood
from miue.datasets.images import read_cifar10, read_ood

SIZES = {"train": 6000, "validation": 1000, "test": 2000}
OOD_SOURCES = ("svhn", "dtd")


def cifar10_bags(source: Path | str, **draw: Unpack[Draw]) -> BagDataset:
    """Draw CIFAR10-bags by the published procedure; about 0.4 GB of images at the published sizes.

    ``cifar10.npz`` is sorted by class: bags drawn from it have the published distribution but are not
    the published ones image for image. An OOD set is named for what it holds: "svhn" or "svhn-test"
    (that split), "dtd", and "svhn-part" or "dtd-part" where the files hold less than was published.

    Reference: Liu & Ji 2024, Appendix D.2.

    Args:
        source: folder with the image files.
        draw: which bags, among them OOD bags of svhn and dtd, see ``Draw``.

    Raises:
        ConfigError: no such split or OOD source.
        StorageError: files are missing or damaged.
    """
    read, ood = partial(read_cifar10, Path(source)), partial(read_ood, Path(source))
    return splits_with_ood(read, ood, OOD_SOURCES, SIZES, **draw)
