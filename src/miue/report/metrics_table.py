"""The table of metrics: runs with intervals, seeds as mean ± standard deviation, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from miue.evaluation.class_metrics import METRICS
from miue.evaluation.intervals import Interval
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import RECALL, Metric
from miue.report.runs import Run

PERCENT = "\u00a0%"
NAMES = {
    "mean_confidence": (
        "mean confidence\u00a0%",
        "mean probability of the predicted class; compare it with the accuracy, which it equals where "
        "probabilities are right on average",
    ),
    "overconfidence": (
        "confidence − accuracy (points)",
        "mean confidence − accuracy: above 0 probabilities are too high, below 0 too low; closer to 0 is better",
    ),
}
"""What the report has beside the metrics of ``evaluate``."""
ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}
RECALLS = {f"{RECALL}0": "specificity", f"{RECALL}1": "sensitivity"}
"""What the recalls of two classes are called; more classes have a confusion matrix instead."""


@dataclass(frozen=True)
class Cell:
    """What one cell shows.

    Attributes:
        text: the value, or "—".
        below: its interval, or the spread over seeds.
        reason: number of the footnote that says why there is no value or no interval; 0 for none.
        apart: whether it is a difference whose interval excludes 0.
        word: which side such a difference is on: "better", "worse", or "" where the metric has no better side.
    """

    text: str
    below: str = ""
    reason: int = 0
    apart: bool = False
    word: str = ""


@dataclass(frozen=True)
class Difference:
    """What two methods differ by on the same bags.

    Attributes:
        method: name of the one; its seeds are averaged.
        reference: name of the other.
        values: (method − reference, its interval over paired resamples) of each metric that both have.
    """

    method: str
    reference: str
    values: Mapping[str, tuple[float, Interval]]

    def reverse(self) -> Difference:
        """Return reference − method."""
        values = {key: (-value, _negate(interval)) for key, (value, interval) in self.values.items()}
        return Difference(self.reference, self.method, values)


@dataclass
class MetricsTable:
    """One level's table.

    Attributes:
        columns: (heading, what it means).
        rows: (run, its cells, "" or "mean" over seeds or "difference").
        reasons: footnotes.
        left_out: (why, columns that no run has a value in).
        keys: the metric of each column.
    """

    columns: list[tuple[str, str]]
    rows: list[tuple[str, list[Cell], str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    left_out: list[tuple[str, list[str]]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def metrics_table(
    runs: Sequence[Run],
    values: Sequence[Mapping[str, Metric] | None],
    intervals: Sequence[Mapping[str, Interval] | None],
    differences: Sequence[Difference] = (),
    scores: Mapping[str, str] | None = None,
) -> MetricsTable:
    """Return the table of one level; a run without this level has no row, a metric that no run has no column.

    Args:
        runs: the predictions.
        values: of the metrics of each run.
        intervals: of the metrics of each run.
        differences: of the second of two methods from the first; other numbers have ``pair_tables``.
        scores: what "confidence", "errors", "ood" and "detection" are by, in words; names of classes by their
            recall.
    """
    found = [(run, one, by or {}) for run, one, by in zip(runs, values, intervals, strict=True) if one]
    scores = scores or {}
    of_sets = [key for _, one, _ in found for key in one if key.startswith(("ood ", "detection "))]
    of_errors = ["errors"] if any("errors" in one for _, one, _ in found) else []
    recalls = list(RECALLS) if any(list(RECALLS) == _recalls(one) for _, one, _ in found) else []
    keys = [
        "accuracy",
        "balanced_accuracy",
        *recalls,
        "auroc",
        "confidence",
        *of_errors,
        *(dict.fromkeys(of_sets) or ["ood"]),
    ]
    keys += ["ue", "ece", *NAMES]
    keys += [key for key in METRICS if key not in keys]
    nothing = Metric.undefined("no item of this out-of-distribution set")
    missing: dict[str, list[str]] = {}
    for key in list(keys):
        metrics = [one.get(key, nothing) for _, one, _ in found]
        if all(metric.value is None for metric in metrics):
            keys.remove(key)
            missing.setdefault(metrics[0].reason, []).append(
                metric_heading(key, {})[0].rstrip(" ↑↓").rstrip("\u00a0%")
            )
    left_out = [(reason, list(dict.fromkeys(names))) for reason, names in missing.items()]
    table = MetricsTable([metric_heading(key, scores) for key in keys], left_out=left_out, keys=keys)
    for name in dict.fromkeys(run.name for run, _, _ in found):
        of_name = [(run, one, by) for run, one, by in found if run.name == name]
        for run, one, by in of_name:
            table.rows.append(
                (run.title, [metric_cell(table, k, one.get(k, nothing), by.get(k)) for k in keys], "")
            )
        if len(of_name) > 1:
            means = [_mean(table, key, [one.get(key, nothing) for _, one, _ in of_name]) for key in keys]
            table.rows.append((f"{name}, mean ± std of {len(of_name)} seeds", means, "mean"))
    for difference in differences:
        cells = [difference_cell(table.reasons, key, difference.values.get(key)) for key in keys]
        table.rows.append((f"{difference.method} − {difference.reference}", cells, "difference"))
    return table


def metric_values(
    level: LevelEvaluation,
    confidences: Mapping[str, Metric],
    errors: str | None,
    detection: str | None,
) -> dict[str, Metric]:
    """Return the metrics of one level by the names that ``bootstrap_intervals`` gives them.

    Args:
        level: its evaluation.
        confidences: "mean_confidence" and "overconfidence".
        errors: the measure that "errors" is by; None leaves it out.
        detection: the score that "detection SET" is by; None leaves it out.
    """
    found = {**level.metrics, "confidence": level.confidence.auroc, **confidences}
    found |= {f"{RECALL}{number}": metric for number, metric in level.recall_by_class.items()}
    if errors is not None:
        found["errors"] = level.by_measure[errors].confidence.auroc
    if not level.ood:
        found["ood"] = level.metrics["ue"]
    for name, one in level.ood.items():
        found[f"ood {name}"] = one.auroc
        if detection is not None:
            found[f"detection {name}"] = level.by_measure[detection].ood[name].auroc
    return found


def metric_heading(key: str, scores: Mapping[str, str]) -> tuple[str, str]:
    """Return the heading of a metric, with an arrow to its better side where it has one, and what it means.

    Args:
        key: of the metric.
        scores: as ``metrics_table`` takes them.
    """
    if key in METRICS:
        named = METRICS[key]
        return f"{named.short}{PERCENT if named.is_share else ''}{ARROWS[named.better]}", named.meaning
    if key in NAMES:
        return NAMES[key]
    if key in RECALLS:
        name = scores.get(key, key.removeprefix(RECALL))
        return (
            f"{RECALLS[key]}\u00a0% ↑",
            f"share of the items labeled {name} that are predicted so; higher is better",
        )
    kind, _, ood_set = key.partition(" ")
    by = f"by {scores[kind]}" if kind in scores else ""
    if kind in ("confidence", "errors"):
        meaning = (
            "how well the measure separates correct from incorrect predictions"
            f"{', Conf. in the paper' if kind == 'confidence' else ', the measure that calibration uses'}; "
            "higher is better"
        )
        return f"error detection (AUROC)\u00a0% ↑ {by}".rstrip(), meaning
    meaning = (
        "how well the score separates items known to be in distribution from items known to be out of distribution"
        f"{', OOD in the paper' if kind == 'ood' else ', the score that calibration uses'}; higher is better"
    )
    return f"OOD detection (AUROC)\u00a0% ↑ {' '.join(filter(None, (ood_set, by)))}".rstrip(), meaning


def _recalls(metrics: Mapping[str, Metric]) -> list[str]:
    return [key for key in metrics if key.startswith(RECALL)]


def metric_cell(table: MetricsTable, key: str, metric: Metric, interval: Interval | None) -> Cell:
    """Return a metric with its interval.

    Args:
        table: whose footnote says why there is no value or no interval.
        key: of the metric.
        metric: its value.
        interval: None where none is shown.
    """
    if metric.value is None:
        return Cell("—", "", footnote(table.reasons, metric.reason))
    if interval is None:
        return Cell(format_number(key, metric.value))
    if interval.low is None or interval.high is None:
        return Cell(format_number(key, metric.value), "no interval", footnote(table.reasons, interval.reason))
    return Cell(
        format_number(key, metric.value),
        f"{format_number(key, interval.low)} to {format_number(key, interval.high)}",
    )


def difference_cell(reasons: list[str], key: str, found: tuple[float, Interval] | None) -> Cell:
    """Return a difference with its interval and, where that excludes 0, which side is better.

    Args:
        reasons: footnotes, to which that of this cell is added.
        key: of the metric.
        found: the difference and its interval; None where not both methods have the metric.
    """
    if found is None:
        return Cell("—", "", footnote(reasons, "not both methods have this metric"))
    value, interval = found
    if interval.low is None or interval.high is None:
        return Cell(format_number(key, value, "+"), "no interval", footnote(reasons, interval.reason))
    ends = f"{format_number(key, interval.low, '+')} to {format_number(key, interval.high, '+')}"
    word = {None: "", True: "better", False: "worse"}[is_better(key, value) if interval.excludes_zero else None]
    return Cell(format_number(key, value, "+"), ends, apart=interval.excludes_zero, word=word)


def is_better(key: str, difference: float) -> bool | None:
    """Return whether a difference is an improvement; None for a metric that has no better side.

    >>> is_better("accuracy", 0.1), is_better("ece", 0.1), is_better("overconfidence", 0.1)
    (True, False, None)
    """
    heading = metric_heading(key, {})[0]
    return (difference > 0) == ("↑" in heading) if "↑" in heading or "↓" in heading else None


def _negate(interval: Interval) -> Interval:
    if interval.low is None or interval.high is None:
        return interval
    return Interval(-interval.high, -interval.low, interval.defined)


def _mean(table: MetricsTable, key: str, metrics: Sequence[Metric]) -> Cell:
    mean = Metric.mean_of(list(metrics))
    if mean.value is None:
        return Cell("—", "", footnote(table.reasons, mean.reason))
    spread = float(np.std([metric.value for metric in metrics if metric.value is not None], ddof=1))
    return Cell(format_number(key, mean.value), f"± {format_number(key, spread)}")


def format_number(key: str, value: float, sign: str = "") -> str:
    """Return a metric as the tables show it: in percent or points, with three digits where it is no share."""
    digits, shown = (1, 100 * value) if is_in_percent(key) else (3, value)
    rounded = round(shown, digits)
    return f"{rounded:{sign}.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def is_in_percent(key: str) -> bool:
    """Return whether a metric, or a difference in it, is shown in percent, or in points."""
    return key not in METRICS or METRICS[key].is_share


def footnote(reasons: list[str], reason: str) -> int:
    """Return the number of the footnote that says ``reason``, added where it is new."""
    if reason not in reasons:
        reasons.append(reason)
    return reasons.index(reason) + 1
