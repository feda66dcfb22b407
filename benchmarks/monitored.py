"""The predictions that benchmarks/monitoring.py deals: bags of the training's kind, and bags that are changed.

A change is an OOD set of its name: other instances, blur, or a real scanner that is not the training's.
Predictions that are there are read, so that a run may be killed and started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from miue.bags import BagDataset, OodFlags, concatenate, hold_out
from miue.common.seeds import derive_seed
from miue.datasets.image_shifts import ImageShift, shifted_copies
from miue.model import Model, fit_distances
from miue.pathology.stain_shifts import PARAMETERS, STRENGTHS, blurred
from miue.predictions import Predictions, read_predictions
from miue.training.train import train
from papers.mirel.mitoses.bags import scanned_slides
from papers.mirel.mitoses.experiment import SCANNERS
from papers.mirel.nuclei.bags import nuclei_bags
from papers.mirel.nuclei.experiment import ENCODER, METHOD_SETUPS, NETWORK, OPTIONS, SETTINGS
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.stores import store_of

PRESET = "mnist/abmil-mirel"
TRAINED, VALIDATED = 0.45, 0.2  # shares: of the bags of a small data set, and of those
DISTANCES = ("knn", "statistics", "combined")


class Blur:
    """A Gaussian blur of one of the three strengths of histology."""

    def __init__(self, strength: str) -> None:
        self.sigma = PARAMETERS["blur"][1][STRENGTHS.index(strength)]

    def __call__(self, images: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return the images out of focus."""
        return blurred(images, self.sigma)


BLURS: dict[str, ImageShift] = {f"blur {strength}": Blur(strength) for strength in ("light", "strong")}


def monitored_predictions(paths: Paths, seed: int) -> Iterator[tuple[str, Predictions]]:
    """Yield each data set's name and the predictions of bags that were not trained on, by models of this seed."""
    makers: dict[str, Callable[[Paths, int], Predictions]] = {"mnist": _digits, "nuclei": _nuclei}
    makers |= {f"mitoses, {name}": partial(_mitoses, scanner=name) for name in SCANNERS}
    for name, make in makers.items():
        folder = paths.work / "monitored" / str(seed) / name.replace(", ", "-")
        if not (folder / "predictions.json").exists():
            make(paths, seed).save(folder, overwrite=True)
        yield name, read_predictions(folder)


def _digits(paths: Paths, seed: int) -> Predictions:
    """Return predictions of the test bags of MNIST-bags, those out of distribution, and blurred copies."""
    bags = store_of(preset(PRESET).data, paths, preset(PRESET).bags)
    model = Model.load(paths.work / "runs" / PRESET / str(seed))
    fitted = fit_distances(
        model.method, bags.split("train"), DISTANCES, seed=seed, held_out=bags.split("validation")
    )
    test = bags.split("test")
    usual = test.subset(np.flatnonzero(~test.is_ood.out_of_distribution))
    blurry = _only_changed(shifted_copies(usual, seed=seed, shifts=BLURS))
    return replace(model, distances=fitted).predict(concatenate([test, blurry]))


def _nuclei(paths: Paths, seed: int) -> Predictions:
    """Return predictions of the patients that were not trained on, and of blurred copies."""
    model, rest = _trained(nuclei_bags(paths.source), seed)
    return model.predict(shifted_copies(rest, seed=seed, shifts=BLURS))


def _mitoses(paths: Paths, seed: int, scanner: str) -> Predictions:
    """Return predictions of slides of the scanner of the training, and of all slides of the two others."""
    slides = scanned_slides(paths.source)
    model, rest = _trained(slides.of_scanner(scanner), seed)
    others = [_marked(slides.of_scanner(name), name) for name in slides.names if name != scanner]
    return model.predict(concatenate([_marked(rest, ""), *others]))


def _trained(bags: BagDataset, seed: int) -> tuple[Model, BagDataset]:
    """Return a MIREL model trained on some of the bags, and the others."""
    held, trained = hold_out(bags.labels.values, TRAINED, seed)
    kept, validated = hold_out(bags.labels.values[trained], VALIDATED, derive_seed(seed, 1))
    model = train(
        bags.subset(trained[kept]),
        validation=bags.subset(trained[validated]),
        network=NETWORK,
        method="mirel",
        encoder=ENCODER,
        settings={
            **SETTINGS,
            "seed": seed,
            "options": {**OPTIONS, **METHOD_SETUPS["mirel"].options},
            "distances": DISTANCES,
        },
        progress=False,
    )
    return model, bags.subset(held)


def _only_changed(bags: BagDataset) -> BagDataset:
    return bags.subset(np.flatnonzero(bags.is_ood.out_of_distribution))


def _marked(bags: BagDataset, name: str) -> BagDataset:
    """Return bags as in distribution, or as out of distribution by a name."""
    of_bags, of_instances = np.ones(len(bags), bool), np.ones(len(bags.instances), bool)
    return replace(
        bags,
        is_ood=OodFlags(of_bags & bool(name), of_bags),
        ood_sets=(name,) * len(bags),
        instance_is_ood=OodFlags(of_instances & bool(name), of_instances),
    )
