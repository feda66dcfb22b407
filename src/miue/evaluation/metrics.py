"""What metrics are made of: values or reasons why there is none, weights of items, what labels say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer

RECALL = "recall "
"""What the name of the recall of a class begins with; the number of the class follows."""
NO_LABEL = "no labeled item: predict with labels, or fill the column 'label'"
NO_INSTANCE_LABEL = (
    "no labeled instance: predict with instance labels, or fill the column 'label' of the instances"
)
SEVERAL_CLASSES = "no patient has a label: it has one where all its labeled bags are of the same class"
NONE_KNOWN_IN = "no item is known to be in distribution (false in the column 'is_ood'; an empty cell is unknown)"
NEITHER_KNOWN = "no item is known to be in or out of distribution (an empty cell of 'is_ood' is unknown)"
NONE_KNOWN_OUT = "no item is known to be out of distribution (true in the column 'is_ood')"


@dataclass(frozen=True)
class Metric:
    """A value, or None and the reason.

    Attributes:
        value: the metric.
        reason: why it is undefined; empty where it is defined.
    """

    value: float | None
    reason: str = ""

    @classmethod
    def undefined(cls, reason: str) -> Metric:
        """Return a metric without a value."""
        return cls(None, reason)

    @classmethod
    def mean_of(cls, metrics: list[Metric]) -> Metric:
        """Return the mean of one metric or more, undefined where one of them is."""
        missing = next((metric for metric in metrics if metric.value is None), None)
        return missing or cls(float(np.mean([metric.value for metric in metrics])))


Counts = tuple[Float64[np.ndarray, "owners"], Float64[np.ndarray, "owners"]]
"""(items that are wanted, other items) of each owner."""


@dataclass(frozen=True)
class Owners:
    """What the n items are weighted by, such as their patients: all items of an owner have its weight.

    Attributes:
        index: the owner of each item, from 0.
        count: number of owners; some may have no item.
    """

    index: Int64[np.ndarray, "n"]
    count: int

    @classmethod
    def one(cls, items: int) -> Owners:
        """Return one owner of all items."""
        return cls(np.zeros(items, np.int64), 1)

    def __getitem__(self, rows: Bool[np.ndarray, "n"] | Integer[np.ndarray, "m"]) -> Owners:
        return Owners(self.index[rows], self.count)

    def total(self, values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "owners"]:
        """Return the sum of the values of each owner's items."""
        return np.bincount(self.index, values, minlength=self.count).astype(np.float64)

    def sizes(self) -> Float64[np.ndarray, "owners"]:
        """Return the number of items of each owner."""
        return self.total(np.ones(len(self.index)))

    def compared(self, wanted: Bool[np.ndarray, "n"]) -> Counts:
        """Return how many items of each owner are wanted, and how many are not."""
        found = np.bincount(self.index[wanted], minlength=self.count).astype(np.float64)
        return found, self.sizes() - found


