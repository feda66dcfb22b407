"""Numbers: a distribution over intervals of equal shares of the training labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64

from miue.common.errors import DataError
from miue.common.text import plural
from miue.targets.base import MetricName, Probabilities
from miue.targets.figures import Figure, Series, calibration_figure, groups_of
from miue.targets.intervals import IntervalTarget, inner_edges
from miue.targets.weighted import Weighted, ratio, weighted_mean

INTERVAL = 0.9
"""Probability of the interval that is written and evaluated."""
ROUNDING = 1e-12  # of a variance, as a part of the largest square


class Regression(IntervalTarget):
    """A number, predicted as a distribution over intervals: every method, network and measure of classes serves.

    The mean over an interval's training labels stands for it. Of a Dirichlet, the variance of the mean is
    Var(c) / (Σ alpha + 1), c being these means: the epistemic part of the variance.

    Reference: Imani & White 2018, "Improving Regression Performance with Distributional Losses".

    Attributes:
        means: of the training labels in each interval.
        variances: of the training labels in each interval.
        low, high: least and highest training label.
    """

    kind: Literal["regression"] = "regression"
    means: tuple[float, ...]
    variances: tuple[float, ...]
    low: float
    high: float
    class_metrics: ClassVar[tuple[str, ...]] = ("nll",)
    own_metrics: ClassVar[Mapping[str, MetricName]] = {
        "mae": MetricName("Mean absolute error", "mean distance of the prediction from the label", "lower"),
        "rmse": MetricName("Root mean squared error", "root of the mean squared distance from the label", "lower"),
        "r2": MetricName("R²", "share of the labels' variance that predictions explain", "higher", chance=0.0),
        "coverage": MetricName(
            "Coverage of the 90 % interval", "share of labels in the interval that the model states", ""
        ),
        "width": MetricName(
            "Width of the 90 % interval",
            "mean width; of two intervals that cover as much, the narrower is better",
            "",
        ),
    }

    headline: ClassVar[tuple[str, ...]] = ("mae", "r2", "coverage", "width")

    @classmethod
    def fit(cls, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], classes: int) -> Regression:
        """Return the intervals of some labels."""
        edges = inner_edges(values, classes)
        if not edges:
            wanted, fix = "numbers of at least two values", "give labels that differ, or choose another column"
            raise DataError(
                item="the labels", wanted=wanted, got=f"{plural(len(values), 'label')} of one value", fix=fix
            )
        of = np.searchsorted(edges, values, side="right")
        parts = [values[of == number] for number in range(len(edges) + 1)]
        return cls(
            edges=edges,
            means=tuple(float(part.mean()) for part in parts),
            variances=tuple(float(part.var()) for part in parts),
            low=float(values.min()),
            high=float(values.max()),
        )

    def columns(
        self, probabilities: Probabilities, concentration: Float64[np.ndarray, "n"] | None
    ) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return mean, standard deviation, of a Dirichlet its epistemic part, and an interval of at least 90 %.

        It begins and ends where intervals do, so that it does not depend on how labels lie within one.
        """
        means = np.array(self.means)
        value = probabilities @ means
        between = (probabilities @ means**2 - value**2).clip(0)
        found = {"value": value, "std": np.sqrt(between + probabilities @ np.array(self.variances))}
        if concentration is not None:
            found["epistemic_std"] = np.sqrt(between / (concentration + 1))
        ends, below = np.array([self.low, *self.edges, self.high]), probabilities.cumsum(1)
        first, last = ((below < level - 1e-12).sum(1) for level in ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2))
        return found | {"low": ends[first], "high": ends[np.minimum(last, len(self.edges)) + 1]}

    def describe(self, columns: Mapping[str, Float64[np.ndarray, "n"]]) -> list[str]:
        """Return the mean, and in brackets its interval."""
        numbers = zip(columns["value"], columns["low"], columns["high"], strict=True)
        return [f"{value:.4g} ({low:.4g} to {high:.4g})" for value, low, high in numbers]

    def figures(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> list[Figure]:
        """Return predicted against true numbers, errors by predicted standard deviation, and the calibration."""
        from scipy.stats import chi2

        found, middle = self.columns(probabilities, None), len(self.edges) // 2
        squares, group_of = (values - found["value"]) ** 2, groups_of(found["std"])
        sizes = np.bincount(group_of)
        spread = np.sqrt(np.bincount(group_of, found["std"] ** 2) / sizes)
        error = np.sqrt(np.bincount(group_of, squares) / sizes)
        ends = error * np.sqrt(sizes / chi2.ppf([[0.975], [0.025]], sizes))
        return [
            Figure(
                title="Predicted against true: how close are the predictions?",
                caption="A point is a labeled bag: its label (horizontal axis), and the predicted mean (vertical "
                f"axis) with the model's {INTERVAL:.0%} interval. On the dotted line both agree. No prediction "
                "leaves the range of the training labels.",
                x="label",
                y="predicted",
                series=[Series.of("bags", values, found["value"], (found["low"], found["high"]))],
                diagonal=True,
            ),
            Figure(
                title="Uncertainty: is the error larger where the model says so?",
                caption="Labeled bags are grouped by the predicted standard deviation (horizontal axis). A point "
                "shows the root mean squared error of a group (vertical axis) with its 95 % interval, which takes "
                "errors as normal. On the dotted line the model states its error rightly; above, it is too sure.",
                x="predicted standard deviation",
                y="root mean squared error",
                series=[Series.of("groups of bags", spread, error, ends)],
                diagonal=True,
            ),
            calibration_figure(
                probabilities[:, : middle + 1].sum(1),
                values,
                observed,
                self.edges[middle],
                f"the label is below {self.edges[middle]:.4g}",
            ),
        ]

    def bounds(self, sets: Bool[np.ndarray, "n C"]) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return where the first interval of each set begins and the last ends; both NaN of an empty set.

        The first interval of all has no beginning, the last no end: labels beyond those of training are there.
        """
        ends, some = np.array([-np.inf, *self.edges, np.inf]), sets.any(1)
        first, last = sets.argmax(1), sets.shape[1] - sets[:, ::-1].argmax(1)
        return {"set_low": np.where(some, ends[first], np.nan), "set_high": np.where(some, ends[last], np.nan)}

    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, Weighted]:
        """Return MAE and RMSE of the mean, R², and share of labels in the 90 % interval with its mean width."""
        found = self.columns(probabilities, None)
        errors, away = values - found["value"], values - values.mean()
        squares, mean, mean_square = map(weighted_mean, (errors**2, away, away**2))

        def explained(weights: Float64[np.ndarray, "draws n"]) -> Float64[np.ndarray, "draws"]:
            spread = mean_square(weights) - mean(weights) ** 2
            return 1 - ratio(squares(weights), np.where(spread > ROUNDING * (away**2).max(), spread, 0.0))

        inside = (found["low"] <= values) & (values <= found["high"])
        return {
            "mae": weighted_mean(np.abs(errors)),
            "rmse": lambda weights: np.sqrt(squares(weights)),
            "r2": explained,
            "coverage": weighted_mean(inside.astype(np.float64)),
            "width": weighted_mean(found["high"] - found["low"]),
        }
