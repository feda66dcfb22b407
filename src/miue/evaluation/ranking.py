"""Rank metrics: items are sorted once for each uncertainty, then counted for any two sets of them.

All need no more than how many wanted and how many other items have each value, of each owner. Of up to
``EXACT_ITEMS`` items resampled values are exact, too; of more, values are grouped into ``BINS`` quantiles, which
count as ties, and shifted so that the value of the items as they are is the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer, Num
from scipy.sparse import csr_array

from miue.evaluation.metrics import NO_LABEL, Metric, Owners, Separation, WeightedMetric, no_item_of, ratio

EXACT_ITEMS = 1 << 18
BINS = 1024
CELLS_AT_ONCE = 2_000_000  # draws × values held in memory together
BLOCK = 1 << 15  # values whose counts are computed with at once

Drawn = Num[np.ndarray, "draws groups"]


@dataclass(frozen=True)
class Ranking:
    """The order of n items, or of some m of them, by their uncertainty.

    Attributes:
        values: ascending.
        order: the item of each value.
    """

    values: Float64[np.ndarray, "m"]
    order: Integer[np.ndarray, "m"]

    @classmethod
    def of(cls, uncertainty: Float64[np.ndarray, "n"]) -> Ranking:
        """Return the order of these values."""
        order = np.argsort(uncertainty)
        values = uncertainty[order]
        return cls(values, order.astype(np.int32) if len(order) < 1 << 31 else order)

    def __len__(self) -> int:
        return len(self.order)

    def among(self, items: Bool[np.ndarray, "n"]) -> Ranking:
        """Return the order of some of the items, which keep their numbers."""
        inside = items[self.order]
        return self if inside.all() else Ranking(self.values[inside], self.order[inside])

    def ends(self) -> Int64[np.ndarray, "groups"]:
        """Return the row of the last item of each different value."""
        last = np.ones(len(self), bool)
        np.not_equal(self.values[1:], self.values[:-1], out=last[:-1])
        return np.flatnonzero(last)

    def separation(self, wanted: Bool[np.ndarray, "n"], *, names: tuple[str, str]) -> Separation:
        """Return how well low uncertainty marks the wanted items.

        Args:
            wanted: the items that should be certain (correct, or in distribution).
            names: what wanted and unwanted items are called, for the reason of an undefined metric.
        """
        accepted, mistaken = self._cumulative(wanted)
        count = int(accepted[-1]) if len(self) else 0
        if count in (0, len(self)):
            lacking = names[0] if count == 0 else names[1]
            return Separation.undefined(f"no {lacking} item among {len(self):,}")
        first = int(np.searchsorted(accepted, _least_share(0.95, count)))
        auroc, aupr, aupr_unwanted = _areas(accepted, mistaken)
        return Separation(
            auroc=Metric(auroc),
            aupr=Metric(aupr),
            aupr_unwanted=Metric(aupr_unwanted),
            fpr95=Metric(float(mistaken[first] / (len(self) - count))),
        )

    def weighted(
        self,
        function: Callable[[Drawn, Drawn], Float64[np.ndarray, "draws"]],
        wanted: Bool[np.ndarray, "n"],
        owners: Owners,
    ) -> WeightedMetric:
        """Return a metric of the numbers of wanted and of other items by value, for weights of their owners."""
        if owners.count == 1:
            hits, others = (_each(one)[None] for one in self._cumulative(wanted))
            return WeightedMetric(
                lambda weights: (
                    function(hits, others)
                    if np.array_equal(weights, [[1]])
                    else function(weights * hits, weights * others)
                ),
                1,
            )
        ends, inside = self.ends(), wanted[self.order]
        if len(self) <= EXACT_ITEMS:
            place, of_item = np.repeat(np.arange(len(ends)), _each(ends + 1)), owners.index[self.order]
            sparse = [
                csr_array((np.ones(int(of.sum()), np.int64), (of_item[of], place[of])), (owners.count, len(ends)))
                for of in (inside, ~inside)
            ]
            at_once = max(1, CELLS_AT_ONCE // len(ends))
            return WeightedMetric(lambda weights: _by_block(function, weights, sparse, at_once), owners.count)
        exact = self.weighted(function, wanted, Owners.one(len(wanted))).plain.value
        cells = np.repeat(ends * BINS // len(self), _each(ends + 1))
        cells += owners.index[self.order] * BINS
        binned = [
            np.bincount(cells[of], minlength=owners.count * BINS).reshape(-1, BINS).astype(np.float64)
            for of in (inside, ~inside)
        ]
        shift = (exact or 0.0) - function(*(one.sum(0, keepdims=True) for one in binned))[0]
        return WeightedMetric(lambda weights: function(*(weights @ one for one in binned)) + shift, owners.count)

    def auroc_deviation(self, wanted: Bool[np.ndarray, "n"]) -> float:
        """Return the standard deviation of the AUROC of wanted items if all items were independent.

        Reference: DeLong et al. 1988.
        """
        cumulative = self._cumulative(wanted)
        variance = 0.0
        for (below, each), (other_below, other) in permutations((one, _each(one)) for one in cumulative):
            share = (other_below - other / 2) / other_below[-1]  # of others with a lower value, ties half
            count, mean = int(below[-1]), float(each @ share / below[-1])
            variance += float(each @ (share - mean) ** 2) / max(1, count - 1) / count
        return variance**0.5

    def _cumulative(
        self, wanted: Bool[np.ndarray, "n"]
    ) -> tuple[Integer[np.ndarray, "groups"], Integer[np.ndarray, "groups"]]:
        """Return how many wanted and how many other items have each value or a lower one."""
        ends = self.ends()
        accepted = wanted[self.order].cumsum(dtype=self.order.dtype)
        if len(ends) < len(self):
            accepted = accepted[ends]
        ends += 1
        return accepted, ends.astype(self.order.dtype) - accepted


def separation(
    uncertainty: Float64[np.ndarray, "n"], wanted: Bool[np.ndarray, "n"], *, names: tuple[str, str]
) -> Separation:
    """Return how well low uncertainty marks the wanted items.

    Args:
        uncertainty: higher where less certain.
        wanted: the items that should be certain (correct, or in distribution).
        names: what wanted and unwanted items are called, for the reason of an undefined metric.
    """
    return Ranking.of(uncertainty).separation(wanted, names=names)


def auroc(
    values: Float64[np.ndarray, "n"], positive: Bool[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Chance that a positive item has the higher value; ties count half."""
    return ranked_auroc(Ranking.of(-values), positive, owners or Owners.one(len(values)))


