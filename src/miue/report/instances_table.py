"""Positive instances against those of negative bags: FROC, and what flags came to, a row for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from miue.calibration.instance_flags import describe_negative_class
from miue.evaluation.flags import IN_PERCENT, evaluate_flags
from miue.evaluation.flags import TITLES as FLAG_TITLES
from miue.evaluation.froc import TITLES as FROC_TITLES
from miue.evaluation.froc import applied_negative_class, evaluate_froc
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import Metric
from miue.report.metrics_table import Cell, MetricsTable, footnote
from miue.report.runs import Run

TITLES = {**FROC_TITLES, **FLAG_TITLES}
HEADINGS = {name: name.replace("sensitivity_at_", "found\u00a0% ↑ at ") for name in FROC_TITLES} | {
    "froc": "FROC\u00a0% ↑",
    "loss": "promised loss ↓",
    "negative_bags_with_a_flag": "negative bags with a flag\u00a0% ↓",
    "false_positives": "flags of a negative bag ↓",
    "positive_bags_with_a_flag": "positive bags with a flag\u00a0% ↑",
    "sensitivity": "sensitivity of flags\u00a0% ↑",
    "precision": "precision of flags\u00a0% ↑",
}


def instances_table(runs: Sequence[Run], levels: Sequence[LevelEvaluation | None]) -> MetricsTable | None:
    """Return FROC and the outcome of flags of every run; None where no run has labels or flags of instances.

    Args:
        runs: the predictions.
        levels: the evaluation of the instances of each.
    """
    rows: list[tuple[str, Mapping[str, Metric]]] = []
    for run, level in zip(runs, levels, strict=True):
        froc = evaluate_froc(run.predictions) if level and level.labeled else {}
        flags = evaluate_flags(run.predictions)
        rows.append((run.title, {**froc, **(flags.metrics if flags else {})}))
    names = [name for name in TITLES if any(name in metrics for _, metrics in rows)]
    if not names:
        return None
    table = MetricsTable([(HEADINGS[name], TITLES[name]) for name in names])
    nothing = Metric.undefined("no labels or no flags of instances")
    for title, metrics in rows:
        table.rows.append((title, [_cell(table, name, metrics.get(name, nothing)) for name in names], ""))
    return table


def describe_negative_classes(runs: Sequence[Run], class_names: Sequence[str]) -> list[str]:
    """Return what "negative" means where there are more than two classes, of each run if they differ."""
    numbers = {run.title: applied_negative_class(run.predictions.provenance) for run in runs}
    said = {title: describe_negative_class(class_names, number) for title, number in numbers.items()}
    if len(set(numbers.values())) == 1:
        return next(iter(said.values()))
    return [f"{title}: {sentence}" for title, sentences in said.items() for sentence in sentences]


def _cell(table: MetricsTable, name: str, metric: Metric) -> Cell:
    if metric.value is None:
        return Cell("—", "", footnote(table.reasons, metric.reason))
    percent = name in FROC_TITLES or name in IN_PERCENT
    return Cell(f"{100 * metric.value:.1f}" if percent else f"{metric.value:.3f}")
