"""From which uncertainty on a bag is deferred to a person, so that the error among the accepted is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from pydantic import BaseModel, ConfigDict

from miue.calibration.ranks import Share, exact, needed_for_tolerance, p_values
from miue.common.text import plural
from miue.common.values import check_fields
from miue.predictions import ERROR_PROBABILITY

ORDERING_PART = 10  # one bag in this many says which thresholds are tested; the others test them
_MARGIN = 1.5  # standard deviations by which the first threshold should accept more bags than a test needs
_SHARES = np.linspace(0.025, 1, 40)
_STARTS = 4  # at most; so that errors among the most certain bags do not end the search
_FOR_ALL = 0.1  # part of the chance that begins where all bags are accepted, if that can pass with so little
PREFERRED_MEASURES = (ERROR_PROBABILITY, "least_confidence")
"""By which bags are deferred unless another is chosen; see results/README.md, "Which measure detects errors"."""

BELOW_THRESHOLD = "below the out-of-distribution threshold"
"""Where the bags are that test a deferral; in the reason why too few of them are left, as where many tie."""

_ROUNDING = 1 + 1e-12  # a p-value that equals its level passes, whatever the last digits of the two


@dataclass(frozen=True)
class DeferralGoal:
    """What is asked: an error among the accepted of at most ``max_error``, at ``confidence``.

    Attributes:
        max_error: P(wrong | accepted) that may not be exceeded.
        confidence: chance over calibration sets that it is not exceeded.
        measure: the uncertainty that orders the bags; None for the first of ``PREFERRED_MEASURES`` that they have.
    """

    max_error: Share = 0.05
    confidence: Share = 0.9
    measure: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)


class Deferral(BaseModel):
    """Accept a bag whose ``measure`` is at most ``threshold``, or any bag where that is None; otherwise, defer it.

    Where the calibration ``refused``, no bag may be accepted with this promise, so that every bag is deferred.

    Attributes:
        measure: the uncertainty that is compared.
        threshold: None to accept all bags.
        max_error: P(wrong | accepted) that may not be exceeded.
        confidence: chance over calibration sets that it is not exceeded.
        bags: that tested the thresholds.
        accepted: of these, up to the threshold.
        errors: among the accepted. The threshold was chosen by them, so that no bound for their rate follows from
            the two counts alone.
        refused: why no threshold passed; empty where one did.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    measure: str
    threshold: float | None
    max_error: float
    confidence: float
    bags: int
    accepted: int
    errors: int
    refused: str = ""

    @property
    def fitted(self) -> str:
        """Which bags are accepted, in words."""
        if self.refused:
            return "defer all"
        return "accept all" if self.threshold is None else f"accept where {self.measure} ≤ {self.threshold:.4g}"

    @property
    def promise(self) -> str:
        """What is promised, in words, and how the test bags came out."""
        accepted = f"{self.accepted:,} accepted of {plural(self.bags, 'test bag')}"
        tested = "no threshold passed" if self.refused else f"{plural(self.errors, 'error')} among {accepted}"
        return f"error among the accepted ≤ {self.max_error:g} at confidence {self.confidence:g}; {tested}"


