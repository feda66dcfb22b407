"""Whether new bags, taken together, are like the calibration bags: one test for each uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miue.calibration.compared import compared_uncertainties
from miue.calibration.patients import counted_rows
from miue.predictions.provenance import DatasetShift
from miue.predictions.table import PredictionTable
from miue.predictions.training_parts import is_trained_on

CHANCE = 0.01
"""Of bags like those of the calibration to be called different all the same."""

EXACT_PAIRS = 10_000
"""Up to so many pairs of bags, the chance is computed exactly."""


def usual_values(table: PredictionTable) -> dict[str, tuple[float, ...]]:
    """Return the sorted values of each uncertainty of the bags; none of one that is not finite everywhere."""
    return {name: tuple(np.sort(values).tolist()) for name, values in _finite(table).items()}


def find_shift(
    table: PredictionTable, usual: Mapping[str, Sequence[float]], *, weighted: bool = False
) -> DatasetShift:
    """Compare bags, but for those trained on or known to be out of distribution, with the calibration bags.

    Each uncertainty is compared by the two-sample Kolmogorov–Smirnov test, which takes values that are too low as
    seriously as those that are too high. Chances are corrected for the number of tests (Bonferroni), so that bags
    drawn as the calibration bags were are called different with chance at most `CHANCE`.

    Reference: Rabanser et al. 2019, "Failing loudly: an empirical study of methods for detecting dataset shift".

    Args:
        table: of bags.
        usual: sorted values of the calibration bags, by uncertainty.
        weighted: these are values of the bags that the calibration was weighted for.
    """
    from scipy.stats import ks_2samp

    new = table.subset(np.flatnonzero(~table.is_ood.out_of_distribution & ~is_trained_on(table)))
    compared = new.subset(counted_rows(new.patients, len(new), "one", seed=0))
    calibrated = max(map(len, usual.values()), default=0)
    differing: dict[str, dict[str, float]] = {"higher": {}, "lower": {}}
    values = _finite(compared) if len(compared) else {}
    shared = [name for name in usual if name in values]
    for name in shared:
        how = "exact" if len(compared) * len(usual[name]) <= EXACT_PAIRS else "asymp"
        result: Any = ks_2samp(values[name], usual[name], method=how)
        chance = min(1.0, float(result.pvalue) * len(shared))
        if chance <= CHANCE:
            differing["lower" if result.statistic_sign > 0 else "higher"][name] = chance
    return DatasetShift(bags=len(compared), calibrated=calibrated, weighted=weighted, **differing)


def _finite(table: PredictionTable) -> dict[str, np.ndarray]:
    """Return the uncertainties that are finite for every bag."""
    return {name: one for name, one in compared_uncertainties(table).items() if np.isfinite(one).all()}
