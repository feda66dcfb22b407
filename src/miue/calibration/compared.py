"""What of bags is compared: uncertainties as tables keep them, one bag of each patient, new bags with the old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from miue.bags import draw_one_of_each, group_by_patient
from miue.common.errors import ConfigError, DataError, ModelError
from miue.predictions import DatasetShift, PredictionTable

BAGS_OF_PATIENT = ("one", "all")
ALL_COUNTED = (
    "bags of one patient are alike and were counted as if they were not, so that the guarantees are "
    "stronger in words than in fact"
)

CHANCE = 0.01
"""Of bags like those of the calibration to be called different all the same."""

EXACT_PAIRS = 10_000
"""Up to so many pairs of bags, the chance is computed exactly."""


def compared_uncertainties(table: PredictionTable) -> Mapping[str, Float64[np.ndarray, "n"]]:
    """Return every uncertainty rounded to float32, by name.

    Tables are written in float32. A bag whose score equals a threshold must be on the same side of it before and
    after its table was written; rounding keeps the order, so that each guarantee holds for the rounded values.
    """
    return {name: round_scores(values) for name, values in table.uncertainties().items()}


def compared_uncertainty(
    table: PredictionTable, name: str, item: str = "the predictions"
) -> Float64[np.ndarray, "n"]:
    """Return one uncertainty rounded to float32.

    Args:
        table: of bags.
        name: of the uncertainty.
        item: what the table is, for messages.

    Raises:
        DataError: the table does not have it, or it is not a number for some bag.
    """
    if name not in table.uncertainty_names:
        raise DataError(
            item=item,
            wanted=f"the uncertainty {name!r}, which was calibrated",
            got=", ".join(table.uncertainty_names),
            fix="predict with the model that was calibrated, with all its scores",
        )
    values = round_scores(table.uncertainty(name))
    if (unknown := np.isnan(values)).any():
        raise DataError(
            item=f"{name} of bag {str(table.bag_ids[unknown.argmax()])!r} of {item}",
            wanted="a number",
            got=f"NaN ({int(unknown.sum()):,} such bags)",
            fix="mend the score, or leave these bags out",
        )
    return values


def round_scores(values: np.ndarray) -> Float64[np.ndarray, "*n"]:
    """Return scores rounded to float32; one beyond its range is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)


def refuse_other_weights(calibrated: str | None, others: str | None, item: str) -> None:
    """Raise where predictions are of other weights than those that are calibrated; unknown ones are let pass.

    Args:
        calibrated: SHA-256 of the weights that are calibrated.
        others: of those that made the predictions.
        item: which predictions, for messages.

    Raises:
        ModelError: other weights.
    """
    if None not in (calibrated, others) and calibrated != others:
        raise ModelError(
            item=item,
            wanted=f"predictions of the weights that are calibrated (SHA-256 {calibrated})",
            got=f"predictions of other weights (SHA-256 {others})",
            fix="predict with the calibrated model, or calibrate again with these weights",
        )


def counted_rows(
    patients: Sequence[str] | np.ndarray | None, count: int, of_patient: str, seed: int
) -> Int64[np.ndarray, "m"]:
    """Return the rows of the bags that a calibration counts.

    Where patients are known, one bag of each is drawn, so that what is counted is exchangeable with one bag of
    a new patient. Bags of unknown patients count each for itself.

    Args:
        patients: of the bags; None where none is known.
        count: of the bags.
        of_patient: "one", or "all" to count every bag all the same.
        seed: of the draw.

    Raises:
        ConfigError: neither of the two.
    """
    if of_patient not in BAGS_OF_PATIENT:
        raise ConfigError(
            item="bags of a patient", wanted=" or ".join(BAGS_OF_PATIENT), got=of_patient, fix="choose one of them"
        )
    if patients is None or of_patient == "all":
        return np.arange(count)
    return draw_one_of_each(group_by_patient(patients), seed)


def count_patients(patients: Sequence[str] | np.ndarray | None) -> int | None:
    """Return how many patients there are, a bag of an unknown one counted as one; None where none is known."""
    return None if patients is None else len(np.unique(group_by_patient(patients)))


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

    new = table.subset(np.flatnonzero(~table.is_ood.out_of_distribution & ~table.trained_on))
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
