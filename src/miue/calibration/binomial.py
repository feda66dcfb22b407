"""Bounds of an error rate from errors counted: exact for independent items, corrected for those of one patient."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped


def grouped_error_interval(
    wrong: Bool[np.ndarray, "n"], groups: Shaped[np.ndarray, "n"], confidence: float
) -> tuple[float, float]:
    """Return the two-sided interval of the error rate of items that depend on each other within their group.

    The exact interval, of as many independent items as would vary as much: n p (1 − p) / s², where s² is the
    variance of the sum of errors estimated between the groups, times the squared ratio of the t quantiles of n − 1
    and of groups − 1 degrees of freedom, and at most n. Where all are right, or all wrong, s² says nothing: groups
    then count as if all items of one were equal, n² / Σ size². Where no group has two, it is the exact one of n.

    Reference: Clopper & Pearson 1934; Korn & Graubard 1998; the size of unequal groups by Kish 1965.

    Args:
        wrong: of each item, at least one.
        groups: of each item, such as its patient.
        confidence: of the interval, in (0, 1).
    """
    _, group_of = np.unique(groups, return_inverse=True)
    counts = np.bincount(group_of).astype(np.float64), np.bincount(group_of, wrong)
    [low], [high] = grouped_error_intervals([counts], confidence)
    return float(low), float(high)


def grouped_error_intervals(
    cases: Iterable[tuple[Float64[np.ndarray, "groups"], Float64[np.ndarray, "groups"]]], confidence: float
) -> tuple[Float64[np.ndarray, "cases"], Float64[np.ndarray, "cases"]]:
    """Return both ends of the interval of ``grouped_error_interval`` for each case.

    Args:
        cases: the number of items of each group, 0 for a group without, and the number of errors among them.
        confidence: of the intervals, in (0, 1).
    """
    from scipy.stats import t

    sums = np.array([_sums(sizes, errors) for sizes, errors in cases], np.float64).reshape(-1, 5)
    count, many, errors, squares, deviations = sums.T
    half, rate = (1 + confidence) / 2, errors / count
    with np.errstate(divide="ignore", invalid="ignore"):  # of cases that np.select leaves aside
        variance = many / (many - 1) * deviations
        independent = rate * (1 - rate) * count**2 / variance
        degrees = (t.ppf(half, count - 1) / t.ppf(half, many - 1)) ** 2
        effective = np.select(
            [many == count, (many == 1) | (errors == 0) | (errors == count)],
            [count, count**2 / squares],
            np.minimum(count, independent * degrees),
        )
    return _interval(rate * effective, effective, confidence)


def _sums(sizes: Float64[np.ndarray, "groups"], errors: Float64[np.ndarray, "groups"]) -> tuple[float, ...]:
    """Return items, groups, errors, the sum of squared sizes, and that of errors less those expected, squared."""
    count, wrong = float(sizes.sum()), float(errors.sum())
    deviations = float(((errors - wrong / count * sizes) ** 2).sum())
    return count, float(np.count_nonzero(sizes)), wrong, float((sizes**2).sum()), deviations


def p_values(
    errors: Int64[np.ndarray, "n"], counts: Int64[np.ndarray, "n"], max_error: float
) -> Float64[np.ndarray, "n"]:
    """Return P(Binomial(count, max_error) ≤ errors): small where the error rate is below ``max_error``.

    At most 1 − confidence exactly where the upper bound of Clopper & Pearson 1934 is at most ``max_error``.
    """
    from scipy.stats import binom

    return np.asarray(binom.cdf(errors, counts, max_error), np.float64)


def _interval(
    errors: Float64[np.ndarray, "cases"], counts: Float64[np.ndarray, "cases"], confidence: float
) -> tuple[Float64[np.ndarray, "cases"], Float64[np.ndarray, "cases"]]:
    half = (1 + confidence) / 2
    return 1 - _bounds(counts - errors, counts, half), _bounds(errors, counts, half)


def _bounds(
    errors: Float64[np.ndarray, "cases"], counts: Float64[np.ndarray, "cases"], confidence: float
) -> Float64[np.ndarray, "cases"]:
    from scipy.stats import beta

    is_all = errors >= counts
    return np.where(is_all, 1.0, beta.ppf(confidence, errors + 1, np.where(is_all, 1.0, counts - errors)))