def needed_for_deferral(goal: DeferralGoal) -> int:
    """Return how many bags a deferral needs: to test without one error, and one in ten to choose what to test."""
    needed = needed_for_tolerance(goal.max_error, goal.confidence)
    return max(ORDERING_PART, needed + (needed - 1) // (ORDERING_PART - 1))


def refuse_all(measure: str, goal: DeferralGoal, bags: int, why: str) -> Deferral:
    """Return the deferral of every bag, where nothing can be accepted with what the goal promises."""
    return Deferral(
        measure=measure,
        threshold=None,
        max_error=goal.max_error,
        confidence=goal.confidence,
        bags=bags,
        accepted=0,
        errors=0,
        refused=why,
    )


def fit_deferral(
    uncertainty: Float64[np.ndarray, "n"],
    correct: Bool[np.ndarray, "n"],
    measure: str,
    goal: DeferralGoal,
    seed: int = 0,
) -> Deferral:
    """Return the highest tested threshold for which the error among the accepted is bounded.

    One bag in ten, drawn by ``seed``, says which thresholds are tried; the others test them in ascending
    order with exact binomial tests. The chance 1 − confidence is shared among up to four starts along the
    sequence, and its end: a test that passes hands its share on, one that fails loses it. The chance that any
    threshold passes wrongly is at most 1 − confidence, whatever the model and the measure; the highest is
    taken. Where none passes, the deferral of every bag is returned and says why.

    Reference: Angelopoulos et al. 2021 (Learn then Test, split fixed-sequence testing with several
    starts); Wiens 2003 (fallback procedure); the selective error of Geifman & El-Yaniv 2017.

    Args:
        uncertainty: of labeled in-distribution bags, at least ``needed_for_deferral``; higher where less certain.
        correct: whether each is predicted right.
        measure: name of the uncertainty.
        goal: what is asked.
        seed: of the draw.
    """
    count, needed = len(correct), needed_for_tolerance(goal.max_error, goal.confidence)
    order = np.random.default_rng(seed).permutation(count)
    ordering, testing = order[: count // ORDERING_PART], order[count // ORDERING_PART :]
    level = float(1 - exact(goal.confidence))
    starts = max(1, min(_STARTS, len(testing) // (2 * needed)))
    all_may_pass = needed_for_tolerance(goal.max_error, 1 - _FOR_ALL * level) <= len(testing)
    for_all = _FOR_ALL * level if all_may_pass else 0.0
    share = (level - for_all) / starts
    first = needed if share == level else needed_for_tolerance(goal.max_error, 1 - share)
    tried = _thresholds(uncertainty[ordering], len(testing), first)
    accepted = uncertainty[testing][None, :] <= tried[:, None]
    counts, errors = accepted.sum(1), (accepted & ~correct[testing]).sum(1)
    p = p_values(errors, counts, goal.max_error)
    shares = starting_shares(len(p), starts, share, for_all)
    passed = fallback_tests(p, shares)
    if not passed.any():
        best = min(np.flatnonzero(shares), key=lambda start: p[start])
        need = _describe_need(int(errors[best]), int(counts[best]), count, goal.max_error, float(shares[best]))
        return refuse_all(
            measure,
            goal,
            len(testing),
            f"no threshold on {measure} passed the tests by {plural(len(testing), 'bag')}: at best "
            f"{plural(int(errors[best]), 'error')} among the {counts[best]:,} most certain ones, where they begin "
            f"(without an error, {first} pass); {need}",
        )
    last = int(np.flatnonzero(passed)[-1])
    return Deferral(
        measure=measure,
        threshold=float(tried[last]) if np.isfinite(tried[last]) else None,
        max_error=goal.max_error,
        confidence=goal.confidence,
        bags=len(testing),
        accepted=int(counts[last]),
        errors=int(errors[last]),
    )


def fallback_tests(p: Float64[np.ndarray, "t"], shares: Float64[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    """Return which of a sequence of hypotheses are rejected; a true one is with chance at most the sum of shares.

    A hypothesis is tested at its own share and what the one before it hands on, which is all it was tested at if
    it was rejected, else nothing. With a share of the first alone this is fixed-sequence testing.

    Reference: Wiens 2003; Wiens & Dmitrienko 2005.

    >>> fallback_tests(np.array([0.2, 0.01, 0.04, 0.03]), np.array([0.05, 0, 0.05, 0]))
    array([False, False,  True,  True])
    """
    passed, share = np.zeros(len(p), bool), 0.0
    for index, value in enumerate(p):
        share += shares[index]
        passed[index] = share > 0 and value <= share * _ROUNDING
        share = share if passed[index] else 0.0
    return passed


def starting_shares(count: int, starts: int, share: float, at_the_end: float = 0.0) -> Float64[np.ndarray, "t"]:
    """Return the share of each of ``count`` hypotheses: equal ones at some, evenly along them, and of the last.

    >>> starting_shares(6, 3, 0.5, 0.25).tolist()
    [0.5, 0.0, 0.5, 0.0, 0.5, 0.25]
    """
    shares = np.zeros(count)
    np.add.at(shares, np.arange(starts) * count // starts, share)
    shares[-1] += at_the_end
    return shares


def _describe_need(errors: int, accepted: int, bags: int, max_error: float, level: float) -> str:
    """Return how many more bags would pass a test at ``level`` if as large a share of the accepted were wrong."""
    from scipy.special import betaincc

    times = np.geomspace(1, 1000, 700)
    p = betaincc(times * errors + 1, times * (max(accepted, 1) - errors), max_error)
    if not (passed := p <= level).any():
        wrong = f"{errors:,} of {accepted:,} are wrong"
        return f"more bags alone will hardly help, as {wrong} and at most {100 * max_error:g} % may be"
    more = np.ceil((times[passed.argmax()] - 1) * bags)
    return f"about {float(f'{more:.2g}'):,.0f} more labeled bags may pass, if as few of them are wrong"


def _thresholds(uncertainty: Float64[np.ndarray, "m"], testing: int, needed: int) -> Float64[np.ndarray, "t"]:
    """Return the thresholds to be tested, ascending: quantiles of bags that are not in the test, and infinity.

    The first is the lowest that can be expected to accept enough bags for a test.
    """
    count = len(uncertainty)
    accepted = (1 + _SHARES * (count - 1)) / (count + 1)  # expected share of new bags below such a quantile
    spread = np.sqrt(accepted * (1 - accepted) * (1 / (count + 2) + 1 / testing))
    enough = (accepted - _MARGIN * spread) * testing >= needed
    with np.errstate(invalid="ignore"):  # between two infinite values there is no quantile
        tried = np.quantile(uncertainty, _SHARES[enough])
    return np.unique([*tried[~np.isnan(tried)], np.inf])
