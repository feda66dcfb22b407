"""Bounds of an error rate from errors counted: exact for independent items, corrected for those of one patient."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped


def error_bound(errors: int, count: int, confidence: float) -> float:
    """Return the upper bound that an error rate exceeds with chance at most 1 − confidence.

    The confidence quantile of Beta(errors + 1, count − errors).

    Reference: Clopper & Pearson 1934.

    >>> round(error_bound(0, 45, 0.9), 4)
    0.0499
    """
    return _bound(float(errors), float(count), confidence)


def error_interval(errors: int, count: int, confidence: float) -> tuple[float, float]:
    """Return the two-sided interval of an error rate.

    Reference: Clopper & Pearson 1934.
    """
    return _interval(float(errors), float(count), confidence)


def grouped_error_interval(
    wrong: Bool[np.ndarray, "n"], groups: Shaped[np.ndarray, "n"], confidence: float
) -> tuple[float, float]:
    """Return the two-sided interval of the error rate of items that depend on each other within their group.

    The exact interval, of as many independent items as would vary as much: n p (1 − p) / s², where s² is the
    variance of the sum of errors estimated between the groups, times the squared ratio of the t quantiles of n − 1
    and of groups − 1 degrees of freedom, and at most n. Where all are right, or all wrong, s² says nothing: groups
    then count as if all items of one were equal, n² / Σ size². That of ``error_interval`` where no group has two.

    Reference: Korn & Graubard 1998; the size of unequal groups by Kish 1965.

    Args:
        wrong: of each item, at least one.
        groups: of each item, such as its patient.
        confidence: of the interval, in (0, 1).
    """
    from scipy.stats import t

    _, group_of = np.unique(groups, return_inverse=True)
    sizes, errors_of = np.bincount(group_of), np.bincount(group_of, wrong)
    count, many, errors = len(wrong), len(sizes), int(wrong.sum())
    if many == count:
        return error_interval(errors, count, confidence)
    rate, half = errors / count, (1 + confidence) / 2
    if many == 1 or errors in (0, count):
        effective = float(count**2 / (sizes**2).sum())
    else:
        variance = many / (many - 1) * float(((errors_of - rate * sizes) ** 2).sum())
        independent = rate * (1 - rate) * count**2 / variance if variance else float(count)
        degrees = float(t.ppf(half, count - 1) / t.ppf(half, many - 1)) ** 2
        effective = min(float(count), independent * degrees)
    return _interval(rate * effective, effective, confidence)


def p_values(
    errors: Int64[np.ndarray, "n"], counts: Int64[np.ndarray, "n"], max_error: float
) -> Float64[np.ndarray, "n"]:
    """Return P(Binomial(count, max_error) ≤ errors): small where the error rate is below ``max_error``.

    At most 1 − confidence exactly where ``error_bound`` is at most ``max_error``.
    """
    from scipy.stats import binom

    return np.asarray(binom.cdf(errors, counts, max_error), np.float64)


def _bound(errors: float, count: float, confidence: float) -> float:
    from scipy.stats import beta

    return 1.0 if errors >= count else float(beta.ppf(confidence, errors + 1, count - errors))


def _interval(errors: float, count: float, confidence: float) -> tuple[float, float]:
    half = (1 + confidence) / 2
    return 1 - _bound(count - errors, count, half), _bound(errors, count, half)
