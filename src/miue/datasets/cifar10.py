"""CIFAR10-bags: bags of small photographs, positive where they contain a truck."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from miue.bags.dataset import BagDataset
from miue.datasets.color_images import read_cifar10, read_ood
from miue.datasets.ood_splits import splits_with_ood

SIZES = {"train": 6000, "validation": 1000, "test": 2000}
OOD_SOURCES = ("svhn", "dtd")


def cifar10_bags(
    source: Path | str,
    *,
    splits: Sequence[str] = tuple(SIZES),
    ood: Sequence[str] = (),
    ood_ratio: float = 1.0,
    sizes: dict[str, int] = SIZES,
) -> BagDataset:
    """Draw CIFAR10-bags by the published procedure; about 0.4 GB of images at the published sizes.

    ``cifar10.npz`` is sorted by class: bags drawn from it have the published distribution but are not
    the published ones image for image. An OOD set is named for what it holds: "svhn" or "svhn-test"
    (that split), "dtd", and "svhn-part" or "dtd-part" where the files hold less than was published.

    Reference: Liu & Ji 2024, Appendix D.2.

    Args:
        source: folder with the image files.
        splits: which splits to draw; train and validation from CIFAR-10's training images.
        ood: OOD sources of the test split.
        ood_ratio: share of OOD instances in each OOD bag, 0 to 1.
        sizes: number of bags of each split.

    Raises:
        ConfigError: no such split or OOD source.
        StorageError: files are missing or damaged.
    """
    return splits_with_ood(
        partial(read_cifar10, Path(source)),
        partial(read_ood, Path(source)),
        sizes=sizes,
        splits=splits,
        ood=ood,
        ood_sources=OOD_SOURCES,
        ood_ratio=ood_ratio,
    )
