"""Labels by predicted classes: a row for each label of each run, in counts and in percent of the label."""

from __future__ import annotations

from collections.abc import Sequence

from miue.evaluation.level import LevelEvaluation
from miue.report.metrics_table import Cell, MetricsTable
from miue.report.runs import Run


def confusion_table(
    runs: Sequence[Run], evaluations: Sequence[LevelEvaluation | None], classes: Sequence[str]
) -> MetricsTable | None:
    """Return the confusion matrix of every run at one level, below each other; None where no run has a label.

    Args:
        runs: the predictions.
        evaluations: of this level, by run.
        classes: names in order.
    """
    found = [(run, one) for run, one in zip(runs, evaluations, strict=True) if one and one.labeled]
    if not found:
        return None
    table = MetricsTable([(f"predicted {name}", f"items whose most probable class is {name}") for name in classes])
    for run, evaluation in found:
        for name, counts in zip(classes, evaluation.confusion, strict=True):
            total = sum(counts)
            cells = [Cell(f"{count:,}", f"{100 * count / total:.1f}\u00a0%" if total else "") for count in counts]
            title = f"label {name}" if len(found) == 1 else f"{run.title}: label {name}"
            table.rows.append((title, cells, ""))
    return table
