"""Coverage of plain and weighted prediction sets on predicted bags whose mix is changed: a table as CSV.

    python benchmarks/covariate_shift.py PREDICTIONS OUT.csv

In each of 30 runs a third of the labeled bags in distribution calibrates. The others are kept with a chance
proportional to exp(tilt · z): z is the standardized entropy, at most 2 from 0, its absolute value (more bags at
both ends), or the class as ±1. One half of those kept are the new bags, without labels; the coverage is that of
the other half.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.calibration import Calibration, calibrate
from miue.common.errors import DataError
from miue.common.tables import write_rows
from miue.predictions import Predictions, read_predictions

RUNS, TILTS = 30, (0.0, 0.5, 1.0)
COLUMNS = ("mix", "tilt", "calibration_bags", "new_bags", "refused", "plain", "weighted", "effective_sample_size")


def measure(predictions: Predictions, mix: str, z: np.ndarray, tilt: float) -> tuple[object, ...]:
    """Return a row: the mean over the runs that are not refused; the required coverage is 0.9."""
    table, random, rows, refused = predictions.bags, np.random.default_rng(0), [], 0
    third = len(table) // 3
    for _ in range(RUNS):
        order = random.permutation(len(table))
        pool = order[third:]
        kept = pool[random.random(len(pool)) < np.exp(tilt * (z[pool] - z.max()))]
        half = len(kept) // 2
        parts = (order[:third], kept[:half], kept[half:])
        held, new, later = (replace(predictions, bags=table.subset(part)) for part in parts)
        try:
            weighted = calibrate(held, scaling=False, like=new)
        except DataError:
            refused += 1
            continue
        plain = calibrate(held, scaling=False, deferral=None, false_alarms=None)
        assert weighted.covariate_shift is not None
        size = weighted.covariate_shift.effective_sample_size
        rows.append((half, coverage(plain, later), coverage(weighted, later), size))
    means = np.mean(rows, 0) if rows else np.full(4, np.nan)
    numbers = (f"{means[1]:.3f}", f"{means[2]:.3f}", f"{means[3]:.0f}")
    return mix, tilt, third, f"{means[0]:.0f}", refused, *numbers


def coverage(calibration: Calibration, new: Predictions) -> float:
    """Return the share of labels that are in their set."""
    assert calibration.prediction_sets is not None
    sets = calibration.prediction_sets.of(new.bags.probabilities)
    return float(sets[np.arange(len(sets)), new.bags.labels.values].mean())


if __name__ == "__main__":
    whole = read_predictions(Path(sys.argv[1]))
    judged = replace(whole, bags=whole.bags.subset(np.flatnonzero(whole.bags.judged)), instances=None)
    entropy = judged.bags.uncertainty("entropy")
    mixes = {
        "entropy": np.clip((entropy - entropy.mean()) / entropy.std(), -2, 2),
        "both ends of the entropy": np.abs(np.clip((entropy - entropy.mean()) / entropy.std(), -2, 2)),
        "class": judged.bags.labels.values * 2.0 - 1,
    }
    write_rows(
        Path(sys.argv[2]), COLUMNS, [measure(judged, m, z, tilt) for m, z in mixes.items() for tilt in TILTS]
    )
