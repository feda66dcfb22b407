"""Conformal martingales: evidence that bags, one after another, are not like those before them.

Each new value is ranked among the calibration values and all new ones before it. As long as all are exchangeable,
these ranks are independent and uniform, whatever the distribution of the values; a gambler who bets against that
wins nothing on average. Large winnings are therefore evidence of a change, valid after any number of bags.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from scipy.special import logsumexp

EXPONENTS = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
JUMP = 0.01
"""Share of the winnings that is dealt anew after each bag, so that a change after a long calm is seen soon."""


def online_p_values(
    calibration: Sequence[float], values: Sequence[float], random: np.random.Generator
) -> Float64[np.ndarray, "n"]:
    """Return the rank of each value from above, among the calibration values and all values up to its own.

    p = (#{larger} + U · #{equal, itself included}) / (number so far), U uniform: small where a value is high.

    Reference: Vovk, Gammerman & Shafer 2005, "Algorithmic learning in a random world", section 7.1.

    Args:
        calibration: values of the calibration bags, in any order.
        values: new values in the order in which they came; infinity is allowed.
        random: draws one number for each value.

    Returns:
        p-values in (0, 1].

    >>> online_p_values([1.0, 2.0, 3.0], [9.0], np.random.default_rng(0)).round(3).tolist()
    [0.091]
    """
    so_far = sorted(calibration)
    p_values = np.empty(len(values))
    for row, (value, draw) in enumerate(zip(values, 1.0 - random.random(len(values)), strict=True)):
        start, end = bisect_left(so_far, value), bisect_right(so_far, value)
        p_values[row] = (len(so_far) - end + draw * (end - start + 1)) / (len(so_far) + 1)
        insort(so_far, value)
    return p_values


def log_martingale(p_values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Return the natural logarithm of a gambler's winnings after each p-value, from a stake of 1.

    The stake is dealt to bets ε p^(ε−1) on small p-values, likewise on large ones (1 − p in place of p), and to
    one that keeps its money. After each bag a share `JUMP` of the winnings is dealt anew. Each bet is 1 on average
    under uniform p, so that the winnings are a martingale: the chance that they ever exceed c is at most 1 / c
    (Ville 1939).

    Reference: Vovk et al. 2021, "Retrain or not retrain: conformal test martingales for change-point detection".

    Args:
        p_values: in [0, 1].
    """
    p_values = np.clip(p_values, 1e-12, 1 - 1e-12)[:, None]
    bets = np.concatenate(
        [
            np.log(EXPONENTS) + (EXPONENTS - 1) * np.log(p_values),
            np.log(EXPONENTS) + (EXPONENTS - 1) * np.log1p(-p_values),
            np.zeros_like(p_values),
        ],
        axis=1,
    )
    start = np.full(bets.shape[1], -np.log(bets.shape[1]))
    money, winnings = start, np.empty(len(bets))
    for row, bet in enumerate(bets):
        held = money + bet
        winnings[row] = logsumexp(held)
        money = np.logaddexp(np.log1p(-JUMP) + held, np.log(JUMP) + winnings[row] + start)
    return winnings
