"""Bags of one patient are alike: which bags may be counted as draws of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.errors import ConfigError
from miue.prediction_table import PredictionTable

BAGS_OF_PATIENT = ("one", "all")
ALL_COUNTED = (
    "bags of one patient are alike and were counted as if they were not, so that the guarantees are "
    "stronger in words than in fact"
)


def counted_bags(
    table: PredictionTable, of_patient: str, seed: int
) -> tuple[Int64[np.ndarray, "m"], dict[str, Any]]:
    """Return the rows of the bags that a calibration counts, and what there is to say of it.

    Where patients are known, one bag of each is drawn, so that what is counted is exchangeable with one bag of
    a new patient. Bags of unknown patients count each for itself.

    Args:
        table: of bags.
        of_patient: "one", or "all" to count every bag all the same.
        seed: of the draw.

    Raises:
        ConfigError: neither of the two.
    """
    if of_patient not in BAGS_OF_PATIENT:
        raise ConfigError(
            item="bags of a patient", wanted=" or ".join(BAGS_OF_PATIENT), got=of_patient, fix="choose one of them"
        )
    everyone = np.arange(len(table))
    if table.patients is None:
        return everyone, {}
    names = np.array([str(name or f"\0{row}") for row, name in enumerate(table.patients)])
    patients = len(np.unique(names))
    if patients == len(table):
        return everyone, {"patients": patients}
    if of_patient == "all":
        return everyone, {"patients": patients, "caveat": ALL_COUNTED}
    drawn = np.random.default_rng(seed).permutation(len(table))
    _, first = np.unique(names[drawn], return_index=True)
    return np.sort(drawn[first]), {"patients": patients, "bags left out": len(table) - patients}
