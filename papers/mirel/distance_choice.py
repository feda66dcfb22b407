"""Which distance is the default: decided on validation bags and shifted copies of them, never on test data.

Shifts are like those of data augmentation: quarter turns, noise, blends and blur of digits; noise, blends, blur
and a stain of the whole slide of nuclei, which may be seen from any side. Blur and stain have strengths that the
shifts of tests do not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.common.tables import write_rows
from miue.datasets.image_shifts import SHIFTS, ImageShift, shifted_copies
from miue.evaluation import evaluate
from miue.model import Model
from miue.pathology.stain_shifts import blurred, draw_stain_change, stains_changed
from miue.scores import DISTANCES
from papers.mirel.nuclei.bags import nuclei_bags
from papers.mirel.nuclei.experiment import Fold, fold_of, train_fold
from papers.mirel.paths import Paths
from papers.mirel.trained import load_trained, with_distances

NUCLEI = "nuclei/mirel"
BLUR_SIGMA, STAIN_RANGE = 1.5, 0.1


class SlideStain:
    """A stain that is drawn once for each bag."""

    drawn_per = "slide"

    def __call__(self, images: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return the images of one bag in another stain."""
        return stains_changed(images, draw_stain_change(STAIN_RANGE, random))


def blur(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the images out of focus."""
    return blurred(images, BLUR_SIGMA)


OF_DIGITS: dict[str, ImageShift] = {**SHIFTS, "blur": blur}
OF_NUCLEI: dict[str, ImageShift] = {
    "noise": SHIFTS["noise"],
    "blend": SHIFTS["blend"],
    "blur": blur,
    "stain": SlideStain(),
}
ALL = tuple(dict.fromkeys((*OF_DIGITS, *OF_NUCLEI)))
COLUMNS = ("preset", "seed", "level", "score", *ALL, "mean")


def distance_choice(names: Sequence[str], seeds: Sequence[int], paths: Paths) -> list[tuple[str, ...]]:
    """Return the AUROC of every score for validation bags against shifted copies of them.

    Args:
        names: of trained presets, or "nuclei/mirel", of which one fold is trained where it is not.
        seeds: of training.
        paths: of data and trained models.

    Raises:
        StorageError: a preset has not been trained with a seed.
    """
    rows = []
    for name in names:
        for seed in seeds:
            rows += _nuclei(seed, paths) if name == NUCLEI else _digits(name, seed, paths)
    return rows


def _digits(name: str, seed: int, paths: Paths) -> list[tuple[str, ...]]:
    trained = load_trained(name, seed, paths)
    training, validation = trained.bags.split("train"), trained.bags.split("validation")
    return _compare(name, seed, trained.model, training, validation, OF_DIGITS)


def _nuclei(seed: int, paths: Paths) -> list[tuple[str, ...]]:
    fold, bags = Fold("mirel", seed, 0), nuclei_bags(paths.source)
    run = paths.run(NUCLEI, seed)
    if not run.exists():
        train_fold(fold, bags).save(run)
    training, validation, _ = fold_of(bags, seed, fold.number)
    return _compare(NUCLEI, seed, Model.load(run), training, validation, OF_NUCLEI)


def _compare(
    name: str,
    seed: int,
    model: Model,
    training: BagDataset,
    validation: BagDataset,
    shifts: Mapping[str, ImageShift],
) -> list[tuple[str, ...]]:
    """Return the rows of one model; every second validation bag standardizes, the others are compared."""
    usual, judged = (validation.subset(np.arange(start, len(validation), 2)) for start in (0, 1))
    with_every = with_distances(model, list(DISTANCES), training, seed=seed, held_out=usual)
    shifted = shifted_copies(judged, seed=0, shifts=shifts)
    evaluation = evaluate(with_every.predict(shifted), allow_training_bags=True)
    assert evaluation.instances is not None
    rows = []
    for level, results in (("bag", evaluation.bags), ("instance", evaluation.instances)):
        for score, separations in results.by_measure.items():
            values = {shift: separations.ood[shift].auroc.value for shift in shifts}
            known = [value for value in values.values() if value is not None]
            cells = [f"{values[shift]:.4f}" if values.get(shift) is not None else "" for shift in ALL]
            rows.append((name, str(seed), level, score, *cells, f"{float(np.mean(known)):.4f}"))
    return rows


def write_choice(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    """Write the rows as CSV, atomically."""
    write_rows(path, COLUMNS, rows)


def ranking(rows: Sequence[tuple[str, ...]], level: str) -> list[tuple[str, float]]:
    """Return scores and their mean AUROC over presets, each the mean over seeds and shifts, the best first."""
    means: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row[2] == level:
            means.setdefault(row[3], {}).setdefault(row[0], []).append(float(row[-1]))
    of_presets = {score: np.mean([np.mean(values) for values in of.values()]) for score, of in means.items()}
    return sorted(((score, float(value)) for score, value in of_presets.items()), key=lambda item: -item[1])
