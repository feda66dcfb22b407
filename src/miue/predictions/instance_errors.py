"""How probable it is that an instance is misclassified, from bag labels alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float64, Int64
from pydantic import BaseModel, ConfigDict, Field

from miue.predictions.table import PredictionTable

ERROR_PROBABILITY = "error_probability"
"""The score that error models add to bags and instances."""

SMALLEST = 1e-9  # probability that log-odds are computed of
MOST_OF_A_BAG = 2000  # quantiles that stand for the instances of a larger bag
NEGATIVES_BELOW = 0.8  # share of negative instances up to whose log-odds few others are expected
LEAST_SHARE = 0.02
RIDGE = 1e-4


class PositiveCurve(BaseModel):
    """How probable it is that an instance of a bag of class c is of class c: sigmoid(slope · t + offset).

    t is the log-odds log q_c / q_0 of the instance against the negative class. In bags of class c its density is a
    mixture f_c = (1 − π) f_0 + π f_+ of negative instances, as they are in negative bags, and of instances of
    class c, so that f_c / f_0 = (1 − π) (1 + exp(slope · t + offset)). Where t is low, hardly any instance is of
    class c, and the ratio of the shares of both kinds of bags is 1 − π; slope and offset have maximum likelihood.

    Reference: Lancaster & Imbens 1996 (mixtures of cases and controls); Blanchard et al. 2010 (the share).

    Attributes:
        share: π, of instances of class c in bags of class c.
        slope: at least 0, so that the order of the instances of a bag stays.
        offset: of the log-odds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    share: float = Field(gt=0, lt=1)
    slope: float = Field(ge=0)
    offset: float

    @classmethod
    def fit(
        cls,
        log_odds: Float64[np.ndarray, "n"],
        is_of_class: Bool[np.ndarray, "n"],
        weights: Float64[np.ndarray, "n"],
    ) -> PositiveCurve:
        """Return the curve of instances of negative bags and of bags of class c.

        Args:
            log_odds: t of each instance.
            is_of_class: whether it is in a bag of class c.
            weights: of each; those of either kind of bags sum to one.
        """
        from scipy.optimize import minimize
        from scipy.special import expit

        share = 1 - _share_of_negatives(log_odds, is_of_class, weights)
        center, scale = log_odds.mean(), log_odds.std()
        scale = scale if scale > SMALLEST else 1.0
        standardized, negatives = (log_odds - center) / scale, np.log(1 - share)

        def loss(values: Float64[np.ndarray, "2"]) -> tuple[float, Float64[np.ndarray, "2"]]:
            log_odds_of_curve = values[0] * standardized + values[1]
            log_ratio = negatives + np.logaddexp(0, log_odds_of_curve)
            likelihood = -np.logaddexp(0, np.where(is_of_class, -log_ratio, log_ratio))
            slope = weights * (is_of_class - expit(log_ratio)) * expit(log_odds_of_curve)
            gradient = np.array([(slope * standardized).sum(), slope.sum()])
            ridge = RIDGE * values
            return float(-(weights * likelihood).sum() + ridge @ values / 2), ridge - gradient

        bounds = ((0, None), (None, None))
        starts = np.array([[1.0, 0.0], [4.0, -3.0]])
        found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
        slope, intercept = min(found, key=lambda one: one.fun).x
        share, slope, offset = short((share, slope / scale, intercept - slope * center / scale))
        return cls(share=share, slope=slope, offset=offset)

    def probabilities(self, log_odds: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
        """Return the probability that each instance is of class c, if its bag is."""
        from scipy.special import expit

        values: np.ndarray = expit(self.slope * log_odds + self.offset)
        return values


class InstanceErrorModel(BaseModel):
    """The probability that an instance is misclassified: 1 − P(ŷ), with P(c) = P(bag is of class c) · curve_c(t).

    What of the probability is left is that of the negative class. It assumes that negative instances of positive
    bags are like those of negative bags, which tissue beside a tumor may not be.

    Attributes:
        negative_class: whose bags have negative instances only.
        curves: of each other class, in order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    negative_class: int = Field(ge=0)
    curves: tuple[PositiveCurve, ...] = Field(min_length=1)

    @classmethod
    def fit(
        cls,
        labels: Int64[np.ndarray, "B"],
        log_odds: Sequence[Float64[np.ndarray, "_ F"]],
        negative_class: int,
    ) -> InstanceErrorModel:
        """Return the curves fitted to bags with at least one of each class.

        Args:
            labels: of the bags.
            log_odds: ``instance_log_odds`` of each bag.
            negative_class: whose bags have negative instances only.
        """
        classes = log_odds[0].shape[1] + 1
        others = [number for number in range(classes) if number != negative_class]
        bag = np.repeat(np.arange(len(labels)), [len(each) for each in log_odds])
        share_of_bag = 1 / np.bincount(bag)
        curves = []
        for column, number in enumerate(others):
            rows = np.isin(labels[bag], (negative_class, number))
            is_of_class = labels[bag[rows]] == number
            bags_of_kind = np.where(is_of_class, (labels == number).sum(), (labels == negative_class).sum())
            values = np.concatenate([each[:, column] for each in log_odds])[rows]
            curves.append(PositiveCurve.fit(values, is_of_class, share_of_bag[bag[rows]] / bags_of_kind))
        return cls(negative_class=negative_class, curves=tuple(curves))

    def add_to(
        self, instances: PredictionTable, of_bags: Float64[np.ndarray, "B C"], sizes: Int64[np.ndarray, "B"]
    ) -> PredictionTable:
        """Return the instances with the score "error_probability", in [0, 1].

        Args:
            instances: predictions, bag after bag.
            of_bags: probability of each class of each bag.
            sizes: number of instances of each bag.
        """
        log_odds = log_odds_against(instances, self.negative_class)
        of_bag = np.repeat(of_bags, sizes, axis=0)
        shares = np.zeros(of_bag.shape)
        others = np.delete(np.arange(of_bag.shape[1]), self.negative_class)
        for column, (number, curve) in enumerate(zip(others, self.curves, strict=True)):
            shares[:, number] = of_bag[:, number] * curve.probabilities(log_odds[:, column])
        shares[:, self.negative_class] = 1 - shares.sum(1)
        wrong = 1 - shares[np.arange(len(instances)), instances.predicted]
        return replace(instances, scores={**instances.scores, ERROR_PROBABILITY: wrong.clip(0, 1)})


def instance_log_odds(
    instances: PredictionTable, negative_class: int, sizes: Int64[np.ndarray, "B"]
) -> list[Float64[np.ndarray, "_ F"]]:
    """Return log q_c / q_0 of the instances of each bag, for each class c but the negative one.

    Each column is sorted. Of a bag with more than 2,000 instances it has as many quantiles.

    Args:
        instances: of all bags, bag after bag.
        negative_class: 0 in log q_c / q_0.
        sizes: number of instances of each bag.
    """
    of_bags = np.split(log_odds_against(instances, negative_class), np.cumsum(sizes)[:-1])
    return [_thinned(np.sort(each, axis=0)) for each in of_bags]


def log_odds_against(table: PredictionTable, number: int) -> Float64[np.ndarray, "n F"]:
    """Return log p_c / p_0 of each item, for each class c but the one of that number, which is 0 here."""
    log = np.log(np.clip(table.probabilities, SMALLEST, 1.0))
    odds: np.ndarray = np.delete(log, number, axis=1) - log[:, [number]]
    return odds


def probabilities_by_error(table: PredictionTable) -> Float64[np.ndarray, "n C"]:
    """Return the probability of each class of each item, as its error probability says.

    That of the predicted class is what the error leaves. The error is that of all other classes; of several, each
    has its share by the item's own probabilities.

    Args:
        table: items with the score "error_probability".
    """
    wrong = np.asarray(table.scores[ERROR_PROBABILITY], np.float64)
    rows, classes = np.arange(len(table)), table.distribution.num_classes
    others = table.probabilities.astype(np.float64)
    others[rows, table.predicted] = 0  # their sum is not 1 − p where p is nearly 1
    total = others.sum(1, keepdims=True)
    even = np.full(others.shape, 1 / (classes - 1))
    shares = wrong[:, None] * np.divide(others, total, out=even, where=total > 0)
    shares[rows, table.predicted] = 1 - wrong
    return shares


def _thinned(ordered: Float64[np.ndarray, "n F"]) -> Float64[np.ndarray, "_ F"]:
    if len(ordered) <= MOST_OF_A_BAG:
        return ordered
    return ordered[((np.arange(MOST_OF_A_BAG) + 0.5) / MOST_OF_A_BAG * len(ordered)).astype(int)]


def _share_of_negatives(
    log_odds: Float64[np.ndarray, "n"], is_of_class: Bool[np.ndarray, "n"], weights: Float64[np.ndarray, "n"]
) -> float:
    """Return 1 − π: how much rarer, in bags of the class, instances up to a high quantile of negative ones are."""
    order = np.argsort(log_odds[~is_of_class], kind="stable")
    below = np.cumsum(weights[~is_of_class][order])
    limit = log_odds[~is_of_class][order][np.searchsorted(below, NEGATIVES_BELOW * below[-1])]
    is_low = log_odds <= limit
    ratio = weights[is_low & is_of_class].sum() / weights[is_low & ~is_of_class].sum()
    return float(np.clip(ratio, LEAST_SHARE, 1 - LEAST_SHARE))


def short(values: Iterable[float]) -> tuple[float, ...]:
    """Return the values with nine digits, as files keep them."""
    return tuple(float(f"{value:.9g}") for value in values)
