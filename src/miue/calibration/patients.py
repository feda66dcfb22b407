"""Bags of one patient are alike: which bags may be counted as draws of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from miue.bags.drawing import draw_one_of_each, group_by_patient
from miue.common.errors import ConfigError

BAGS_OF_PATIENT = ("one", "all")
ALL_COUNTED = (
    "bags of one patient are alike and were counted as if they were not, so that the guarantees are "
    "stronger in words than in fact"
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
