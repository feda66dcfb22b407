"""Mitoses-bags: crops of mitotic figures from 135 slides of one laboratory and three scanners."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.common.errors import DataError
from miue.datasets.drawing import DrawnBag, Pool, drawn_dataset
from miue.datasets.images import find_archive, open_archive, read_strips

ARCHIVE = "mitoses64.npz"
SIDE = 64
MEAN_SIZE, SIZE_DEVIATION = 10.0, 2.0  # of pooled bags, as in MNIST-bags
CLASS_NAMES = ("no atypical mitosis", "atypical mitosis")


@dataclass(frozen=True)
class ScannedSlides:
    """Slides as bags, and the scanner of each.

    Attributes:
        bags: one bag for each slide, of uint8 images (64, 64, 3).
        scanners: name of each bag's scanner, such as "aperio-cs2".
    """

    bags: BagDataset
    scanners: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every scanner once, sorted."""
        return tuple(sorted(set(self.scanners)))

    def of_scanner(self, name: str) -> BagDataset:
        """Return the slides of one scanner."""
        return self.bags.subset(np.flatnonzero(np.array(self.scanners) == name))


def scanned_slides(source: Path) -> ScannedSlides:
    """Return 135 slides as bags of H&E images of mitotic figures, positive where one is atypical.

    Human breast cancer, one mitotic figure in the middle of each crop of 128 × 128 pixels, halved. A mitosis is
    atypical where most of three experts call it so; its label is known for every crop, and the experts differ on
    381 of them. There are no splits.

    Source: AMi-Br (crops of MIDOG 2021 with the votes); the pixels may not be redistributed.

    Args:
        source: folder with ``mitoses64.npz``: ``images_webp`` (lossless strips), ``images_webp_offsets``,
            ``slide``, ``scanner``, ``is_atypical`` (1721,), ``slide_names`` (135,), ``scanner_names`` (3,).

    Raises:
        StorageError: the file is not there, or is damaged.
    """
    with open_archive(find_archive(source, ARCHIVE, "images of mitoses")) as arrays:
        images = read_strips(arrays, "images", SIDE)
        slides, scanners, atypical = arrays["slide"], arrays["scanner"], arrays["is_atypical"]
        slide_names, scanner_names = arrays["slide_names"], arrays["scanner_names"]
        if not len(images) == len(slides) == len(scanners) == len(atypical):
            raise ValueError(f"{len(images)} images, {len(slides)} slides and {len(atypical)} labels")
        if not np.isin(atypical, (0, 1)).all():
            raise ValueError("is_atypical is neither 0 nor 1")
        names = [str(slide_names[slide]).removesuffix(".tiff") for slide in np.unique(slides)]
        members = [np.flatnonzero(slides == slide) for slide in np.unique(slides)]
        of_slides = [np.unique(scanners[chosen]) for chosen in members]
        if any(len(several) > 1 for several in of_slides):
            raise ValueError("a slide of two scanners")
        devices = tuple(str(scanner_names[one[0]]).lower().replace(" ", "-") for one in of_slides)
    bags = BagDataset.from_arrays(
        [images[chosen] for chosen in members],
        [int(atypical[chosen].max()) for chosen in members],
        ids=names,
        instance_labels=[atypical[chosen].astype(np.int64) for chosen in members],
        class_names=CLASS_NAMES,
    )
    return ScannedSlides(bags, devices)


def pooled_bags(slides: BagDataset, count: int, *, seed: int, name: str) -> BagDataset:
    """Return larger bags, drawn from the crops of all slides together, every other one positive.

    A slide holds 13 crops on average, and 100 of 135 slides are positive. Pooled bags hold 10 ± 2 crops, and a
    positive one any number of atypical mitoses, so that size says nothing of the label. Draw from the slides of
    one scanner, and from those of one part of a split.

    Args:
        slides: the slides whose crops are drawn.
        count: bags to draw.
        seed: of the draw.
        name: begins the ids.

    Raises:
        DataError: too few typical mitoses to fill a bag without drawing one twice, or none that is atypical.
    """
    crops = Pool(slides.instances[slides.positions], slides.instance_labels.values[slides.positions])
    atypical, typical = np.flatnonzero(crops.labels == 1), np.flatnonzero(crops.labels == 0)
    random = np.random.default_rng(seed)
    sizes = np.maximum(1, np.round(random.normal(MEAN_SIZE, SIZE_DEVIATION, count)).astype(int))
    if len(typical) < sizes.max() or not len(atypical):
        raise DataError(
            item=f"{len(slides)} slides",
            wanted=f"an atypical mitosis, and {sizes.max()} others to fill a bag",
            got=f"{len(atypical)} and {len(typical)}",
            fix="draw from more slides",
        )
    bags = []
    for number, size in enumerate(sizes):
        positives = random.integers(1, min(size, len(atypical)) + 1) if number % 2 == 0 else 0
        chosen = [
            random.choice(atypical, positives, replace=False),
            random.choice(typical, size - positives, False),
        ]
        bags.append(DrawnBag(random.permutation(np.concatenate(chosen)), np.zeros(size, bool)))
    return replace(drawn_dataset(bags, crops, target=1, split=name), class_names=CLASS_NAMES)
