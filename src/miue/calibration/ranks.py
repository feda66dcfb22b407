"""Which order statistic of n calibration scores bounds the next one, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import ceil, comb, floor, log, log1p

import numpy as np
from jaxtyping import Float64

from miue.common.errors import ConfigError

_DOUBTFUL = 1e-9  # relative difference of chances below which scipy's rounding may decide


def exact(share: float) -> Fraction:
    """Return the decimal that ``share`` is written as: 0.1 is one tenth, so that no rank is off by one."""
    return Fraction(str(share))


def check_share(name: str, share: float) -> None:
    """Raise unless ``share`` lies between 0 and 1, both excluded.

    Raises:
        ConfigError: it does not.
    """
    if not 0 < share < 1:
        raise ConfigError(
            item=name, wanted="a share between 0 and 1", got=str(share), fix="write 0.05 for 5 %, say"
        )


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