def ranked_auroc(ranking: Ranking, wanted: Bool[np.ndarray, "n"], owners: Owners) -> WeightedMetric:
    """Chance that a wanted item of a ranking has the lower value; ties count half."""
    count = int(wanted[ranking.order].sum())
    if count in (0, len(ranking)):
        lacking = "negative" if count else "positive"
        return WeightedMetric.undefined(f"no {lacking} item among {len(ranking):,}", owners)
    metric = ranking.weighted(_auroc, wanted, owners)
    if owners.count == 1:
        return metric
    pair = owners[ranking.order].compared(wanted[ranking.order])
    return replace(metric, pairs=(pair,), deviations=(ranking.auroc_deviation(wanted),))


def class_auroc(
    probabilities: Callable[[int], Float64[np.ndarray, "n"]],
    labels: Int64[np.ndarray, "n"],
    num_classes: int,
    owners: Owners | None = None,
    names: Sequence[str] = (),
) -> WeightedMetric:
    """AUROC of the class probability: of class 1 for two classes, else the mean over one-against-rest.

    Args:
        probabilities: returns those of a class.
        labels: of the items.
        num_classes: number of classes C.
        owners: what the items are weighted by.
        names: of the classes, for the reason where it is undefined.
    """
    owners = owners or Owners.one(len(labels))
    missing = sorted(set(range(num_classes)) - set(np.unique(labels).tolist()))
    if missing:
        return WeightedMetric.undefined(no_item_of(missing[0], len(labels), names), owners)
    classes = [1] if num_classes == 2 else range(num_classes)
    return WeightedMetric.mean_of([auroc(probabilities(c), labels == c, owners) for c in classes])


