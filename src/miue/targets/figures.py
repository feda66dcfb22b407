"""Figures of a target's own, as data that a report draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.targets.kaplan_meier import KaplanMeier

BAGS_OF_A_GROUP = 20  # as far as that gives 2 to 5 groups


@dataclass(frozen=True)
class Series:
    """What is drawn in one color.

    Attributes:
        name: in the legend.
        x, y: numbers of the same length.
        low, high: ends of the interval of each y; empty without intervals.
        shape: points with intervals as bars, or steps with intervals as a band.
    """

    name: str
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    shape: Literal["points", "steps"]

    @classmethod
    def of(
        cls, name: str, x: Any, y: Any, ends: Any = ((), ()), shape: Literal["points", "steps"] = "points"
    ) -> Series:
        """Return it with as many digits as a screen can show."""
        x, y, low, high = ([float(f"{value:.6g}") for value in np.asarray(one).tolist()] for one in (x, y, *ends))
        return cls(name, x, y, low, high, shape)


@dataclass(frozen=True)
class Figure:
    """A figure with its words.

    Attributes:
        title: what it answers.
        caption: how it is read.
        x, y: titles of the axes.
        series: what is drawn.
        shares: axes that are in percent, "x", "y" or "xy".
        diagonal: whether a dotted line shows where both axes are equal.
        ticks: of the x axis; empty for any.
        table: rows of texts below it, the first of which are headings; empty for none.
    """

    title: str
    caption: str
    x: str
    y: str
    series: list[Series]
    shares: str = ""
    diagonal: bool = False
    ticks: list[float] | None = None
    table: list[list[str]] | None = None


def groups_of(values: Float64[np.ndarray, "n"], most: int = 5) -> Int64[np.ndarray, "n"]:
    """Return the group of each value among 2 to ``most`` of about the same size, of neighboring values.

    >>> groups_of(np.arange(40.0)).tolist() == [0] * 20 + [1] * 20
    True
    """
    count = int(np.clip(len(values) // BAGS_OF_A_GROUP, 2, most))
    ends = np.unique(np.quantile(values, np.arange(1, count) / count, method="lower"))
    found = np.searchsorted(ends, values, side="left")
    return np.unique(found, return_inverse=True)[1].reshape(-1).astype(np.int64)


def calibration_figure(
    predicted: Float64[np.ndarray, "n"],
    values: Float64[np.ndarray, "n"],
    observed: Bool[np.ndarray, "n"],
    edge: float,
    event: str,
) -> Figure:
    """Return the predicted probability that a label is below an edge, against the share of labels that are.

    Args:
        predicted: the probability of each bag.
        values: labels.
        observed: false where a label is a lower bound.
        edge: where it begins not to be.
        event: what is predicted, in words.
    """
    group_of = groups_of(predicted)
    x, y, ends = [], [], []
    for group in range(int(group_of.max()) + 1):
        rows = group_of == group
        curve = KaplanMeier(values[rows], observed[rows], np.ones((1, int(rows.sum()))))
        x.append(predicted[rows].mean())
        y.append(1 - curve(np.array([edge]), before=True)[0, 0])
        low, high = curve.interval(np.array([edge]))
        ends.append((1 - high[0], 1 - low[0]))
    sizes = np.bincount(group_of)
    each = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
    censored = "" if observed.all() else ", estimated by Kaplan and Meier, as some times are lower bounds"
    return Figure(
        title=f"Calibration: the probability that {event}",
        caption=f"Labeled bags are grouped by the predicted probability that {event} (horizontal axis), {each} in "
        f"a group. A point shows the share of these{censored} (vertical axis) with its 95 % interval. On the "
        "dotted line, probabilities are right on average.",
        x="predicted probability",
        y="share",
        series=[Series.of("groups of bags", x, y, np.transpose(ends))],
        shares="xy",
        diagonal=True,
    )
