"""What the temperature that training fits by default does to presets that were trained without one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from miue.calibration import fit_temperature
from miue.common.text import ResultTable
from miue.evaluation import evaluate
from miue.predictions import Predictions
from papers.mirel.measured import Row, read_measured, write_measured
from papers.mirel.paths import Paths
from papers.mirel.trained import load_trained

COLUMNS = ("preset", "seed", "temperature", "predictions", "level", "metric", "value")
METRICS = ("nll", "ece", "auroc", "confidence_auroc", "ood_fmnist_auroc", "ood_kmnist-test_auroc")
BEFORE, AFTER = "as trained", "tempered"


def measure_temperatures(names: Sequence[str], seeds: Sequence[int], paths: Paths, out: Path) -> list[Row]:
    """Return metrics of test bags with and without the temperature of the validation bags.

    Args:
        names: of presets of MNIST-bags.
        seeds: of training; what the file has already is not measured again.
        paths: of data and trained models.
        out: CSV with the rows of each preset and seed, written after each.

    Raises:
        StorageError: a preset has not been trained with a seed.
    """
    rows = read_measured(out)
    done = {(row["preset"], row["seed"]) for row in rows}
    for name in names:
        for seed in seeds:
            if (name, str(seed)) in done:
                continue
            trained = load_trained(name, seed, paths)
            model, bags = trained.model, trained.bags
            held_out = model.predict(bags.split("validation")).bags
            t = fit_temperature(held_out) if model.method.takes_temperature else None
            found = model.predict(bags.split("test"))
            labelled = {"preset": name, "seed": str(seed), "temperature": "" if t is None else f"{t:.4f}"}
            for said, predictions in ((BEFORE, found), (AFTER, found if t is None else found.tempered(t))):
                rows += [{**labelled, "predictions": said, **row} for row in _metrics(predictions)]
            write_measured(out, COLUMNS, rows)
    return rows


def _metrics(predictions: Predictions) -> Iterator[Row]:
    for level, metric, value in evaluate(predictions, allow_training_bags=True).metrics():
        if metric in METRICS and value.value is not None:
            yield {"level": level, "metric": metric, "value": f"{value.value:.5f}"}


def table(rows: Sequence[Row]) -> ResultTable:
    """Return the mean over seeds of each metric before and after, a row for each preset and level."""
    values: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    seeds: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        values[row["preset"], row["level"]][row["metric"], row["predictions"]].append(float(row["value"]))
        seeds[row["preset"]].add(row["seed"])
    shown = []
    for (name, level), of_level in values.items():
        cells = []
        for metric in METRICS:
            before, after = (of_level.get((metric, said), []) for said in (BEFORE, AFTER))
            scale, digits = (1, 3) if metric == "nll" else (100, 1)
            means = [f"{scale * float(np.mean(of_one)):.{digits}f}" for of_one in (before, after) if of_one]
            cells.append(" → ".join(means) or "—")
        shown.append((name, level, str(len(seeds[name])), *cells))
    return ResultTable(("preset", "level", "seeds", *METRICS), tuple(shown))
