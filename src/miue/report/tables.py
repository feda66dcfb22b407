"""The tables of a report: what a column shows, and cells with intervals, footnotes and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from miue.evaluation import (
    FLAG_TITLES,
    FLAGS_IN_PERCENT,
    FROC_TITLES,
    METRICS,
    NAMED_METRICS,
    OF_DECISIONS,
    RECALL,
    DecisionEvaluation,
    GroupEvaluation,
    Interval,
    LevelEvaluation,
    Metric,
    evaluate_flags,
    evaluate_froc,
    evaluate_groups,
)
from miue.report.runs import Run

PERCENT = "\u00a0%"
ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}
RECALLS = {f"{RECALL}0": "specificity", f"{RECALL}1": "sensitivity"}
"""What the recalls of two classes are called; more classes have a confusion matrix instead."""
NOT_OUT = "not known to be out of distribution"


@dataclass(frozen=True)
class Column:
    """What a column shows.

    Attributes:
        key: name of the metric.
        heading: with an arrow to the better side, where there is one.
        meaning: of a value.
        digits: after the decimal point; None for a share, which is shown in percent.
    """

    key: str
    heading: str
    meaning: str
    digits: int | None = None

    def show(self, value: float, sign: str = "") -> str:
        """Return a value as text; one that rounds to 0 has no sign.

        >>> Column("ece", "ECE % ↓", "").show(-0.012, "+"), Column("nll", "NLL ↓", "", 3).show(0.5)
        ('−1.2', '0.500')
        """
        digits, shown = (1, 100 * value) if self.digits is None else (self.digits, value)
        rounded = round(shown, digits)
        return f"{rounded:{sign},.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"

    def is_better(self, difference: float) -> bool | None:
        """Return whether a difference is an improvement; None where no side is better."""
        return (difference > 0) == ("↑" in self.heading) if {"↑", "↓"} & set(self.heading) else None


@dataclass(frozen=True)
class Cell:
    """What one cell shows.

    Attributes:
        text: the value, or "—".
        below: its interval, or the spread over seeds.
        reason: number of the footnote that says why there is no value or no interval; 0 for none.
        kind: "apart" for a difference whose interval excludes 0, "same" for that of a method from itself.
        word: which side such a difference is on: "better", "worse", or "" where no side is better.
    """

    text: str
    below: str = ""
    reason: int = 0
    kind: str = ""
    word: str = ""


@dataclass
class Table:
    """A table with the reasons of what it lacks.

    Attributes:
        columns: what they show.
        rows: (name, its cells, "" or "mean" over seeds or "difference").
        reasons: footnotes.
        left_out: (why, columns that no row has a value in).
        caption: what is shown, and what it means, where a table is one of many.
    """

    columns: list[Column]
    rows: list[tuple[str, list[Cell], str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    left_out: list[tuple[str, list[str]]] = field(default_factory=list)
    caption: tuple[str, str] = ("", "")

    def add(
        self, name: str, metrics: Mapping[str, Metric], intervals: Mapping[str, Interval] | None = None
    ) -> None:
        """Add a row of metrics by the keys of the columns, with intervals below those that have one."""
        by_key = intervals or {}
        cells = [self.cell(column, metrics[column.key], by_key.get(column.key)) for column in self.columns]
        self.rows.append((name, cells, ""))

    def cell(self, column: Column, metric: Metric, interval: Interval | None = None, sign: str = "") -> Cell:
        """Return a metric with its interval, or "—" with the number of its reason."""
        if metric.value is None:
            return Cell("—", reason=self._footnote(metric.reason))
        text = column.show(metric.value, sign)
        if interval is None:
            return Cell(text)
        if interval.low is None or interval.high is None:
            return Cell(text, "no interval", self._footnote(interval.reason))
        return Cell(text, f"{column.show(interval.low, sign)} to {column.show(interval.high, sign)}")

    def difference(self, column: Column, found: tuple[float, Interval] | None) -> Cell:
        """Return a difference with its interval and, where that excludes 0, which side is better."""
        if found is None:
            return self.cell(column, Metric.undefined("not both methods have this metric"))
        value, interval = found
        cell = self.cell(column, Metric(value), interval, "+")
        if not interval.excludes_zero:
            return cell
        word = {None: "", True: "better", False: "worse"}[column.is_better(value)]
        return replace(cell, kind="apart", word=word)

    def _footnote(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason) + 1


CONFIDENCES = (
    Column(
        "mean_confidence",
        "mean confidence\u00a0%",
        "mean probability of the predicted class; compare it with the accuracy, which it equals where "
        "probabilities are right on average",
    ),
    Column(
        "overconfidence",
        "confidence − accuracy (points)",
        "mean confidence − accuracy: above 0 probabilities are too high, below 0 too low; closer to 0 is better",
    ),
)
"""What the report has beside the metrics of ``evaluate``."""

DECISIONS = (
    Column("accepted", "accepted\u00a0%", f"share of bags {NOT_OUT} that are assigned a class"),
    Column("deferred", "deferred\u00a0%", f"share of bags {NOT_OUT} that are deferred to a person"),
    Column("flagged", "flagged OOD\u00a0%", f"share of bags {NOT_OUT} that are flagged as out of distribution"),
    Column(
        "false_alarms",
        "false alarms\u00a0%",
        "share of bags known to be in distribution that are flagged as out of distribution",
    ),
    Column(
        "selective_risk",
        "selective risk\u00a0%",
        "share of incorrect ones among labeled bags that are accepted",
    ),
    Column(
        "coverage",
        "coverage of the sets\u00a0%",
        f"share of labeled bags {NOT_OUT} whose prediction set contains the label",
    ),
    Column(
        "bound_coverage",
        "no event before the bound\u00a0%",
        "share of labeled bags whose event is not before the bound of the time (Kaplan–Meier)",
    ),
    Column("set_size", "set size", "mean number of classes in a prediction set", 2),
    Column(
        "empty_sets",
        "empty sets\u00a0%",
        f"share of bags {NOT_OUT} with an empty prediction set: no class is probable enough, a person should look",
    ),
)

OF_CLASSES = {"accepted", "deferred", "selective_risk"}
"""What decisions come to where labels are classes alone."""

FLAGS = {
    "froc": "FROC\u00a0% ↑",
    "loss": "promised loss ↓",
    "negative_bags_with_a_flag": "negative bags with a flag\u00a0% ↓",
    "false_positives": "flags of a negative bag ↓",
    "positive_bags_with_a_flag": "positive bags with a flag\u00a0% ↑",
    "sensitivity": "sensitivity of flags\u00a0% ↑",
    "precision": "precision of flags\u00a0% ↑",
}
INSTANCES = tuple(
    Column(
        key,
        FLAGS.get(key) or key.replace("sensitivity_at_", "found\u00a0% ↑ at "),
        title,
        None if key in FROC_TITLES or key in FLAGS_IN_PERCENT else 3,
    )
    for key, title in {**FROC_TITLES, **FLAG_TITLES}.items()
)


def metric_column(key: str, names: Mapping[str, str]) -> Column:
    """Return the column of a metric of a level.

    Args:
        key: of the metric.
        names: what "confidence", "errors", "ood" and "detection" are by, in words; names of classes by their
            recall.
    """
    if key in NAMED_METRICS:
        named = NAMED_METRICS[key]
        unit = PERCENT if named.is_share else ""
        return Column(key, f"{named.short}{unit}{ARROWS[named.better]}", named.meaning, None if unit else 3)
    if key in RECALLS:
        of_class = names.get(key, key.removeprefix(RECALL))
        meaning = f"share of the items labeled {of_class} that are predicted so; higher is better"
        return Column(key, f"{RECALLS[key]}\u00a0% ↑", meaning)
    kind, _, ood_set = key.partition(" ")
    by = f"by {names[kind]}" if kind in names else ""
    separates, task = "how well the measure separates correct from incorrect predictions", "error"
    if kind in ("ood", "detection"):
        task = "OOD"
        separates = "how well the score separates items known to be in distribution from items known to be out of "
        separates += "distribution"
    meaning = {
        "confidence": ", Conf. in the paper",
        "errors": ", the measure that calibration uses",
        "ood": ", OOD in the paper",
        "detection": ", the score that calibration uses",
    }[kind]
    heading = " ".join(filter(None, (f"{task} detection (AUROC)\u00a0% ↑", ood_set, by)))
    return Column(key, heading, f"{separates}{meaning}; higher is better")


def metrics_table(
    found: Sequence[tuple[Run, Mapping[str, Metric], Mapping[str, Interval]]], names: Mapping[str, str]
) -> Table:
    """Return the table of one level, of which a metric that no run has is no column.

    Args:
        found: runs with their metrics and the intervals of these.
        names: as ``metric_column`` takes them.
    """
    of_sets = [key for _, one, _ in found for key in one if key.partition(" ")[0] in ("ood", "detection")]
    two = any(list(RECALLS) == [key for key in one if key.startswith(RECALL)] for _, one, _ in found)
    keys = ["accuracy", "balanced_accuracy", *(RECALLS if two else ()), "auroc", "confidence", "errors"]
    keys += [*(dict.fromkeys(of_sets) or ["ood"]), "ue", "ece"]
    keys = [key for key in keys if key.partition(" ")[0] not in ("errors", "detection") or key.split()[0] in names]
    own = dict.fromkeys(key for _, one, _ in found for key in one if key in NAMED_METRICS and key not in METRICS)
    nothing = Metric.undefined("no item of this out-of-distribution set")
    columns = [metric_column(key, names) for key in keys]
    columns += [*CONFIDENCES, *(metric_column(key, names) for key in METRICS if key not in keys)]
    columns = [metric_column(key, names) for key in own] + columns
    columns = [column for column in columns if any(column.key in one for _, one, _ in found)]
    rows = [{column.key: one.get(column.key, nothing) for column in columns} for _, one, _ in found]
    missing: dict[str, list[str]] = {}
    for column in list(columns):
        if all(row[column.key].value is None for row in rows):
            columns.remove(column)
            plain = metric_column(column.key, {}) if column not in CONFIDENCES else column
            missing.setdefault(rows[0][column.key].reason, []).append(plain.heading.rstrip(" ↑↓").rstrip(PERCENT))
    table = Table(columns, left_out=[(why, list(dict.fromkeys(of_why))) for why, of_why in missing.items()])
    for name in dict.fromkeys(run.name for run, _, _ in found):
        seeds = [row for row, (run, _, _) in enumerate(found) if run.name == name]
        for row in seeds:
            table.add(found[row][0].title, rows[row], found[row][2])
        if len(seeds) > 1:
            means = [_mean(table, column, [rows[row][column.key] for row in seeds]) for column in columns]
            table.rows.append((f"{name}, mean ± std of {len(seeds)} seeds", means, "mean"))
    return table


def _mean(table: Table, column: Column, metrics: list[Metric]) -> Cell:
    mean = table.cell(column, Metric.mean_of(metrics))
    values = [metric.value for metric in metrics if metric.value is not None]
    if len(values) < len(metrics):
        return mean
    return replace(mean, below=f"± {column.show(float(np.std(values, ddof=1)))}")


def confusion_table(evaluations: Sequence[tuple[Run, LevelEvaluation]], classes: Sequence[str]) -> Table | None:
    """Return labels by predicted classes, in counts and in percent of the label; None where no run has a label."""
    found = [(run, one) for run, one in evaluations if one.labeled and not one.is_numeric]
    if not found:
        return None
    table = Table([Column("", f"predicted {one}", f"items whose most probable class is {one}") for one in classes])
    for run, evaluation in found:
        for name, counts in zip(classes, evaluation.confusion, strict=True):
            total = sum(counts)
            cells = [Cell(f"{count:,}", f"{100 * count / total:.1f}\u00a0%" if total else "") for count in counts]
            table.rows.append((f"label {name}" if len(found) == 1 else f"{run.title}: label {name}", cells, ""))
    return table


def decisions_table(runs: Sequence[Run], outcomes: Sequence[DecisionEvaluation | None]) -> Table | None:
    """Return what the decisions of the runs came to, or None where no run has any."""
    found = [(run, one) for run, one in zip(runs, outcomes, strict=True) if one is not None]
    if not found:
        return None
    sets = dict.fromkeys(name for _, one in found for name in one.found)
    flagged = "share of this set's bags that are flagged as out of distribution; higher is better"
    nothing = Metric.undefined("no bag of this out-of-distribution set")
    has_classes = all(run.predictions.bags.has_classes for run in runs)
    held = {key for _, one in found for key, metric in one.metrics.items() if metric.value is not None}
    columns = [column for column in DECISIONS if has_classes or column.key in held - OF_CLASSES]
    columns = [column for column in columns if all(column.key in one.metrics for _, one in found)]
    table = Table([*columns, *(Column(f"found {name}", f"{name} detected\u00a0%", flagged) for name in sets)])
    for run, one in found:
        of_sets = {f"found {name}": one.found.get(name, nothing) for name in sets}
        table.add(run.title, {**one.metrics, **of_sets}, _interval_of_risk(one))
    return table


def groups_table(runs: Sequence[Run], groups: Mapping[str, Any] | None, classes: Sequence[str]) -> Table | None:
    """Return a row for each group and run, the runs of a group below each other; None without groups.

    Args:
        runs: predictions of the same bags.
        groups: of each bag by its name, as ``miue.evaluate`` takes them.
        classes: names in order.

    Raises:
        ConfigError: groups that name none of the bags.
    """
    if groups is None:
        return None
    found = [
        evaluate_groups(run.predictions.bags, groups, run.rules, run.predictions.provenance.classes)
        for run in runs
    ]
    has_classes = all(run.predictions.bags.has_classes for run in runs)
    keys = ["accuracy", *(RECALLS if len(classes) == 2 else ["balanced_accuracy"]), "auroc", "nll"]
    if not has_classes:
        keys = list(next(iter(found[0].values())).bags.metrics)
    names = {f"{RECALL}{number}": name for number, name in enumerate(classes)}
    table = Table(
        [
            Column("labeled", "labeled bags", f"bags with a label that are {NOT_OUT}", 0),
            *(metric_column(key, names) for key in keys),
        ]
    )
    if any(one.decisions for by_name in found for one in by_name.values()):
        shown = [key for key in OF_DECISIONS if has_classes or key not in OF_CLASSES]
        table.columns += [column for column in DECISIONS if column.key in shown]
    nothing = Metric.undefined("these predictions have no decisions")
    for group in found[0]:
        for run, by_name in zip(runs, found, strict=True):
            one = by_name[group]
            recalls = {f"{RECALL}{number}": metric for number, metric in one.bags.recall_by_class.items()}
            metrics = {**one.bags.metrics, **recalls, "labeled": Metric(float(one.bags.labeled))}
            metrics |= {key: one.decisions.metrics[key] if one.decisions else nothing for key in OF_DECISIONS}
            table.add(group if len(runs) == 1 else f"{group}: {run.title}", metrics, _intervals_of_shares(one))
    return table


def _intervals_of_shares(one: GroupEvaluation) -> dict[str, Interval]:
    ends = {"accuracy": (one.accuracy_low, one.accuracy_high)}
    ends |= {f"{RECALL}{number}": (low, one.recall_high[number]) for number, low in one.recall_low.items()}
    found = {key: Interval(low.value, high.value, one.bags.labeled) for key, (low, high) in ends.items()}
    return found if one.decisions is None else {**found, **_interval_of_risk(one.decisions)}


def _interval_of_risk(one: DecisionEvaluation) -> dict[str, Interval]:
    low, high = (one.metrics[name].value for name in ("selective_risk_low", "selective_risk_high"))
    return {} if low is None else {"selective_risk": Interval(low, high, 0)}


def instances_table(runs: Sequence[Run], levels: Sequence[LevelEvaluation | None]) -> Table | None:
    """Return FROC and the outcome of flags of every run; None where no run has labels or flags of instances.

    Args:
        runs: the predictions.
        levels: the evaluation of the instances of each.
    """
    rows: list[Mapping[str, Metric]] = []
    for run, level in zip(runs, levels, strict=True):
        froc = evaluate_froc(run.predictions) if level and level.labeled else {}
        flags = evaluate_flags(run.predictions)
        rows.append({**froc, **(flags.metrics if flags else {})})
    columns = [column for column in INSTANCES if any(column.key in row for row in rows)]
    if not columns:
        return None
    nothing = Metric.undefined("no labels or no flags of instances")
    table = Table(columns)
    for run, row in zip(runs, rows, strict=True):
        table.add(run.title, {**{column.key: nothing for column in columns}, **row})
    return table
