"""Whether new bags, taken together, are like the calibration bags: one test for each uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from miue.calibration.compared import compared_uncertainties
from miue.calibration.patients import counted_bags
from miue.predictions.folder import Predictions
from miue.predictions.table import PredictionTable

KEY = "dataset_shift"
"""Where predictions keep what was found."""

CHANCE = 0.01
"""Of bags like those of the calibration to be found different all the same."""

EXACT_PAIRS = 10_000
"""Up to so many pairs of bags, the chance is computed exactly."""

SHOWN = 3  # uncertainties in a message, the clearest first


class DatasetShift(BaseModel):
    """How new bags differ from the calibration bags.

    Attributes:
        bags: how many new ones were compared; one of each patient where patients are known.
        calibrated: how many calibration bags there were.
        higher: uncertainties that are higher than usual, with the chance of so large a difference among bags of
            one kind, times the number of uncertainties; those of `CHANCE` or less.
        lower: likewise, that are lower.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    bags: int
    calibrated: int
    higher: dict[str, float]
    lower: dict[str, float]

    def __bool__(self) -> bool:
        return bool(self.higher or self.lower)

    def __str__(self) -> str:
        sides = (("higher", self.higher), ("lower", self.lower))
        found = sorted((chance, name, side) for side, names in sides for name, chance in names.items())
        parts = [f"{name} is {side} (p = {chance:.1g})" for chance, name, side in found[:SHOWN]]
        parts += [f"{len(found) - SHOWN} more differ"] if found[SHOWN:] else []
        count = f"the {self.bags:,} new bags are not like the {self.calibrated:,} calibration bags"
        return f"{count}: {', '.join(parts)}" if parts else f"no sign that {count}"


def shift_of(predictions: Predictions) -> DatasetShift | None:
    """Return what was found when the predictions were decided on; None where nothing was, or nothing is told."""
    try:
        return DatasetShift.model_validate(predictions.about.get(KEY))
    except ValidationError:  # none, or not as this version writes it
        return None


def usual_values(table: PredictionTable) -> dict[str, tuple[float, ...]]:
    """Return the sorted values of each uncertainty of the bags; none of one that is not finite everywhere."""
    return {name: tuple(np.sort(values).tolist()) for name, values in _finite(table).items()}


def find_shift(table: PredictionTable, usual: Mapping[str, Sequence[float]]) -> DatasetShift:
    """Compare bags, but for those known to be foreign, with the calibration bags.

    Each uncertainty is compared by the two-sample Kolmogorov–Smirnov test, which takes values that are too low as
    seriously as those that are too high. Chances are corrected for the number of tests (Bonferroni), so that bags
    drawn as the calibration bags were are found different with chance at most `CHANCE`.

    Reference: Rabanser et al. 2019, "Failing loudly: an empirical study of methods for detecting dataset shift".

    Args:
        table: of bags.
        usual: sorted values of the calibration bags, by uncertainty.
    """
    from scipy.stats import ks_2samp

    known = table.subset(np.flatnonzero(~table.is_ood.out_of_distribution))
    compared = known.subset(counted_bags(known, "one", seed=0)[0])
    calibrated = max(map(len, usual.values()), default=0)
    found: dict[str, dict[str, float]] = {"higher": {}, "lower": {}}
    values = _finite(compared) if len(compared) else {}
    shared = [name for name in usual if name in values]
    for name in shared:
        how = "exact" if len(compared) * len(usual[name]) <= EXACT_PAIRS else "asymp"
        result: Any = ks_2samp(values[name], usual[name], method=how)
        chance = min(1.0, float(result.pvalue) * len(shared))
        if chance <= CHANCE:
            found["lower" if result.statistic_sign > 0 else "higher"][name] = chance
    return DatasetShift(bags=len(compared), calibrated=calibrated, **found)


def _finite(table: PredictionTable) -> dict[str, np.ndarray]:
    """Return the uncertainties that are finite for every bag."""
    return {name: one for name, one in compared_uncertainties(table).items() if np.isfinite(one).all()}
