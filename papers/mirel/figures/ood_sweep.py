"""Scores of a trained preset on bags with a growing share of out-of-distribution instances, kept in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from miue.bags import BagDataset
from miue.common.files import atomic_file
from miue.datasets import cifar10, mnist
from miue.distributions import Dirichlet
from miue.predictions import PredictionTable
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.runner import train_preset
from papers.mirel.stores import store_of
from papers.mirel.trained import with_distances

RATIOS = (0.2, 0.4, 0.6, 0.8, 1.0)
SOURCES = {"mnist-bags": mnist.OOD_SOURCES, "cifar10-bags": cifar10.OOD_SOURCES}
CONFIDENCE, STRENGTH = "confidence", "strength"  # negative expected entropy in nats; α0


@dataclass(frozen=True)
class OodSweep:
    """Scores of bags and instances by source and share of out-of-distribution instances.

    Attributes:
        scores: by (level, source, ratio, score); ("bag", "", 0.0, …) is in distribution. Instances are
            those of in-distribution bags and the others of bags with a share of 1: what is
            predicted of an instance does not depend on its bag.
    """

    scores: Mapping[tuple[str, str, float, str], Float32[np.ndarray, "n"]]

    def of(self, level: str, score: str, source: str = "", ratio: float = 0.0) -> Float32[np.ndarray, "n"]:
        """Return one score of every item of one set."""
        return self.scores[level, source, ratio, score]

    def names(self, level: str) -> list[str]:
        """Return the names of the scores of a level."""
        return [name for kind, source, _, name in self.scores if kind == level and not source]


def sweep_of(name: str, seed: int, paths: Paths, device: str) -> OodSweep:
    """Return the scores of a preset on its test bags; computed once, then read from the work folder.

    Args:
        name: a preset on MNIST-bags or CIFAR10-bags.
        seed: of its training, which is done or continued where needed.
        paths: where images, models and results are.
        device: "auto", "cpu", "gpu".
    """
    path = paths.work / "sweeps" / name / f"{seed}.npz"
    if path.exists():
        return read_sweep(path)
    scores = dict(_scores(name, seed, paths, device))
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        arrays: dict[str, Any] = {"|".join(map(str, key)): values for key, values in scores.items()}
        np.savez(file, **arrays)
    return OodSweep(scores)


def read_sweep(path: Path) -> OodSweep:
    """Return the scores at ``path``."""
    scores = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            level, source, ratio, score = key.split("|")
            scores[level, source, float(ratio), score] = file[key]
    return OodSweep(scores)


def _scores(
    name: str, seed: int, paths: Paths, device: str
) -> Iterator[tuple[tuple[str, str, float, str], np.ndarray]]:
    model = train_preset(name, [seed], paths, device)[0]
    training = store_of(preset(name).data, paths).split("train")
    model = with_distances(model, ["knn"], training, seed=seed)
    estimator = next(name for name in ("residual", "bag-of-one") if name in model.method.estimators)
    for source, ratio, bags in _sets(preset(name).data, paths.source):
        predictions = model.predict(bags, estimator=estimator, device=device)
        assert predictions.instances is not None
        for score, values in scores_of(predictions.bags).items():
            yield ("bag", source, ratio, score), values
        if ratio in (0.0, 1.0):
            for score, values in scores_of(predictions.instances).items():
                yield ("instance", source, ratio, score), values


def _sets(data: str, source: Path) -> Iterator[tuple[str, float, BagDataset]]:
    draw = {"mnist-bags": mnist.mnist_bags, "cifar10-bags": cifar10.cifar10_bags}[data]
    yield "", 0.0, draw(source, splits=["test"])
    for name in SOURCES[data]:
        for ratio in RATIOS:
            bags = draw(source, splits=["test"], ood=[name], ood_ratio=ratio)
            yield name, ratio, bags.subset(np.flatnonzero(bags.is_ood.out_of_distribution))


def scores_of(table: PredictionTable) -> dict[str, Float32[np.ndarray, "n"]]:
    """Return the confidence, α0 where there is one, and every uncertainty of the items of a table.

    One softmax is its own expectation, so its expected entropy is its entropy.
    """
    uncertainties = table.uncertainties()
    scores = {CONFIDENCE: -uncertainties.get("expected_entropy", uncertainties["entropy"]), **uncertainties}
    if isinstance(table.distribution, Dirichlet):
        scores[STRENGTH] = table.distribution.alpha0.numpy()
    return {name: np.asarray(values, np.float32) for name, values in scores.items()}
