"""Made predictions of slides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from typer.testing import CliRunner

from miue.bags import Coords, Labels, OodFlags
from miue.cli.app import app
from miue.distributions import Categorical, Dirichlet, PredictiveDistribution
from miue.predictions import Predictions, PredictionTable, Provenance

STEP = 512
GRID = np.array([[x, y] for y in range(0, 3 * STEP, STEP) for x in range(0, 5 * STEP, STEP)], np.int64)
"""Five by three patches."""


def prediction_table(
    distribution: PredictiveDistribution, ids: list[str], coords: np.ndarray | None = None, **scores: np.ndarray
) -> PredictionTable:
    """Return a table without labels."""
    count = len(ids)
    return PredictionTable(
        distribution,
        np.array(ids, object),
        Labels.unknown(count),
        OodFlags.unknown(count),
        np.array([""] * count, object),
        None if coords is None else np.arange(count, dtype=np.int64),
        scores,
        None if coords is None else Coords.of(coords),
    )


def alpha_of(count: int, seed: int = 0, classes: int = 2) -> Dirichlet:
    """Return Dirichlets of random evidence."""
    random = np.random.default_rng(seed)
    return Dirichlet(torch.from_numpy(1 + random.gamma(1.0, 3.0, (count, classes))))


def predictions_of_two_slides() -> Predictions:
    """Two slides, the second on a coarser grid that does not begin at 0."""
    coords = np.concatenate([GRID, 2 * GRID[:4] + [77, 1001]])
    ids = ["007"] * 15 + ["b"] * 4
    distances = np.linspace(0.1, 2, 19)
    instances = prediction_table(alpha_of(19), ids, coords, knn=distances)
    bags = prediction_table(alpha_of(2, 1), ["007", "b"], knn_mean=np.array([0.5, 1.0]))
    return Predictions(bags, instances, Provenance(classes=("normal", "tumour")))


def one_slide(coords: list[list[int]], tumour: list[float]) -> Predictions:
    """One slide, given the probability of tumour at each place."""
    p = torch.tensor([[1 - t, t] for t in tumour], dtype=torch.float64)
    instances = prediction_table(Categorical(p), ["s"] * len(p), np.array(coords))
    return Predictions(prediction_table(Categorical(p[:1]), ["s"]), instances)


def write_glass(path: Path, width: int, height: int, microns_per_pixel: float = 0.499) -> None:
    """Write a slide of glass alone."""
    per_cm = 1e4 / microns_per_pixel
    stated: dict[str, Any] = {"resolution": (per_cm, per_cm), "resolutionunit": "CENTIMETER"}
    glass = np.full((height, width, 3), 255, np.uint8)
    path.parent.mkdir(exist_ok=True)
    tifffile.imwrite(path, glass, tile=(256, 256), photometric="rgb", compression="zlib", **stated)


def export(*words: object) -> Any:
    """Return what the command ``miue export`` came to."""
    return CliRunner().invoke(app, ["export", *map(str, words)])
