"""Rank metrics: items are sorted once for each uncertainty, then counted for any two sets of them.

All need no more than how many wanted and how many other items have each value, of each owner. Of up to
``EXACT_ITEMS`` items resampled values are exact, too; of more, values are grouped into ``BINS`` quantiles, which
count as ties, and shifted so that the value of the items as they are is the exact one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer, Num
from scipy.sparse import csr_array

from miue.evaluation.metrics import NO_LABEL, Metric, Owners, Separation, WeightedMetric, ratio

EXACT_ITEMS = 1 << 18
BINS = 1024

Counts = Num[np.ndarray, "draws groups"]


@dataclass(frozen=True)
class Ranking:
    """The order of n items by their uncertainty.

    Attributes:
        place: how many different values are below that of each item.
        count: number of different values.
    """

    place: Integer[np.ndarray, "n"]
    count: int

    @classmethod
    def of(cls, uncertainty: Float64[np.ndarray, "n"]) -> Ranking:
        """Return the order of these values."""
        if not len(uncertainty):
            return cls(np.zeros(0, np.int32), 0)
        order = np.argsort(uncertainty)
        ascending = uncertainty[order]
        places = np.zeros(len(order), np.int32 if len(order) < 1 << 31 else np.int64)
        np.cumsum(ascending[1:] != ascending[:-1], out=places[1:])
        place = np.empty_like(places)
        place[order] = places
        return cls(place, int(places[-1]) + 1)

    def separation(
        self,
        wanted: Bool[np.ndarray, "n"],
        compared: Bool[np.ndarray, "n"],
        *,
        names: tuple[str, str],
    ) -> Separation:
        """Return how well low uncertainty marks the wanted items among those compared.

        Args:
            wanted: the items that should be certain (correct, or in distribution).
            compared: the items that count.
            names: what wanted and unwanted items are called, for the reason of an undefined metric.
        """
        total, count = int(compared.sum()), int((wanted & compared).sum())
        if count in (0, total):
            lacking = names[0] if count == 0 else names[1]
            return Separation.undefined(f"no {lacking} item among {total}")
        hits, others = self._counts(wanted & compared), self._counts(compared & ~wanted)
        there = hits + others > 0
        hits, others = hits[there], others[there]
        accepted = hits.cumsum()
        first = int(np.argmax(accepted / count >= 0.95))
        return Separation(
            auroc=Metric(float(_auroc(hits[None], others[None])[0])),
            aupr=Metric(_average_precision(hits, others)),
            aupr_unwanted=Metric(_average_precision(others[::-1], hits[::-1])),
            fpr95=Metric(float(others[: first + 1].sum() / (total - count))),
        )

    def weighted(
        self,
        function: Callable[[Counts, Counts], Float64[np.ndarray, "draws"]],
        wanted: Bool[np.ndarray, "n"],
        owners: Owners,
    ) -> WeightedMetric:
        """Return a metric of the numbers of wanted and of other items by value, for weights of their owners."""
        if owners.count == 1:
            hits, others = self._counts(wanted)[None], self._counts(~wanted)[None]
            return WeightedMetric(lambda weights: function(weights * hits, weights * others), 1)
        if len(wanted) <= EXACT_ITEMS:
            shape = (owners.count, self.count)
            sparse = [
                csr_array((np.ones(int(of.sum()), np.int64), (owners.index[of], self.place[of])), shape=shape)
                for of in (wanted, ~wanted)
            ]
            return WeightedMetric(
                lambda weights: function(*(_dense(weights @ one) for one in sparse)), owners.count
            )
        exact = self.weighted(function, wanted, Owners.one(len(wanted))).plain.value
        below = np.bincount(self.place, minlength=self.count).cumsum() - 1
        bins = (below * BINS // len(wanted))[self.place]
        cells = owners.index * BINS + bins
        binned = [
            np.bincount(cells[of], minlength=owners.count * BINS).reshape(-1, BINS).astype(np.float64)
            for of in (wanted, ~wanted)
        ]
        shift = (exact or 0.0) - function(*(one.sum(0, keepdims=True) for one in binned))[0]
        return WeightedMetric(lambda weights: function(*(weights @ one for one in binned)) + shift, owners.count)

    def _counts(self, chosen: Bool[np.ndarray, "n"]) -> Int64[np.ndarray, "groups"]:
        return np.bincount(self.place[chosen], minlength=self.count)


def separation(
    uncertainty: Float64[np.ndarray, "n"], wanted: Bool[np.ndarray, "n"], *, names: tuple[str, str]
) -> Separation:
    """Return how well low uncertainty marks the wanted items.

    Args:
        uncertainty: higher where less certain.
        wanted: the items that should be certain (correct, or in distribution).
        names: what wanted and unwanted items are called, for the reason of an undefined metric.
    """
    return Ranking.of(uncertainty).separation(wanted, np.ones(len(wanted), bool), names=names)


def auroc(
    values: Float64[np.ndarray, "n"], positive: Bool[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Chance that a positive item has the higher value; ties count half."""
    owners = owners or Owners.one(len(values))
    count = int(positive.sum())
    if count in (0, len(positive)):
        lacking = "negative" if count else "positive"
        return WeightedMetric.undefined(f"no {lacking} item among {len(positive)}", owners)
    return Ranking.of(-values).weighted(_auroc, positive, owners)


