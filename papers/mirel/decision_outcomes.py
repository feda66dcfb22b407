"""What decisions come to on MNIST-bags, at the defaults, from validation bags or from halves of the test bags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from miue.calibration import Calibration, calibrate, decide
from miue.common.seeds import derive_seed
from miue.evaluation import evaluate_decisions
from miue.model import Recipe
from miue.predictions import Predictions
from papers.mirel.paths import Paths
from papers.mirel.results import mean_and_std
from papers.mirel.trained import load_trained

COLUMNS = ("preset", "seed", "calibrated_on", "draw", "metric", "value")
VALIDATION, HALF = "validation bags", "half of the test bags"
HALVES = 20
METRICS = ("accepted", "deferred", "false_alarms", "selective_risk", "coverage", "set_size", "nll")
Row = tuple[str, ...]


def outcomes(name: str, seed: int, paths: Paths) -> list[Row]:
    """Return the metrics of the decisions of one trained preset.

    The default distance is fitted to its training bags, as ``miue train`` does; the preset was trained without.

    Args:
        name: of a preset that was trained.
        seed: of the training.
        paths: of data and trained models.

    Raises:
        StorageError: the preset has not been trained with this seed.
    """
    trained = load_trained(name, seed, paths)
    model = trained.with_distances(Recipe().distances)
    test = model.predict(trained.bags.split("test"))
    held_out = model.predict(trained.bags.split("validation"))
    rows: list[Row] = [
        (name, str(seed), VALIDATION, "0", metric, f"{value:.5f}")
        for metric, value in _decided(test, calibrate(held_out))
    ]
    usual = np.flatnonzero(test.bags.ood_sets == "")
    for draw in range(HALVES):
        shuffled = np.random.default_rng(derive_seed(seed, draw)).permutation(usual)
        half, rest = shuffled[: len(usual) // 2], shuffled[len(usual) // 2 :]
        others = np.concatenate([np.sort(rest), np.flatnonzero(test.bags.ood_sets != "")])
        calibration = calibrate(_bags_alone(test, np.sort(half)))
        rows += [
            (name, str(seed), HALF, str(draw), metric, f"{value:.5f}")
            for metric, value in _decided(_bags_alone(test, others), calibration)
        ]
    return rows


def _bags_alone(predictions: Predictions, rows: np.ndarray) -> Predictions:
    return replace(predictions, bags=predictions.bags.subset(rows), instances=None)


def _decided(predictions: Predictions, calibration: Calibration) -> Iterator[tuple[str, float]]:
    """Yield the metrics that are defined: where no threshold passed no bag is accepted, and there is no risk."""
    table = decide(predictions, calibration).bags
    assert table.decisions is not None
    found = evaluate_decisions(table, table.decisions, calibration)
    values = {name: found.metrics[name] for name in METRICS}
    values |= {f"called OOD {name}": metric for name, metric in found.found.items()}
    values |= {f"not accepted {name}": metric for name, metric in found.not_accepted.items()}
    yield "threshold passed", float(calibration.deferral is not None and not calibration.deferral.refused)
    yield from ((name, metric.value) for name, metric in values.items() if metric.value is not None)


def summaries(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield mean ± standard deviation over seeds of each metric in %, the mean over draws first."""
    keys = list(dict.fromkeys((row[0], row[2], row[4]) for row in rows))
    for name, calibrated_on, metric in keys:
        values: dict[str, list[float]] = {}
        for row in rows:
            if (row[0], row[2], row[4]) == (name, calibrated_on, metric):
                values.setdefault(row[1], []).append(float(row[5]))
        means, highest = [np.mean(of) for of in values.values()], max(map(max, values.values()))
        factor = 1 if metric in ("nll", "set_size") else 100
        shown = mean_and_std([factor * float(mean) for mean in means], digits=2)
        yield name, calibrated_on, metric, shown, f"{factor * highest:.2f}"
