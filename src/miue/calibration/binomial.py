"""Exact bounds of an error rate from errors counted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64


def error_bound(errors: int, count: int, confidence: float) -> float:
    """Return the upper bound that an error rate exceeds with chance at most 1 − confidence.

    The confidence quantile of Beta(errors + 1, count − errors).

    Reference: Clopper & Pearson 1934.

    >>> round(error_bound(0, 45, 0.9), 4)
    0.0499
    """
    from scipy.stats import beta

    return 1.0 if errors >= count else float(beta.ppf(confidence, errors + 1, count - errors))


def error_interval(errors: int, count: int, confidence: float) -> tuple[float, float]:
    """Return the two-sided interval of an error rate.

    Reference: Clopper & Pearson 1934.
    """
    half = (1 + confidence) / 2
    return 1 - error_bound(count - errors, count, half), error_bound(errors, count, half)


def p_values(
    errors: Int64[np.ndarray, "n"], counts: Int64[np.ndarray, "n"], max_error: float
) -> Float64[np.ndarray, "n"]:
    """Return P(Binomial(count, max_error) ≤ errors): small where the error rate is below ``max_error``.

    At most 1 − confidence exactly where ``error_bound`` is at most ``max_error``.
    """
    from scipy.stats import binom

    return np.asarray(binom.cdf(errors, counts, max_error), np.float64)
