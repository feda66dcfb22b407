"""Metrics of predictions: each one function of the weights of items, a value or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64

ECE_BINS = 15
NO_LABEL = (
    "no labelled item: give labels of bags with --labels TABLE, of instances with --instance-labels TABLE, to "
    "'miue predict', or fill the column 'label'"
)
NONE_KNOWN_IN = (
    "no item is known to be in distribution: write false into the column 'is_ood' for those that are; an empty "
    "cell is unknown"
)
NEITHER_KNOWN = (
    "no item is known to be in or out of distribution: write false or true into the column 'is_ood'; an empty "
    "cell is unknown"
)
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
        """Return the mean, undefined where one of them is."""
        missing = [metric.reason for metric in metrics if metric.value is None]
        if missing or not metrics:
            return cls.undefined(missing[0] if missing else "nothing to average")
        return cls(float(np.mean([metric.value for metric in metrics])))


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

    def __getitem__(self, rows: Bool[np.ndarray, "n"] | Int64[np.ndarray, "m"]) -> Owners:
        return Owners(self.index[rows], self.count)

    def total(self, values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "owners"]:
        """Return the sum of the values of each owner's items."""
        return np.bincount(self.index, values, minlength=self.count).astype(np.float64)

    def sizes(self) -> Float64[np.ndarray, "owners"]:
        """Return the number of items of each owner."""
        return self.total(np.ones(len(self.index)))


@dataclass(frozen=True)
class WeightedMetric:
    """A metric as a function of how often each owner, with all its items, counts.

    Attributes:
        function: maps weights to values, NaN where the metric is undefined.
        owners: number of owners.
        reason: why the metric is undefined for the items as they are; empty where it is defined.
    """

    function: Callable[[Int64[np.ndarray, "draws owners"]], Float64[np.ndarray, "draws"]] = field(repr=False)
    owners: int
    reason: str = ""

    @classmethod
    def undefined(cls, reason: str, owners: Owners) -> WeightedMetric:
        """Return a metric without a value for any weights."""
        return cls(lambda weights: np.full(len(weights), np.nan), owners.count, reason)

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


def separation(
    uncertainty: Float64[np.ndarray, "n"], wanted: Bool[np.ndarray, "n"], *, names: tuple[str, str]
) -> Separation:
    """Return how well low uncertainty marks the wanted items.

    Args:
        uncertainty: higher where less certain.
        wanted: the items that should be certain (correct, or in distribution).
        names: what wanted and unwanted items are called, for the reason of an undefined metric.
    """
    count = int(wanted.sum())
    if count in (0, len(wanted)):
        lacking = names[0] if count == 0 else names[1]
        return Separation.undefined(f"no {lacking} item among {len(wanted)}")
    from sklearn.metrics import average_precision_score, roc_curve

    confidence = -uncertainty
    false_rate, true_rate, _ = roc_curve(wanted, confidence, drop_intermediate=False)
    return Separation(
        auroc=auroc(confidence, wanted).plain,
        aupr=Metric(float(average_precision_score(wanted, confidence))),
        aupr_unwanted=Metric(float(average_precision_score(~wanted, uncertainty))),
        fpr95=Metric(float(false_rate[np.argmax(true_rate >= 0.95)])),
    )


