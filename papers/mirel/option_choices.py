"""The options whose defaults were chosen on validation bags, with the data that each was tried on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset
from miue.datasets.digits import digits_bags
from miue.datasets.gaussian import gaussian_bags
from miue.datasets.mnist import mnist_bags
from miue.datasets.musk import musk_bags
from miue.pathology.patch_encoders import color_texture
from miue.selection import MIL_TESTS
from miue.selection.mil import SETTINGS as CHECK_SETTINGS
from papers.mirel.mitoses.bags import scanned_slides
from papers.mirel.nuclei.bags import nuclei_bags
from papers.mirel.nuclei.experiment import ENCODER, OPTIONS, SETTINGS, fold_of
from papers.mirel.option_choice import Choice, Data

FEW = {"train": 300, "validation": 75}


def _split(bags: BagDataset) -> tuple[BagDataset, BagDataset]:
    return bags.split("train"), bags.split("validation")


def _fold(bags: BagDataset, seed: int) -> tuple[BagDataset, BagDataset]:
    return fold_of(bags, seed, 0)[:2]


def _vectors(_: Path, seed: int) -> tuple[BagDataset, BagDataset]:
    made = MIL_TESTS["single-concept"].bags
    return made(300, seed=seed), made(75, seed=seed + 1)


def _pixels(bags: BagDataset) -> BagDataset:
    """Return images as vectors of pixels from 0 to 1."""
    vectors = np.asarray(bags.instances, np.float32).reshape(len(bags.instances), -1) / 255
    return replace(bags, instances=vectors)


def _plain_features(bags: BagDataset) -> BagDataset:
    """Return images as the statistics that ``miue data tile`` writes where no encoder of patches is given."""
    return replace(bags, instances=np.stack([color_texture(image) for image in np.asarray(bags.instances)]))


MUSK: dict[str, Any] = {
    "options": {"encoder.width": 128, "encoder.scaling": "each"},
    "settings": {"learning_rate": 1e-3, "bags_per_update": 1, "max_epochs": 100},
}
OF_EVERY_KIND = {
    "vectors": Data(_vectors, settings=CHECK_SETTINGS),
    "musk1": Data(lambda source, seed: _fold(musk_bags(source, 1), seed), **MUSK),
    "musk2": Data(lambda source, seed: _fold(musk_bags(source, 2), seed), **MUSK),
    "digits": Data(lambda source, seed: _split(digits_bags())),
    "nuclei": Data(lambda source, seed: _fold(nuclei_bags(source), seed), ENCODER, OPTIONS, SETTINGS),
    "mnist": Data(
        lambda source, seed: _split(mnist_bags(source)),
        "lenet",
        settings={"max_epochs": 200, "bags_per_update": 8, "lr_patience": 10, "stop_patience": 20},
    ),
}
INITIAL_WEIGHTS = Choice("network.initial_weights", "normal", ("uniform",), "dsmil", OF_EVERY_KIND)
SCALING = Choice(
    "encoder.scaling",
    "as-is",
    ("common", "each"),
    "attention",
    {
        "vectors": Data(_vectors),
        "gaussian": Data(lambda source, seed: _split(gaussian_bags(splits=tuple(FEW), sizes=FEW))),
        "musk1": Data(lambda source, seed: _fold(musk_bags(source, 1), seed)),
        "musk2": Data(lambda source, seed: _fold(musk_bags(source, 2), seed)),
        "digits": Data(lambda source, seed: _split(_pixels(digits_bags(splits=tuple(FEW), sizes=FEW)))),
        "nuclei": Data(lambda source, seed: _fold(_plain_features(nuclei_bags(source)), seed)),
        "mitoses": Data(lambda source, seed: _fold(_plain_features(scanned_slides(source).bags), seed)),
    },
    tolerance=0.02,
)
LENGTH_SCALE = Choice(
    "method.length_scale", 0.3, (0.1, 1.0, 3.0), "attention", OF_EVERY_KIND, ("sngp",), tolerance=0.02
)
OF_PUBLISHED_PRIOR = {
    name: replace(data, options={**data.options, "method.prior": 0.1}) for name, data in OF_EVERY_KIND.items()
}
DIVERGENCE = Choice(
    "method.annealing_epochs", 10, (0,), "attention", OF_PUBLISHED_PRIOR, ("r-edl",), tolerance=0.02
)
EVIDENCE_PRIOR = Choice(
    "method.prior", 0.1, (0.01, 0.5, 1.0), "attention", OF_EVERY_KIND, ("r-edl",), tolerance=0.02
)
CHOICES = {
    "initial-weights": INITIAL_WEIGHTS,
    "scaling": SCALING,
    "length-scale": LENGTH_SCALE,
    "divergence": DIVERGENCE,
    "evidence-prior": EVIDENCE_PRIOR,
}
"""By name; with "_" for "-", the name is that of the folder in results."""
