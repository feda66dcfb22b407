"""Metrics as functions of how often each item counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

Weighted = Callable[[Float64[np.ndarray, "draws n"]], Float64[np.ndarray, "draws"]]
"""A metric of n labeled items as a function of how often each counts, NaN where it is undefined."""


def ratio(above: Float64[np.ndarray, "*shape"], below: Float64[np.ndarray, "*shape"]) -> np.ndarray:
    """Return above / below, NaN where there is nothing below."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


def weighted_mean(values: Float64[np.ndarray, "n"]) -> Weighted:
    """Return the mean of some values as a function of how often each counts."""
    return lambda weights: ratio(weights @ values, weights.sum(1))