def auroc(
    values: Float64[np.ndarray, "n"], positive: Bool[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Chance that a positive item has the higher value; ties count half."""
    owners = owners or Owners.one(len(values))
    count = int(positive.sum())
    if count in (0, len(positive)):
        lacking = "negative" if count else "positive"
        return WeightedMetric.undefined(f"no {lacking} item among {len(positive)}", owners)
    if count > len(positive) / 2:  # the rarer kind is looked up among the sorted others
        return auroc(-values, ~positive, owners)
    others = np.flatnonzero(~positive)[np.argsort(values[~positive], kind="stable")]
    below = np.searchsorted(values[others], values[positive], side="left")
    upto = np.searchsorted(values[others], values[positive], side="right")
    of_others, of_positive = owners[others].index, owners[positive].index

    def function(weights: Int64[np.ndarray, "draws owners"]) -> Float64[np.ndarray, "draws"]:
        running = np.zeros((len(weights), len(others) + 1))
        np.cumsum(weights[:, of_others], axis=1, out=running[:, 1:])
        drawn = weights[:, of_positive]
        won = (drawn * (running[:, below] + running[:, upto])).sum(1) / 2
        return _ratio(won, running[:, -1] * drawn.sum(1))

    return WeightedMetric(function, owners.count)


def accuracy(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Share of items whose most probable class is their label."""
    return _mean((probabilities.argmax(1) == labels).astype(np.float64), owners)


def class_auroc(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """AUROC of the class probability: of class 1 for two classes, else the mean over one-against-rest."""
    owners = owners or Owners.one(len(labels))
    if not len(labels):
        return WeightedMetric.undefined(NO_LABEL, owners)
    missing = sorted(set(range(probabilities.shape[1])) - set(labels.tolist()))
    if missing:
        return WeightedMetric.undefined(f"no item of class {missing[0]} among {len(labels)}", owners)
    classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    each = [auroc(probabilities[:, c], labels == c, owners) for c in classes]
    return WeightedMetric(lambda weights: np.mean([one(weights) for one in each], axis=0), owners.count)


def confidence_bins(confidence: Float64[np.ndarray, "n"], bins: int = ECE_BINS) -> Int64[np.ndarray, "n"]:
    """Return the bin of each confidence among equal widths, each with its upper end."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def expected_calibration_error(
    probabilities: Float64[np.ndarray, "n C"],
    labels: Int64[np.ndarray, "n"],
    owners: Owners | None = None,
    *,
    bins: int = ECE_BINS,
) -> WeightedMetric:
    """Σ over equal-width bins of (share of items) · |accuracy − mean confidence|, of the predicted class.

    Reference: Guo et al. 2017. Differs from the published code of Liu & Ji 2024, which takes the
    unweighted mean over bins.
    """
    owners = owners or Owners.one(len(labels))
    if not len(labels):
        return WeightedMetric.undefined(NO_LABEL, owners)
    confidence = probabilities.max(1)
    cells = owners.index * bins + confidence_bins(confidence, bins)
    excess = (probabilities.argmax(1) == labels) - confidence
    gaps = np.bincount(cells, excess, minlength=owners.count * bins).reshape(owners.count, bins)
    sizes = owners.sizes()
    return WeightedMetric(lambda weights: _ratio(np.abs(weights @ gaps).sum(1), weights @ sizes), owners.count)


def mean_confidence(probabilities: Float64[np.ndarray, "n C"], owners: Owners | None = None) -> WeightedMetric:
    """Mean probability of the predicted class."""
    return _mean(probabilities.max(1), owners)


def overconfidence(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Mean confidence − accuracy of the predicted class: positive where probabilities are too high on average."""
    return _mean(probabilities.max(1) - (probabilities.argmax(1) == labels), owners)


def brier_score(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Mean over items of Σ_c (p_c − y_c)², in [0, 2].

    Reference: Brier 1950. Differs from the published code of Liu & Ji 2024, which takes the L2 norm.
    """
    hits = np.eye(probabilities.shape[1])[labels]
    return _mean(((probabilities - hits) ** 2).sum(1), owners)


def negative_log_likelihood(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], owners: Owners | None = None
) -> WeightedMetric:
    """Mean of −log probability of the label, in nats; undefined where a label has probability zero."""
    owners = owners or Owners.one(len(labels))
    of_label = probabilities[np.arange(len(labels)), labels]
    impossible = int((of_label <= 0).sum())
    if impossible:
        return WeightedMetric.undefined(f"{impossible} labels have probability zero", owners)
    return _mean(-np.log(of_label), owners)


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
    order = np.argsort(uncertainty, kind="stable")
    owner, wrong = owners.index[order], ~correct[order]
    starts = np.unique(uncertainty[order], return_index=True)[1]

    def function(weights: Int64[np.ndarray, "draws owners"]) -> Float64[np.ndarray, "draws"]:
        drawn = weights[:, owner]
        size = np.add.reduceat(drawn, starts, axis=1)
        errors = np.add.reduceat(drawn * wrong, starts, axis=1)
        end, errors_before = size.cumsum(1), errors.cumsum(1) - errors
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, end.max() + 1))])
        rise = harmonic[end] - harmonic[end - size]
        share = errors * (end - size) / np.maximum(size, 1)
        return _ratio(((errors_before - share) * rise + errors).sum(1), end[:, -1])

    return WeightedMetric(function, owners.count)


def _mean(values: Float64[np.ndarray, "n"], owners: Owners | None) -> WeightedMetric:
    """The mean over items is a ratio of two weighted sums over owners."""
    owners = owners or Owners.one(len(values))
    if not len(values):
        return WeightedMetric.undefined(NO_LABEL, owners)
    totals, sizes = owners.total(values), owners.sizes()
    return WeightedMetric(lambda weights: _ratio(weights @ totals, weights @ sizes), owners.count)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(below > 0, above / below, np.nan), np.float64)
