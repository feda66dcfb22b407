"""Each group of bags by itself: metrics and decisions, with the exact intervals of shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from miue.calibration import applied_calibration
from miue.evaluation.evaluate import evaluate_groups
from miue.evaluation.groups import OF_DECISIONS, GroupEvaluation
from miue.evaluation.intervals import Interval
from miue.evaluation.metrics import RECALL, Metric
from miue.report.decisions_table import NAMES as DECISIONS
from miue.report.decisions_table import decision_cell
from miue.report.metrics_table import RECALLS, Cell, MetricsTable, metric_cell, metric_heading
from miue.report.runs import Run


def groups_table(
    runs: Sequence[Run], groups: Mapping[str, Any] | None, classes: Sequence[str]
) -> MetricsTable | None:
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
        (
            run.title,
            evaluate_groups(
                run.predictions.bags,
                groups,
                applied_calibration(run.predictions.provenance),
                run.predictions.provenance.classes,
            ),
        )
        for run in runs
    ]
    keys = ["accuracy", *(RECALLS if len(classes) == 2 else ["balanced_accuracy"]), "auroc", "nll"]
    of_decisions = OF_DECISIONS if any(one.decisions for _, by in found for one in by.values()) else ()
    names = {f"{RECALL}{number}": name for number, name in enumerate(classes)}
    table = MetricsTable(
        [
            ("labeled bags", "bags with a label that are not known to be out of distribution"),
            *(metric_heading(key, names) for key in keys),
            *(DECISIONS[key] for key in of_decisions),
        ]
    )
    for group in found[0][1]:
        for title, by in found:
            cells = [metric_cell(table, key, *_with_interval(by[group], key)) for key in keys]
            cells += [_of_decisions(table, key, by[group]) for key in of_decisions]
            name = group if len(found) == 1 else f"{group}: {title}"
            table.rows.append((name, [Cell(f"{by[group].bags.labeled:,}"), *cells], ""))
    return table


def _with_interval(one: GroupEvaluation, key: str) -> tuple[Metric, Interval | None]:
    """Return a metric and, of a share of bags, its exact interval."""
    if key not in ("accuracy", *RECALLS):
        return one.bags.metrics[key], None
    number = key.removeprefix(RECALL)
    if key == "accuracy":
        metric, low, high = one.bags.metrics[key], one.accuracy_low, one.accuracy_high
    else:
        metric, low, high = one.bags.recall_by_class[number], one.recall_low[number], one.recall_high[number]
    return metric, Interval(low.value, high.value, one.bags.labeled)


def _of_decisions(table: MetricsTable, key: str, one: GroupEvaluation) -> Cell:
    if one.decisions is None:
        return metric_cell(table, key, Metric.undefined("these predictions have no decisions"), None)
    return decision_cell(table, key, one.decisions)
