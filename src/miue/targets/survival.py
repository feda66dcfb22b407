"""Times until an event, some of which are known to be later than the end of observation alone."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.common.errors import DataError
from miue.common.text import plural
from miue.targets.base import Probabilities, Target, inner_edges, interval_names

FEWEST_EVENTS = 2


class Survival(Target):
    """A time until an event, predicted as a distribution over intervals of equal shares of the events in training.

    A bag without an event is known to be of its interval or a later one: its likelihood is their probability.

    Reference: Kvamme & Borgan 2021, "Continuous and discrete-time survival prediction with neural networks".

    Attributes:
        edges: between the intervals; the last interval has no end.
    """

    kind: Literal["survival"] = "survival"
    edges: tuple[float, ...]
    has_censoring: ClassVar[bool] = True
    class_metrics: ClassVar[tuple[str, ...]] = ()
    titles: ClassVar[dict[str, str]] = {
        "c_index": "C-index (Harrell)",
        "c_index_uno": "C-index (Uno)",
        "integrated_brier": "Integrated Brier score",
    }

    @classmethod
    def fit(cls, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], classes: int) -> Survival:
        """Return the intervals of the times of some events."""
        if (values < 0).any():
            got = f"{values.min():g}, and {plural(int((values < 0).sum()), 'negative time')} in all"
            raise DataError(item="the times", wanted="numbers from 0 on", got=got, fix="correct the time column")
        events = values[observed]
        edges = inner_edges(events, classes) if len(events) >= FEWEST_EVENTS else ()
        if not edges:
            got = f"{plural(len(events), 'event')} at {plural(len(np.unique(events)), 'time')}"
            wanted = "events at two times or more to learn from"
            raise DataError(item="the events", wanted=wanted, got=got, fix="check the event column: 1 is an event")
        return cls(edges=edges)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The intervals of time."""
        return interval_names(self.edges)

    def classes_of(self, values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return the interval of each time."""
        return np.searchsorted(self.edges, values, side="right").astype(np.int64)

    def strata(self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return 1 for an event, 0 for the end of observation."""
        return observed.astype(np.int64)

    @property
    def stratum_names(self) -> tuple[str, ...]:
        """Whether there was an event."""
        return ("no event", "an event")

    def columns(
        self, probabilities: Probabilities, concentration: Float64[np.ndarray, "n"] | None
    ) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return the risk, the median time (the last edge where it is later), and S at the last edge.

        The risk is the mean over the edges of the probability of an event before: high where events are early.
        """
        ends = np.array([0.0, *self.edges])
        return {
            "risk": self.risk(probabilities),
            "median_time": interpolated(probabilities, ends, 0.5),
            "late_survival": probabilities[:, -1],
        }

    def risk(self, probabilities: Probabilities) -> Float64[np.ndarray, "n"]:
        """Return the mean over the edges of the probability of an event before them."""
        return probabilities.cumsum(1)[:, :-1].mean(1)

    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, float | None]:
        """Return NLL, the concordance of the risk, and the Brier score of survival, averaged over the edges.

        Pairs and squares are weighted by the inverse probability not to be censored, by Kaplan and Meier's
        estimate on the same bags.

        Reference: Harrell et al. 1982; Uno et al. 2011; Graf et al. 1999.
        """
        risk, seen = self.risk(probabilities), UncensoredShare(values, observed)
        weights = 1 / seen(values, before=True) ** 2
        survival = 1 - probabilities.cumsum(1)[:, :-1]
        scores = []
        for edge, p in zip(self.edges, survival.T, strict=True):
            event, later = observed & (values < edge), values >= edge
            of_event = np.where(event, 1 / seen(values, before=True), 0.0)
            of_later = later / seen(np.array([edge]), before=True)
            scores.append(float((of_event * p**2 + of_later * (1 - p) ** 2).mean()))
        rows, classes = np.arange(len(values)), self.classes_of(values)
        later = probabilities[:, ::-1].cumsum(1)[:, ::-1]
        known = np.where(observed, probabilities[rows, classes], later[rows, classes])
        return {
            "nll": float(-np.log(known).mean()) if (known > 0).all() else None,
            "c_index": concordance(risk, values, observed, np.ones(len(values))),
            "c_index_uno": concordance(risk, values, observed, weights),
            "integrated_brier": float(np.mean(scores)),
        }


class UncensoredShare:
    """Kaplan and Meier's estimate of the probability not to be censored until a time.

    Args:
        values: times.
        observed: whether the event was seen, and not the end of observation.
    """

    def __init__(self, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]) -> None:
        self.times = np.unique(values[~observed])
        at_risk = np.array([(values >= time).sum() - (observed & (values == time)).sum() for time in self.times])
        ends = np.array([(~observed & (values == time)).sum() for time in self.times])
        self.share = np.concatenate([[1.0], np.cumprod(1 - ends / np.maximum(at_risk, 1))])

    def __call__(self, times: Float64[np.ndarray, "m"], *, before: bool) -> Float64[np.ndarray, "m"]:
        """Return the probability up to some times, or right before them; never 0, where nothing is known."""
        found = self.share[np.searchsorted(self.times, times, side="left" if before else "right")]
        positive = self.share[self.share > 0].min()
        return np.where(found > 0, found, positive)


def concordance(
    risk: Float64[np.ndarray, "n"],
    values: Float64[np.ndarray, "n"],
    observed: Bool[np.ndarray, "n"],
    weights: Float64[np.ndarray, "n"],
) -> float | None:
    """Return the share of pairs whose earlier event has the higher risk; equal risks count one half.

    A pair is an event and a bag that was observed for longer, or until the same time without an event.

    Args:
        risk: higher where an event is expected earlier.
        values: times.
        observed: false where a time is a lower bound.
        weights: of the earlier bag of each pair.

    >>> concordance(np.array([3.0, 2, 1]), np.array([1.0, 2, 3]), np.array([True, False, True]), np.ones(3))
    1.0
    """
    right = total = 0.0
    for number in np.flatnonzero(observed):
        later = (values > values[number]) | ((values == values[number]) & ~observed)
        total += weights[number] * later.sum()
        higher = risk[number] > risk[later]
        right += weights[number] * (higher.sum() + (risk[number] == risk[later]).sum() / 2)
    return float(right / total) if total else None


def interpolated(
    probabilities: Probabilities, ends: Float64[np.ndarray, "ends"], level: float
) -> Float64[np.ndarray, "n"]:
    """Return where a distribution function that is linear between ``ends`` reaches ``level``; the last end else.

    Args:
        probabilities: of the intervals between the ends, and perhaps one more beyond the last.
        ends: of the intervals, ascending.
        level: from 0 to 1.

    >>> interpolated(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0.0, 1.0, 3.0]), 0.5).round(3).tolist()
    [1.0, 1.667]
    """
    cumulated = np.concatenate([np.zeros((len(probabilities), 1)), probabilities.cumsum(1)], 1)[:, : len(ends)]
    number = np.minimum((cumulated[:, 1:] < level - 1e-12).sum(1), len(ends) - 2)
    rows = np.arange(len(probabilities))
    before, inside = cumulated[rows, number], probabilities[rows, number]
    share = np.where(inside > 0, (level - before) / np.where(inside > 0, inside, 1), 1.0).clip(0, 1)
    return ends[number] + share * (ends[number + 1] - ends[number])
