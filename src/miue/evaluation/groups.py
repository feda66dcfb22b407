"""How predictions are in each group of bags: each hospital, scanner, or sex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from miue.common.text import ResultTable
from miue.evaluation.decisions import DecisionEvaluation
from miue.evaluation.level import LevelEvaluation, metric_cell, numbered
from miue.evaluation.metrics import Metric

OF_DECISIONS = ("accepted", "deferred", "flagged", "selective_risk", "coverage")
"""What is shown of the decisions of a group."""
NO_GROUP = "no group"
"""Name of the group of bags whose group is not known."""


@dataclass(frozen=True)
class GroupEvaluation:
    """Evaluation of the bags of one group.

    Attributes:
        bags: metrics of its bags.
        accuracy_low: lower end of the exact 95 % interval of the accuracy, wider where patients have several bags.
        accuracy_high: upper end.
        recall_low: lower end of that of the recall of each class, by its number.
        recall_high: upper ends.
        decisions: how the decisions of its bags came out; None where there are none.
    """

    bags: LevelEvaluation
    accuracy_low: Metric
    accuracy_high: Metric
    recall_low: Mapping[str, Metric]
    recall_high: Mapping[str, Metric]
    decisions: DecisionEvaluation | None

    def named_metrics(self, classes: Sequence[str]) -> Iterator[tuple[str, Metric]]:
        """Yield name and value of every metric of its bags, of the ends of intervals, and of decisions.

        Args:
            classes: names in order.
        """
        yield from self.bags.named_metrics(classes)
        yield "accuracy_low", self.accuracy_low
        yield "accuracy_high", self.accuracy_high
        for name, low, high in zip(classes, self.recall_low.values(), self.recall_high.values(), strict=True):
            yield f"recall_{name}_low", low
            yield f"recall_{name}_high", high
        if self.decisions is not None:
            yield from ((f"decisions_{name}", metric) for name, metric in self.decisions.metrics.items())


def group_tables(groups: Mapping[str, GroupEvaluation], classes: Sequence[str]) -> Iterator[ResultTable]:
    """Yield the metrics with a row for each group, and what decisions came to where there are any.

    Args:
        groups: by name.
        classes: names in order.
    """
    yield _metrics_by_group(groups, classes)
    decisions = {name: one.decisions for name, one in groups.items() if one.decisions is not None}
    if decisions:
        yield _decisions_by_group(decisions)


def _metrics_by_group(groups: Mapping[str, GroupEvaluation], classes: Sequence[str]) -> ResultTable:
    two, reasons, rows = len(classes) == 2, list[str](), list[tuple[str, ...]]()
    for name, one in groups.items():
        metrics = one.bags.metrics
        by_class = one.bags.recall_by_class.values() if two else (metrics["balanced_accuracy"],)
        accuracy, *shares = (
            metric_cell(metric, True, reasons, decimals=1)
            for metric in (metrics["accuracy"], *by_class, metrics["auroc"])
        )
        nll = metric_cell(metrics["nll"], False, reasons)
        rows.append((name, f"{one.bags.labeled:,}", accuracy, _interval(one), *shares, nll))
    of_classes = ("spec.", "sens.") if two else ("balanced acc.",)
    notes = [
        "Labeled bags not known to be out of distribution, in %; NLL in nats. The interval is that of the "
        "accuracy (exact; wider where patients are known to have several bags, which depend on each other)."
    ]
    if two:
        notes.append(
            f"Specificity (spec.) is the recall of {classes[0]}, sensitivity (sens.) that of {classes[1]}."
        )
    if len(rows) > 2:
        notes.append("Of many groups, some differ by chance alone: compare their intervals.")
    heading = ("group", "labeled", "Acc.", "95 % interval", *of_classes, "AUROC", "NLL")
    return ResultTable(heading, tuple(rows), (*notes, *numbered(reasons)))


def _decisions_by_group(groups: Mapping[str, DecisionEvaluation]) -> ResultTable:
    reasons, rows = list[str](), list[tuple[str, ...]]()
    for name, one in groups.items():
        rows.append((name, *(metric_cell(one.metrics[key], True, reasons, decimals=1) for key in OF_DECISIONS)))
    heading = ("group", "accepted", "deferred", "called OOD", "selective risk", "label in set")
    notes = (
        "Decisions of bags not known to be out of distribution, in %; label in set: of the prediction set.",
        *numbered(reasons),
    )
    return ResultTable(heading, tuple(rows), notes)


def _interval(group: GroupEvaluation) -> str:
    low, high = group.accuracy_low.value, group.accuracy_high.value
    return "" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"
