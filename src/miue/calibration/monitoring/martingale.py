"""Conformal martingales: evidence that bags, one after another, are not like those before them.

Each new value is ranked among the calibration values and all new ones before it. As long as all are exchangeable,
these ranks are independent and uniform, whatever the distribution of the values; a gambler who bets against that
wins nothing on average. Large winnings are therefore evidence of a change, valid after any number of bags.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

EXPONENTS = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
CUTS = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
ODDS = float(np.e)
JUMP = 0.01
"""Share of the winnings that is dealt anew after each bag, so that a change after a long calm is seen soon."""

Bets = Callable[[np.ndarray], np.ndarray]
"""(p-values (n,)) → logarithm of what each bet pays (n, bets), on average 1 or less under uniform p."""


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


def log_martingale(p_values: Float64[np.ndarray, "n"], bets: Bets | None = None) -> Float64[np.ndarray, "n"]:
    """Return the natural logarithm of a gambler's winnings after each p-value, from a stake of 1.

    The stake is dealt to bets, and to one that keeps its money. After each bag a share `JUMP` of the winnings is
    dealt anew. Each bet is 1 on average under uniform p, so that the winnings are a martingale: the chance that
    they ever exceed c is at most 1 / c (Ville 1939).

    Reference: Vovk et al. 2021, "Retrain or not retrain: conformal test martingales for change-point detection".

    Args:
        p_values: in [0, 1].
        bets: logarithms of what each bet pays for a p-value; `power_bets` by default.
    """
    p_values = np.clip(p_values, 1e-12, 1 - 1e-12)
    paid = np.concatenate([(bets or power_bets)(p_values), np.zeros((len(p_values), 1))], axis=1)
    start = np.full(paid.shape[1], -np.log(paid.shape[1]))
    money, winnings = start, np.empty(len(paid))
    for row, bet in enumerate(paid):
        held = money + bet
        winnings[row] = np.logaddexp.reduce(held)
        money = np.logaddexp(np.log1p(-JUMP) + held, np.log(JUMP) + winnings[row] + start)
    return winnings


def power_bets(p_values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n bets"]:
    """Return log ε p^(ε−1), which pays for small p-values, and likewise for large ones (1 − p in place of p)."""
    powers, p_values = EXPONENTS - 1, p_values[:, None]
    bets = (np.log(EXPONENTS) + powers * np.log(p_values), np.log(EXPONENTS) + powers * np.log1p(-p_values))
    return np.concatenate(bets, axis=1)


def step_bets(p_values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n bets"]:
    """Return log q / c of p-values below a cut c, log (1 − q) / (1 − c) above: bets on the share below.

    The odds of q are those of c times or over `ODDS`. Where two classes are separated, the probabilities of one
    are the smallest p-values: of another class mix, more or fewer of them are below its share, and none is smaller
    than before, so that power bets win little.
    """
    below = p_values[:, None] <= CUTS
    bets = []
    for odds in (ODDS, 1 / ODDS):
        q = CUTS * odds / (1 - CUTS + CUTS * odds)
        bets.append(np.where(below, np.log(q / CUTS), np.log((1 - q) / (1 - CUTS))))
    return np.concatenate(bets, axis=1)
