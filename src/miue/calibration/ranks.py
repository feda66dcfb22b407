"""Exact ranks of calibration scores that bound the next one, and exact bounds of an error rate from counts."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate
from math import ceil, comb, floor, log, log1p
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped
from pydantic import Field

Share = Annotated[float, Field(gt=0, lt=1)]
"""A share, such as 0.05 for 5 %; none and all are no promise."""

_DOUBTFUL = 1e-9  # relative difference of chances below which scipy's rounding may decide


def exact(share: float) -> Fraction:
    """Return the decimal that ``share`` is written as: 0.1 is one tenth, so that no rank is off by one."""
    return Fraction(str(share))


def conformal_rank(count: int, error: float) -> int:
    """Return k = ⌈(n + 1)(1 − error)⌉: the next score exceeds the k-th smallest of n with chance ≤ error.

    Reference: Vovk et al. 2005; Papadopoulos et al. 2002. k is n + 1 where n is too small.

    >>> conformal_rank(99, 0.1), conformal_rank(8, 0.1)
    (90, 9)
    """
    return count + 1 - floor((count + 1) * exact(error))


def weighted_rank(weights: Float64[np.ndarray, "n"], own: float, error: float) -> int:
    """Return the least k whose scores up to the k-th smallest have a share of at least 1 − error of all weights.

    The new bag has the weight ``own`` and an infinite score; the larger, the higher the rank. With equal weights k
    is the conformal rank. Sums are exact.

    Reference: Tibshirani et al. 2019, Lemma 3; k is n + 1 where the weights are too small beside ``own``.

    Args:
        weights: of the scores in ascending order, at least 0.
        own: of the new bag, above 0.
        error: chance that the new score may exceed the k-th smallest.

    >>> weighted_rank(np.full(99, 0.3), 0.3, 0.1), weighted_rank(np.array([1.0, 3.0, 1.0]), 1.0, 0.5)
    (90, 2)
    """
    exact_weights = list(map(Fraction, weights.tolist()))
    least = (sum(exact_weights, Fraction(own))) * (1 - exact(error))
    return 1 + sum(below < least for below in accumulate(exact_weights))


def needed_for_rank(error: float) -> int:
    """Return the least n for which the conformal rank exists, ⌈1 / error⌉ − 1.

    >>> needed_for_rank(0.1), needed_for_rank(0.05)
    (9, 19)
    """
    return ceil(1 / exact(error)) - 1


def tolerance_rank(count: int, error: float, confidence: float) -> int:
    """Return the least k such that, with the given confidence, a share ≤ error lies above the k-th smallest of n.

    The share below the k-th smallest is Beta(k, n + 1 − k), so that k is the least with
    P(Binomial(n, 1 − error) ≤ k − 1) ≥ confidence. k is n + 1 where n is too small.

    Reference: Wilks 1941; Vovk 2012 (training-conditional validity).

    >>> tolerance_rank(45, 0.05, 0.9), tolerance_rank(44, 0.05, 0.9)
    (45, 45)
    >>> tolerance_rank(2, 0.2, 0.36)
    2
    """
    from scipy.stats import binom

    rank = int(binom.ppf(confidence, count, 1 - error)) + 1
    if _exceeds_at_most(count, rank - 1, error, confidence):  # rounding lost an equality
        return rank - 1
    return rank if rank > count or _exceeds_at_most(count, rank, error, confidence) else rank + 1


def _exceeds_at_most(count: int, rank: int, error: float, confidence: float) -> bool:
    """Return whether P(Binomial(count, 1 − error) ≥ rank) ≤ 1 − confidence: exactly where floats are too close."""
    from scipy.stats import binom

    chance, allowed = float(binom.sf(rank - 1, count, 1 - error)), 1 - exact(confidence)
    if abs(chance - allowed) > _DOUBTFUL * allowed:
        return chance < allowed
    lost, kept = exact(error), 1 - exact(error)
    terms = (comb(count, above) * lost**above * kept ** (count - above) for above in range(count - rank + 1))
    return sum(terms, Fraction(0)) <= allowed


def needed_for_tolerance(error: float, confidence: float) -> int:
    """Return the least n with (1 − error)^n ≤ 1 − confidence, ⌈log(1 − confidence) / log(1 − error)⌉.

    The least n for which ``tolerance_rank`` exists, and for which n bags without an error show an error
    rate of at most ``error``.

    >>> needed_for_tolerance(0.05, 0.9), needed_for_tolerance(0.5, 0.75)
    (45, 2)
    """
    kept, allowed = 1 - exact(error), 1 - exact(confidence)
    count = max(1, round(log(allowed) / log1p(-error)))  # at most one too low
    while kept**count > allowed:
        count += 1
    return count


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