@dataclass(frozen=True)
class WeightedMetric:
    """A metric as a function of how often each owner, with all its items, counts.

    Attributes:
        function: maps weights to values, NaN where the metric is undefined.
        owners: number of owners.
        reason: why the metric is undefined for the items as they are; empty where it is defined.
        pairs: what a share, or each AUROC that the metric is the mean of, compares; none of other metrics.
        deviations: of each AUROC that ``pairs`` are of, the standard deviation if all items were independent.
        rise: how much a loss grows with the share of errors, of items that are all right or all wrong, of which
            no resample shows it; None of other items and metrics.
    """

    function: Callable[[Int64[np.ndarray, "draws owners"]], Float64[np.ndarray, "draws"]] = field(repr=False)
    owners: int
    reason: str = ""
    pairs: tuple[Counts, ...] = field(default=(), repr=False, compare=False)
    deviations: tuple[float, ...] = field(default=(), repr=False, compare=False)
    rise: float | None = field(default=None, repr=False, compare=False)

    @classmethod
    def undefined(cls, reason: str, owners: Owners) -> WeightedMetric:
        """Return a metric without a value for any weights."""
        return cls(lambda weights: np.full(len(weights), np.nan), owners.count, reason)

    @classmethod
    def mean_of(cls, each: Sequence[WeightedMetric]) -> WeightedMetric:
        """Return the mean of one metric or more of the same owners, undefined where one of them is."""
        return cls(
            lambda weights: np.mean([one(weights) for one in each], axis=0),
            each[0].owners,
            next((one.reason for one in each if one.reason), ""),
            tuple(pair for one in each for pair in one.pairs),
            tuple(deviation for one in each for deviation in one.deviations),
        )

    def __call__(self, weights: Int64[np.ndarray, "draws owners"]) -> Float64[np.ndarray, "draws"]:
        """Return the metric for each row of weights, NaN where it is undefined."""
        return self.function(weights)

    @property
    def plain(self) -> Metric:
        """The metric of the items as they are, each counted once."""
        if self.reason:
            return Metric.undefined(self.reason)
        return Metric(float(self(np.ones((1, self.owners), np.int64))[0]))


@dataclass(frozen=True)
class Separation:
    """How well a confidence separates the wanted items from the others, the wanted ones being positive.

    Attributes:
        auroc: chance that a wanted item has the higher confidence; ties count half.
        aupr: average precision, the wanted items positive.
        aupr_unwanted: average precision of the uncertainty, the unwanted items positive.
        fpr95: share of unwanted items accepted at the threshold that accepts at least 95 % of the wanted.
    """

    auroc: Metric
    aupr: Metric
    aupr_unwanted: Metric
    fpr95: Metric

    @classmethod
    def undefined(cls, reason: str) -> Separation:
        """Return a separation without values."""
        return cls(*[Metric.undefined(reason)] * 4)


@dataclass(frozen=True)
class Judged:
    """What the class metrics need of n labeled items.

    Attributes:
        correct: whether the most probable class is the label.
        confidence: probability of the most probable class.
        of_label: probability of the label.
        squared: Σ_c (p_c − y_c)².
    """

    correct: Bool[np.ndarray, "n"]
    confidence: Float64[np.ndarray, "n"]
    of_label: Float64[np.ndarray, "n"]
    squared: Float64[np.ndarray, "n"]

    @classmethod
    def of(cls, probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"]) -> Judged:
        """Return what the probabilities say of the labels."""
        hits = np.eye(probabilities.shape[1])[labels]
        return cls(
            correct=probabilities.argmax(1) == labels,
            confidence=probabilities.max(1, initial=0.0),
            of_label=probabilities[np.arange(len(labels)), labels],
            squared=((probabilities - hits) ** 2).sum(1),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Judged]) -> Judged:
        """Return the items of all parts in order."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def is_one_sided(self) -> bool:
        """Whether all items, at least one, are right, or all are wrong."""
        return len(self) > 0 and bool(self.correct.all() or not self.correct.any())


def no_item_of(number: int, count: int, names: Sequence[str] = ()) -> str:
    """Return why a metric that needs items of every class is undefined for so many labeled items.

    >>> no_item_of(1, 7), no_item_of(1, 7, ["2", "10"])
    ('no item of class 1 among 7', "no item of class '10' among 7")
    """
    name = repr(names[number]) if number < len(names) else number
    return f"no item of class {name} among {count:,}" if count else NO_LABEL


def mean_over_items(values: Float64[np.ndarray, "n"], owners: Owners | None) -> WeightedMetric:
    """Return the mean over items, a ratio of two weighted sums over owners."""
    owners = owners or Owners.one(len(values))
    if not len(values):
        return WeightedMetric.undefined(NO_LABEL, owners)
    totals, sizes = owners.total(values), owners.sizes()
    return WeightedMetric(lambda weights: ratio(weights @ totals, weights @ sizes), owners.count)


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return above / below, NaN where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(below > 0, above / below, np.nan), np.float64)
