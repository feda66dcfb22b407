"""The metrics of ``evaluate``, what tables and reports call them, and those that a user brings."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from scipy.special import entr

from miue.common.errors import wrong_type
from miue.common.text import plural
from miue.evaluation.metrics import (
    NO_LABEL,
    Judged,
    Metric,
    Owners,
    WeightedMetric,
    mean_over_items,
    no_item_of,
    ratio,
)
from miue.predictions import PredictionTable
from miue.targets import OWN_METRICS

ECE_BINS = 15
OwnMetric = Callable[[PredictionTable], float]
"""A function of the items of a level that have a label and are not known to be out of distribution."""

NOT_FINITE = "the function returned no finite number"
OTHERS = ("confidence_auroc", "froc")
BUILT_IN_PREFIXES = ("recall_", "ood_", "flags_", "sensitivity_at_")


def accuracy(judged: Judged, owners: Owners | None = None) -> WeightedMetric:
    """Share of items whose most probable class is their label."""
    owners = owners or Owners.one(len(judged))
    return replace(
        mean_over_items(judged.correct.astype(np.float64), owners), pairs=(owners.compared(judged.correct),)
    )


def recall(
    judged: Judged,
    labels: Int64[np.ndarray, "n"],
    number: int,
    owners: Owners | None = None,
    names: Sequence[str] = (),
) -> WeightedMetric:
    """Share of the items of a class that are predicted as it.

    That of the positive class is the sensitivity, that of the negative class the specificity. ``names`` are those
    of all classes, for the reason where it is undefined.
    """
    owners = owners or Owners.one(len(judged))
    inside = labels == number
    if not inside.any():
        return WeightedMetric.undefined(no_item_of(number, len(labels), names), owners)
    correct, of_class = judged.correct[inside], owners[inside]
    return replace(mean_over_items(correct.astype(np.float64), of_class), pairs=(of_class.compared(correct),))


def confidence_bins(confidence: Float64[np.ndarray, "n"], bins: int = ECE_BINS) -> Int64[np.ndarray, "n"]:
    """Return the bin of each confidence among equal widths, each with its upper end."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def expected_calibration_error(
    judged: Judged, owners: Owners | None = None, *, bins: int = ECE_BINS
) -> WeightedMetric:
    """Σ over equal-width bins of (share of items) · |accuracy − mean confidence|, of the predicted class.

    Reference: Guo et al. 2017. Differs from the published code of Liu & Ji 2024, which takes the
    unweighted mean over bins.
    """
    owners = owners or Owners.one(len(judged))
    if not len(judged):
        return WeightedMetric.undefined(NO_LABEL, owners)
    cells = owners.index * bins + confidence_bins(judged.confidence, bins)
    excess = judged.correct - judged.confidence
    gaps = np.bincount(cells, excess, minlength=owners.count * bins).reshape(owners.count, bins)
    sizes = owners.sizes()
    return WeightedMetric(lambda weights: ratio(np.abs(weights @ gaps).sum(1), weights @ sizes), owners.count)


def mean_confidence(judged: Judged, owners: Owners | None = None) -> WeightedMetric:
    """Mean probability of the predicted class."""
    return mean_over_items(judged.confidence, owners)


def overconfidence(judged: Judged, owners: Owners | None = None) -> WeightedMetric:
    """Mean confidence − accuracy of the predicted class: positive where probabilities are too high on average."""
    return mean_over_items(judged.confidence - judged.correct, owners)


def brier_score(judged: Judged, owners: Owners | None = None) -> WeightedMetric:
    """Mean over items of Σ_c (p_c − y_c)², in [0, 2].

    Reference: Brier 1950. Differs from the published code of Liu & Ji 2024, which takes the L2 norm.
    """
    metric, sure = mean_over_items(judged.squared, owners), judged.confidence
    if not judged.is_one_sided:
        return metric
    squares = judged.squared + 2 * judged.of_label - 1  # Σ_c p_c²
    right = sure * (squares - 2 * sure + 1)
    return replace(metric, rise=_rise(judged, judged.squared, right, 1 - squares - right))


def negative_log_likelihood(judged: Judged, owners: Owners | None = None) -> WeightedMetric:
    """Mean of −log probability of the label, in nats; undefined where a label has probability zero."""
    owners = owners or Owners.one(len(judged))
    impossible = int((judged.of_label <= 0).sum())
    if impossible:
        return WeightedMetric.undefined(f"probability zero for {plural(impossible, 'label')}", owners)
    losses = -np.log(judged.of_label)
    metric = mean_over_items(losses, owners)
    if not judged.is_one_sided:
        return metric
    right, wrong = entr(judged.confidence), entr(1 - judged.confidence)  # the rest as if of one class
    return replace(metric, rise=_rise(judged, losses, right, wrong))


def _rise(
    judged: Judged,
    losses: Float64[np.ndarray, "n"],
    right: Float64[np.ndarray, "n"],
    wrong: Float64[np.ndarray, "n"],
) -> float | None:
    """Return how much a mean loss grows with the share of errors, by the losses that the probabilities expect.

    None where they exclude errors.

    Args:
        judged: items that are all right or all wrong.
        losses: theirs.
        right: expected loss of each where it is right, times the chance of that.
        wrong: likewise where it is wrong.
    """
    if not judged.correct.all():
        return float(losses.mean() - right.sum() / judged.confidence.sum())
    errors = float((1 - judged.confidence).sum())
    return float(wrong.sum() / errors - losses.mean()) if errors > 0 else None


