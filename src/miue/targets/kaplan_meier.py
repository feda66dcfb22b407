"""The product-limit estimate, and the order of times some of which are lower bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.targets.weighted import Weighted, ratio

PAIRS_AT_ONCE = 2_000_000


class KaplanMeier:
    """Estimate of the probability that an event comes after a time, some times ending without one.

    Reference: Kaplan & Meier 1958, "Nonparametric estimation from incomplete observations".

    Args:
        values: times.
        observed: whether the event was seen, and not the end of observation alone.
        weights: how often each time counts, of each draw.
        others_first: whether of equal times those without an event come first, as events do before censoring.

    Attributes:
        times: of the events, ascending, each once.
        at_risk: how many times of each draw are as late.
        events: how many events of each draw there are then.
    """

    def __init__(
        self,
        values: Float64[np.ndarray, "n"],
        observed: Bool[np.ndarray, "n"],
        weights: Float64[np.ndarray, "draws n"],
        *,
        others_first: bool = False,
    ) -> None:
        self.values, self.weights = values, weights
        self.times = np.unique(values[observed])
        order = np.argsort(values, kind="stable")
        ends = [np.searchsorted(values[order], self.times, side=side) for side in ("left", "right")]

        def before(chosen: Bool[np.ndarray, "n"]) -> list[np.ndarray]:
            counts = np.pad((weights * chosen)[:, order].cumsum(1), ((0, 0), (1, 0)))
            return [counts[:, end] for end in ends]

        earlier, _ = before(np.ones(len(values), bool))
        (seen, seen_then), (left, left_then) = before(observed), before(~observed)
        self.events = seen_then - seen
        self.at_risk = weights.sum(1, keepdims=True) - earlier - (left_then - left if others_first else 0)
        shares = 1 - np.nan_to_num(ratio(self.events, self.at_risk))
        self._share = np.pad(shares.cumprod(1), ((0, 0), (1, 0)), constant_values=1.0)

    def __call__(self, times: Float64[np.ndarray, "m"], *, before: bool = False) -> Float64[np.ndarray, "draws m"]:
        """Return the probability of no event up to some times, or right before them."""
        found: np.ndarray = self._share[:, np.searchsorted(self.times, times, side="left" if before else "right")]
        return found

    def interval(
        self, times: Float64[np.ndarray, "m"], level: float = 0.95
    ) -> tuple[Float64[np.ndarray, "m"], Float64[np.ndarray, "m"]]:
        """Return both ends of the interval of the probability right before some times, of the first draw.

        It is the exact interval of a share of as many bags as give Greenwood's variance: where none had an event,
        of as many as are still at risk, where all had, of as many as right before the last.

        Reference: Dorey & Korn 1987, "Effective sample sizes for confidence intervals for survival probabilities".
        """
        from scipy.stats import beta

        share, at_risk, events = self._share[0], self.at_risk[0], self.events[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            greenwood = np.append(0.0, (events / at_risk / (at_risk - events)).cumsum())
            count = (1 - share) / (share * greenwood)  # NaN where none had an event
        if share[-1] == 0:
            count[-1] = count[-2] if share[-2] < 1 else at_risk[-1]
        place = np.searchsorted(self.times, times, side="left")
        left = (self.values >= times[:, None]) @ self.weights[0]
        share, count = share[place], np.where(share[place] < 1, count[place], left)
        low = beta.ppf((1 - level) / 2, count * share, count * (1 - share) + 1)
        high = beta.ppf((1 + level) / 2, count * share + 1, count * (1 - share))
        return np.where(share > 0, low, 0.0), np.where(count * (1 - share) > 0, high, 1.0)

    def positive(self, times: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "draws m"]:
        """Return the probability right before some times, never 0: the least above it in its place."""
        found = self(times, before=True)
        least = np.where(self._share > 0, self._share, 1).min(1, keepdims=True)
        return np.where(found > 0, found, least)


def log_rank(
    values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], group_of: Int64[np.ndarray, "n"]
) -> float:
    """Return the p-value of the log-rank test that all groups have events at the same rates.

    Reference: Mantel 1966; for several groups Peto & Peto 1972.

    Args:
        values: times.
        observed: false where a time is a lower bound.
        group_of: number of each bag's group, from 0.
    """
    from scipy.stats import chi2

    members = np.eye(int(group_of.max()) + 1)[group_of].T
    times = np.unique(values[observed])
    at_risk = members @ (values[:, None] >= times)
    events = members @ ((values[:, None] == times) & observed[:, None])
    total, happened = at_risk.sum(0), events.sum(0)
    shares = at_risk / total
    spread = happened * np.nan_to_num(ratio(total - happened, total - 1))
    covariance = np.diag((spread * shares).sum(1)) - (spread * shares) @ shares.T
    excess = (events - happened * shares).sum(1)
    statistic = float(excess @ np.linalg.pinv(covariance) @ excess)
    return float(chi2.sf(statistic, len(members) - 1))


def concordance(
    risk: Float64[np.ndarray, "n"],
    values: Float64[np.ndarray, "n"],
    observed: Bool[np.ndarray, "n"],
    factors: Callable[[Float64[np.ndarray, "draws n"]], Float64[np.ndarray, "draws n"]] | None = None,
) -> Weighted:
    """Return the share of pairs whose earlier event has the higher risk; equal risks count one half.

    A pair is an event and a bag that was observed for longer, or until the same time without an event.

    Args:
        risk: higher where an event is expected earlier.
        values: times.
        observed: false where a time is a lower bound.
        factors: what a pair counts by its earlier bag, as a function of how often each counts; None for 1.

    >>> of = concordance(np.array([3.0, 2, 1]), np.array([1.0, 2, 3]), np.array([True, False, True]))
    >>> of(np.ones((1, 3))).tolist()
    [1.0]
    """
    parts = np.array_split(np.flatnonzero(observed), 1 + observed.sum() * len(values) // PAIRS_AT_ONCE)

    def share(weights: Float64[np.ndarray, "draws n"]) -> Float64[np.ndarray, "draws"]:
        right, total = np.zeros((2, len(weights)))
        earlier = weights if factors is None else weights * factors(weights)
        for rows in parts:
            time, score = values[rows, None], risk[rows, None]
            later = (values > time) | ((values == time) & ~observed)
            higher = (score > risk) + (score == risk) / 2
            total += (earlier[:, rows] * (weights @ later.T)).sum(1)
            right += (earlier[:, rows] * (weights @ (later * higher).T)).sum(1)
        return ratio(right, total)

    return share
