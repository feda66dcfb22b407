"""Made predictions of slides."""

from __future__ import annotations

import numpy as np
import torch

from miue.bags import Labels
from miue.coords import Coords
from miue.distributions import Dirichlet, PredictiveDistribution
from miue.prediction_table import PredictionTable

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
        np.zeros(count, bool),
        np.array([""] * count, object),
        None if coords is None else np.arange(count, dtype=np.int64),
        scores,
        None if coords is None else Coords.of(coords),
    )


def alpha_of(count: int, seed: int = 0, classes: int = 2) -> Dirichlet:
    """Return Dirichlets of random evidence."""
    random = np.random.default_rng(seed)
    return Dirichlet(torch.from_numpy(1 + random.gamma(1.0, 3.0, (count, classes))))
