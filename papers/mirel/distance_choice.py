"""Which distance is the default: decided on validation bags and shifted copies of them, never on test data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.common.tables import write_rows
from miue.datasets.image_shifts import SHIFTS, shifted_copies
from miue.evaluation import evaluate
from miue.model.feature_scores import fit_distances
from miue.model.model import Model
from miue.scores import DISTANCES
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.stores import store_of

COLUMNS = ("preset", "seed", "level", "score", *SHIFTS, "mean")


def distance_choice(names: Sequence[str], seeds: Sequence[int], paths: Paths) -> list[tuple[str, ...]]:
    """Return, for trained presets, the AUROC of every score for validation bags against shifted copies of them.

    Raises:
        StorageError: a preset has not been trained with a seed.
    """
    rows = []
    for name in names:
        bags = store_of(preset(name).data, paths, preset(name).bags)
        shifted = shifted_copies(bags.split("validation"), seed=0)
        for seed in seeds:
            model = Model.load(paths.work / "runs" / name / str(seed))
            fitted = fit_distances(model.method, bags.split("train"), list(DISTANCES), seed=seed)
            evaluation = evaluate(replace(model, distances=fitted).predict(shifted))
            assert evaluation.instances is not None
            for level, results in (("bag", evaluation.bags), ("instance", evaluation.instances)):
                for score, separations in results.by_measure.items():
                    values = [separations.ood[shift].auroc.value for shift in SHIFTS]
                    shares = [value if value is not None else float("nan") for value in values]
                    cells = [f"{value:.4f}" for value in (*shares, float(np.mean(shares)))]
                    rows.append((name, str(seed), level, score, *cells))
    return rows


def write_choice(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    """Write the rows as CSV, atomically."""
    write_rows(path, COLUMNS, rows)


def ranking(rows: Sequence[tuple[str, ...]], level: str) -> list[tuple[str, float]]:
    """Return scores and their mean AUROC over presets, seeds and shifts, the best first."""
    means: dict[str, list[float]] = {}
    for row in rows:
        if row[2] == level:
            means.setdefault(row[3], []).append(float(row[-1]))
    return sorted(((score, float(np.mean(v))) for score, v in means.items()), key=lambda item: -item[1])