def area_under_risk_coverage(
    uncertainty: Float64[np.ndarray, "n"], correct: Bool[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Mean over k = 1 … n of the error rate of the k most certain items; ties share their errors evenly.

    A group of m tied items with e errors after s items with E adds a closed form, H the harmonic numbers:
    Σ_{j=1}^{m} (E + e·j/m) / (s + j) = (E − e·s/m)·(H(s + m) − H(s)) + e.

    Reference: Geifman & El-Yaniv 2017; Geifman et al. 2019.
    """
    return ranked_risk_coverage(Ranking.of(uncertainty), correct, owners or Owners.one(len(correct)))


def ranked_risk_coverage(ranking: Ranking, correct: Bool[np.ndarray, "n"], owners: Owners) -> WeightedMetric:
    """Return ``area_under_risk_coverage`` of the items of a ranking."""
    if not len(ranking):
        return WeightedMetric.undefined(NO_LABEL, owners)
    right = correct[ranking.order]
    weighted = ranking.weighted(_risk_coverage, correct, owners)
    return replace(weighted, rise=1.0) if right.all() or not right.any() else weighted  # as if errors were random


def _auroc(hits: Drawn, others: Drawn) -> Float64[np.ndarray, "draws"]:
    """Chance that a wanted item has the lower value, from the numbers of items by ascending value."""
    less_certain = others / 2
    less_certain -= others.cumsum(1)
    less_certain += others.sum(1, keepdims=True)
    less_certain *= hits
    return ratio(less_certain.sum(1), hits.sum(1) * others.sum(1).astype(np.float64))


def _risk_coverage(hits: Drawn, errors: Drawn) -> Float64[np.ndarray, "draws"]:
    size = hits + errors
    end = size.cumsum(1).astype(np.int64, copy=False)
    harmonic = np.zeros(end.max() + 1)
    np.cumsum(1 / np.arange(1, len(harmonic)), out=harmonic[1:])
    rise = harmonic[end]
    rise[:, 1:] -= harmonic[end[:, :-1]]
    del harmonic  # of millions of items each array counts
    terms = errors * (end - size) / np.maximum(size, 1)
    np.subtract(errors.cumsum(1) - errors, terms, out=terms)
    terms *= rise
    terms += errors
    return ratio(terms.sum(1), end[:, -1])


def _areas(
    accepted: Integer[np.ndarray, "groups"], mistaken: Integer[np.ndarray, "groups"]
) -> tuple[float, float, float]:
    """Return AUROC, and the average precision of wanted items from below and of unwanted ones from above.

    Average precision is Σ over thresholds of the rise of recall times precision, added in scikit-learn's order.
    What is between is computed for ``BLOCK`` values at a time, which stay in the cache.

    Args:
        accepted: wanted items up to each value, all at the last.
        mistaken: unwanted items up to each value.
    """
    count, wanted, unwanted = len(accepted), accepted[-1], mistaken[-1]
    terms, terms_unwanted, doubled = np.empty(count), np.empty(count), 0
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        (below, hits), (other_below, others) = (
            (before[:-1], before[1:])
            for before in (_with_previous(one, start, end) for one in (accepted, mistaken))
        )
        rise = hits / wanted - below / wanted
        terms[count - end : count - start] = (rise * (hits / (hits + others)))[::-1]
        above, other_above = unwanted - other_below, wanted - below
        rise = above / unwanted - (unwanted - others) / unwanted
        terms_unwanted[start:end] = rise * (above / (above + other_above))
        doubled += int(((hits - below) * (other_below + others)).sum())
    pairs = int(wanted) * int(unwanted)
    return (
        (pairs - doubled / 2) / pairs,
        float(max(0.0, np.sum(terms))),
        float(max(0.0, np.sum(terms_unwanted))),
    )


def _with_previous(cumulative: Integer[np.ndarray, "groups"], start: int, end: int) -> Int64[np.ndarray, "block"]:
    """Return a block of cumulative numbers after the one before it, 0 before the first."""
    block = np.zeros(end - start + 1, np.int64)
    block[1:] = cumulative[start:end]
    if start:
        block[0] = cumulative[start - 1]
    return block


def _each(cumulative: Integer[np.ndarray, "groups"]) -> Integer[np.ndarray, "groups"]:
    """Return the number of items of each value."""
    each = np.empty_like(cumulative)
    each[:1] = cumulative[:1]
    np.subtract(cumulative[1:], cumulative[:-1], out=each[1:])
    return each


def _least_share(share: float, count: int) -> int:
    """Return the least number k with k / count ≥ share, as floats are divided.

    >>> _least_share(0.95, 20), _least_share(0.95, 21)
    (19, 20)
    """
    near = int(share * count)
    return next(k for k in range(max(near - 1, 0), near + 3) if k / count >= share)


def _by_block(
    function: Callable[[Drawn, Drawn], Float64[np.ndarray, "draws"]],
    weights: Num[np.ndarray, "draws owners"],
    counts: Sequence[csr_array],
    at_once: int,
) -> Float64[np.ndarray, "draws"]:
    """Return a metric of weighted numbers of items by value, for some draws at a time.

    How many draws come together is chosen for all items of a table; few of many items may be ranked, such as those
    with a label, and be counted exactly, with a number for each of them and each draw.
    """
    blocks = [weights[first : first + at_once] for first in range(0, len(weights), at_once)]
    return np.concatenate([function(*(_dense(block @ one) for one in counts)) for block in blocks])


def _dense(product: Any) -> Num[np.ndarray, "draws groups"]:
    return np.ascontiguousarray(product)