@dataclass(frozen=True)
class NamedMetric:
    """A metric that ``evaluate`` gives of every level.

    Attributes:
        title: in tables of text.
        short: in tables and sentences of the report, where the other side of a comparison is near.
        words: written out, for model cards.
        meaning: what a value says, and which side is better.
        better: which side; "" for neither.
        scale: of values that are no shares, such as "in nats"; shares, whose scale is "", are shown in percent.
        of: computes it from labeled items and what they are weighted by; None for one that rests on more than
            that, which ``evaluate_level`` computes.
    """

    title: str
    short: str
    words: str
    meaning: str
    better: Literal["higher", "lower", ""]
    scale: str = ""
    of: Callable[[Judged, Owners], WeightedMetric] | None = None

    @property
    def is_share(self) -> bool:
        """Whether it lies between 0 and 1, and is shown in percent."""
        return not self.scale


METRICS: dict[str, NamedMetric] = {
    "accuracy": NamedMetric(
        title="Acc.",
        short="accuracy",
        words="accuracy",
        meaning="share of correct predictions; higher is better",
        better="higher",
        of=accuracy,
    ),
    "auroc": NamedMetric(
        title="AUROC of the class",
        short="AUROC",
        words="AUROC of the class",
        meaning="how well the class probability ranks the classes; higher is better",
        better="higher",
    ),
    "balanced_accuracy": NamedMetric(
        title="Balanced acc.",
        short="balanced accuracy",
        words="balanced accuracy",
        meaning="mean over classes of the share of their items that are predicted so; higher is better",
        better="higher",
    ),
    "ece": NamedMetric(
        title="ECE",
        short="ECE",
        words="expected calibration error",
        meaning=f"mean gap between confidence and accuracy over {ECE_BINS} bins of equal width; lower is better; "
        "with few items the value is too high",
        better="lower",
        of=expected_calibration_error,
    ),
    "brier": NamedMetric(
        title="Brier",
        short="Brier score",
        words="Brier score",
        meaning="squared error of the probabilities, 0 to 2; lower is better",
        better="lower",
        scale="from 0 to 2",
        of=brier_score,
    ),
    "nll": NamedMetric(
        title="NLL",
        short="NLL",
        words="negative log-likelihood",
        meaning="negative log-likelihood of the label, in nats; lower is better",
        better="lower",
        scale="in nats",
        of=negative_log_likelihood,
    ),
    "aurc": NamedMetric(
        title="AURC",
        short="AURC",
        words="area under the risk-coverage curve",
        meaning="mean selective risk over all coverages; lower is better; where few items are incorrect, the "
        "interval can be too narrow",
        better="lower",
    ),
    "ue": NamedMetric(
        title="UE, mean of Conf. and OOD",
        short="UE",
        words="mean AUROC of error detection and of out-of-distribution detection",
        meaning="the paper's summary: mean of error detection and of OOD detection by its own measures",
        better="higher",
    ),
}

NAMED_METRICS: Mapping[str, NamedMetric] = ChainMap(
    METRICS,
    {
        name: NamedMetric(one.title, one.title, one.title, one.meaning, one.better, scale="in its own unit")
        for name, one in OWN_METRICS.items()
    },
)
"""All metrics with a name: those of every level, and those of targets."""


def units() -> str:
    """Return what the values of tables are in.

    >>> units()
    'In %; Brier from 0 to 2, NLL in nats.'
    """
    others = [f"{metric.title} {metric.scale}" for metric in METRICS.values() if not metric.is_share]
    return f"In %; {', '.join(others)}."


def is_built_in(name: str) -> bool:
    """Return whether a metric of this name is, or can be, one of miue.

    >>> is_built_in("accuracy"), is_built_in("ood_kmnist_auroc"), is_built_in("f1")
    (True, True, False)
    """
    return name in METRICS or name in OTHERS or name.startswith(BUILT_IN_PREFIXES)


def check_own_metrics(metrics: object) -> None:
    """Check that metrics of a user are functions, under names that no metric of miue has.

    Raises:
        ConfigError: they are not.
    """
    fix = 'pass {"NAME": function}'
    if not isinstance(metrics, Mapping):
        raise wrong_type("metrics", "functions by their names", metrics, fix)
    for name, function in metrics.items():
        if not isinstance(name, str) or not name.strip() or is_built_in(name):
            raise wrong_type("a metric's name", "a text that is not the name of one of miue", name, fix)
        if not callable(function):
            raise wrong_type(f"metric {name!r}", "a function of a table", function, fix)


def own_metrics(
    metrics: Mapping[str, OwnMetric], table: PredictionTable, unlabeled: str = NO_LABEL
) -> dict[str, Metric]:
    """Return the value of each metric, undefined where it is not finite or no item has a label.

    Args:
        metrics: functions by their names, checked.
        table: predictions of a level; the functions are given the items with a label that are not known to be out
            of distribution.
        unlabeled: why there are no metrics, where no item has a label.

    Raises:
        ConfigError: a function returns something else than a number.
    """
    judged = np.flatnonzero(table.judged) if metrics else np.empty(0, np.int64)
    if not len(judged):
        return dict.fromkeys(metrics, Metric.undefined(unlabeled))
    known = table.subset(judged)
    return {name: _value(name, function, known) for name, function in metrics.items()}


def _value(name: str, function: OwnMetric, table: PredictionTable) -> Metric:
    try:
        found: object = function(table)
    except Exception as error:
        error.add_note(f"in metric {name!r}; where it is undefined, return NaN")
        raise
    if isinstance(found, np.ndarray | torch.Tensor) and found.ndim == 0:
        found = found.item()
    if not isinstance(found, Real):
        raise wrong_type(f"metric {name!r}", "a number from its function", found, "return a number")
    return Metric(float(found)) if math.isfinite(found) else Metric.undefined(NOT_FINITE)