def class_auroc(
    probabilities: Callable[[int], Float64[np.ndarray, "n"]],
    labels: Int64[np.ndarray, "n"],
    num_classes: int,
    owners: Owners | None = None,
) -> WeightedMetric:
    """AUROC of the class probability: of class 1 for two classes, else the mean over one-against-rest.

    Args:
        probabilities: returns those of a class.
        labels: of the items.
        num_classes: C.
        owners: what the items are weighted by.
    """
    owners = owners or Owners.one(len(labels))
    if not len(labels):
        return WeightedMetric.undefined(NO_LABEL, owners)
    missing = sorted(set(range(num_classes)) - set(np.unique(labels).tolist()))
    if missing:
        return WeightedMetric.undefined(f"no item of class {missing[0]} among {len(labels)}", owners)
    classes = [1] if num_classes == 2 else range(num_classes)
    each = [auroc(probabilities(c), labels == c, owners) for c in classes]
    return WeightedMetric(lambda weights: np.mean([one(weights) for one in each], axis=0), owners.count)


def area_under_risk_coverage(
    uncertainty: Float64[np.ndarray, "n"], correct: Bool[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Mean over k = 1 … n of the error rate of the k most certain items; ties share their errors evenly.

    A group of m tied items with e errors after s items with E adds a closed form, H the harmonic numbers:
    Σ_{j=1}^{m} (E + e·j/m) / (s + j) = (E − e·s/m)·(H(s + m) − H(s)) + e.

    Reference: Geifman & El-Yaniv 2017; Geifman et al. 2019.
    """
    owners = owners or Owners.one(len(correct))
    if not len(correct):
        return WeightedMetric.undefined(NO_LABEL, owners)
    return Ranking.of(uncertainty).weighted(_risk_coverage, correct, owners)


def _auroc(hits: Counts, others: Counts) -> Float64[np.ndarray, "draws"]:
    """Chance that a wanted item has the lower value, from the numbers of items by ascending value."""
    less_certain = others.sum(1, keepdims=True) - others.cumsum(1)
    won = (hits * (less_certain + others / 2)).sum(1)
    return ratio(won, hits.sum(1) * others.sum(1).astype(np.float64))


def _risk_coverage(hits: Counts, errors: Counts) -> Float64[np.ndarray, "draws"]:
    size = hits + errors
    end, errors_before = size.cumsum(1).astype(np.int64), errors.cumsum(1) - errors
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, end.max() + 1))])
    rise = harmonic[end]
    rise[:, 1:] -= harmonic[end[:, :-1]]
    share = errors * (end - size) / np.maximum(size, 1)
    return ratio(((errors_before - share) * rise + errors).sum(1), end[:, -1])


def _average_precision(hits: Int64[np.ndarray, "g"], others: Int64[np.ndarray, "g"]) -> float:
    """Σ over thresholds of the rise of recall times precision, in the order in which scikit-learn adds."""
    found = hits.cumsum().astype(np.float64)
    precision = found / (found + others.cumsum())
    recall = np.append((found / found[-1])[::-1], 0.0)
    return float(max(0.0, -np.sum(np.diff(recall) * precision[::-1])))


def _dense(product: Any) -> Num[np.ndarray, "draws groups"]:
    return np.ascontiguousarray(product)
