"""Times until an event, some of which are known to be later than the end of observation alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, log10
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.common.errors import DataError
from miue.common.text import plural
from miue.targets.base import MetricName, Probabilities
from miue.targets.figures import Figure, Series, calibration_figure, groups_of
from miue.targets.intervals import IntervalTarget, inner_edges
from miue.targets.kaplan_meier import KaplanMeier, concordance, log_rank
from miue.targets.weighted import Weighted, ratio, weighted_mean

FEWEST_EVENTS = 2
LEAST_P = 0.001  # that is shown
LEVEL = 0.5  # of the median


class Survival(IntervalTarget):
    """A time until an event, predicted as a distribution over intervals of equal shares of the events in training.

    A bag without an event is known to be of its interval or a later one: its likelihood is their probability.

    Reference: Kvamme & Borgan 2021, "Continuous and discrete-time survival prediction with neural networks".
    """

    kind: Literal["survival"] = "survival"
    has_censoring: ClassVar[bool] = True
    class_metrics: ClassVar[tuple[str, ...]] = ()
    own_metrics: ClassVar[Mapping[str, MetricName]] = {
        "nll": MetricName("NLL", "negative log-likelihood of event or censoring, in nats", "lower"),
        "c_index": MetricName(
            "C-index (Harrell)", "share of comparable pairs whose earlier event has the higher risk", "higher", 0.5
        ),
        "c_index_uno": MetricName(
            "C-index (Uno)", "the same, as if no time were censored before its event", "higher", 0.5
        ),
        "integrated_brier": MetricName(
            "Integrated Brier score", "squared error of the predicted survival, mean over the edges", "lower"
        ),
        "calibration_gap": MetricName(
            "Predicted − observed events",
            "mean predicted probability of an event before the middle edge, minus the observed one (Kaplan and "
            "Meier's); closer to 0 is better",
            "",
        ),
    }

    headline: ClassVar[tuple[str, ...]] = ("c_index", "c_index_uno", "integrated_brier")

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

    def strata(
        self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> tuple[Int64[np.ndarray, "n"], tuple[str, ...]]:
        """Return 1 for an event, 0 for the end of observation."""
        return observed.astype(np.int64), ("no event", "an event")

    def columns(
        self, probabilities: Probabilities, concentration: Float64[np.ndarray, "n"] | None
    ) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return the risk, the median time (the last edge where it is later), and S at the last edge.

        The risk is the mean over the edges of the probability of an event before: high where events are early.
        """
        return {
            "risk": self.risk(probabilities),
            "median_time": self.times_at(probabilities, LEVEL),
            "late_survival": probabilities[:, -1],
        }

    def describe(self, columns: Mapping[str, Float64[np.ndarray, "n"]]) -> list[str]:
        """Return the risk and the median time."""
        rows = zip(columns["risk"], columns["median_time"], columns["late_survival"], strict=True)
        return [
            f"risk {risk:.2f}, median {f'after {self.edges[-1]:.4g}' if late > LEVEL else f'{median:.4g}'}"
            for risk, median, late in rows
        ]

    def figures(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> list[Figure]:
        """Return Kaplan and Meier's curves of groups of the risk with their log-rank test, and the calibration."""
        group_of = groups_of(self.risk(probabilities), 3)
        names = {1: ("all",), 2: ("lower risk", "higher risk"), 3: ("low risk", "middle risk", "high risk")}
        ticks, series, rows = _ticks(float(values.max())), [], []
        for group, name in enumerate(names[int(group_of.max()) + 1]):
            of_group = values[group_of == group]
            curve = KaplanMeier(of_group, observed[group_of == group], np.ones((1, len(of_group))))
            times = np.array([0.0, *curve.times, of_group.max()])
            after = np.nextafter(times, np.inf)
            series.append(Series.of(name, times, curve(times)[0], curve.interval(after), "steps"))
            rows.append([name, *(f"{int((of_group >= tick).sum()):,}" for tick in ticks)])
        p = log_rank(values, observed, group_of) if observed.any() else 1.0
        middle = len(self.edges) // 2
        return [
            Figure(
                title="Survival: do groups of predicted risk differ?",
                caption="Labeled bags by their predicted risk, in groups of about the same size. A line is the "
                "share without an event so far (Kaplan–Meier), the band its 95 % interval; below is how many are "
                f"still at risk. Log-rank test that all groups are alike: p {_words_of_p(p)}.",
                x="time",
                y="without an event",
                series=series,
                shares="y",
                ticks=ticks,
                table=[["at risk", *(f"{tick:g}" for tick in ticks)], *rows],
            ),
            calibration_figure(
                probabilities[:, : middle + 1].sum(1),
                values,
                observed,
                self.edges[middle],
                f"the event comes before {self.edges[middle]:.4g}",
            ),
        ]

    def levels(self, probabilities: Probabilities, values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
        """Return the predicted probability of an event by some times, linear in between edges, 1 at the last."""
        ends = np.array([0.0, *self.edges])
        place = np.searchsorted(self.edges, values, side="right")
        inside = np.minimum(place, len(self.edges) - 1)
        rows, below = np.arange(len(values)), np.pad(probabilities.cumsum(1), ((0, 0), (1, 0)))
        share = (values - ends[inside]) / (ends[inside + 1] - ends[inside])
        found = below[rows, inside] + share * probabilities[rows, inside]
        return np.where(place == len(self.edges), 1.0, found)

    def times_at(self, probabilities: Probabilities, level: float) -> Float64[np.ndarray, "n"]:
        """Return the first time by which an event has a probability, the last edge where that is later."""
        return interpolated(probabilities, np.array([0.0, *self.edges]), level)

    def risk(self, probabilities: Probabilities) -> Float64[np.ndarray, "n"]:
        """Return the mean over the edges of the probability of an event before them."""
        return probabilities.cumsum(1)[:, :-1].mean(1)

    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, Weighted]:
        """Return NLL, the concordance of the risk, the Brier score of survival, and its calibration.

        The Brier score is the mean over the edges. Its squares and Uno's pairs are weighted by the inverse
        probability not to be censored, by Kaplan and Meier's estimate on the same bags.

        Reference: Harrell et al. 1982; Uno et al. 2011; Graf et al. 1999.
        """
        risk, edges = self.risk(probabilities), np.array(self.edges)
        survival = 1 - probabilities.cumsum(1)[:, :-1]
        early = observed[:, None] & (values[:, None] < edges)
        of_event, of_later = (early * survival**2).sum(1), (values[:, None] >= edges) * (1 - survival) ** 2

        def uncensored(weights: Float64[np.ndarray, "draws n"]) -> KaplanMeier:
            return KaplanMeier(values, ~observed, weights, others_first=True)

        def brier(weights: Float64[np.ndarray, "draws n"]) -> Float64[np.ndarray, "draws"]:
            share = uncensored(weights)
            squares = (weights / share.positive(values)) @ of_event
            squares += ((weights @ of_later) / share.positive(edges)).sum(1)
            return ratio(squares, weights.sum(1)) / len(edges)

        rows, classes, middle = np.arange(len(values)), self.classes_of(values), len(edges) // 2
        later = probabilities[:, ::-1].cumsum(1)[:, ::-1]
        known = np.where(observed, probabilities[rows, classes], later[rows, classes])
        predicted = weighted_mean(1 - survival[:, middle])

        def gap(weights: Float64[np.ndarray, "draws n"]) -> Float64[np.ndarray, "draws"]:
            free = KaplanMeier(values, observed, weights)(edges[[middle]], before=True)[:, 0]
            return predicted(weights) - (1 - free)

        return {
            "nll": weighted_mean(-np.log(np.where(known > 0, known, np.nan))),
            "c_index": concordance(risk, values, observed),
            "c_index_uno": concordance(risk, values, observed, lambda w: uncensored(w).positive(values) ** -2),
            "integrated_brier": brier,
            "calibration_gap": gap,
        }


def _words_of_p(p: float) -> str:
    return f"< {LEAST_P}" if p < LEAST_P else f"= {p:.3f}"


def _ticks(end: float) -> list[float]:
    """Return round times from 0 on.

    >>> _ticks(37.0)
    [0.0, 10.0, 20.0, 30.0]
    """
    rough = end / 6 if end > 0 else 1.0
    size = 10 ** floor(log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
    return [float(f"{number * step:.6g}") for number in range(int(end / step) + 1)]


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
