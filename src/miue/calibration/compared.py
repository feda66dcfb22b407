"""Uncertainties as calibration compares them with thresholds: at the precision in which tables keep them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

from miue.predictions.table import PredictionTable


def compared_uncertainties(table: PredictionTable) -> Mapping[str, Float64[np.ndarray, "n"]]:
    """Return every uncertainty rounded to float32, by name.

    Tables are written in float32. A bag whose score equals a threshold must be on the same side of it before and
    after its table was written; rounding keeps the order, so that each guarantee holds for the rounded values.
    """
    return {name: round_scores(values) for name, values in table.uncertainties().items()}


def round_scores(values: np.ndarray) -> Float64[np.ndarray, "*n"]:
    """Return scores rounded to float32; one beyond its range is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)
