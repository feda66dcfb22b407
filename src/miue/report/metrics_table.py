"""The table of metrics: every run with its intervals, and seeds of one method as mean ± standard deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from miue.evaluation.bootstrap import Interval
from miue.evaluation.evaluation import LevelEvaluation
from miue.evaluation.metrics import Metric
from miue.report.runs import Run

NAMES = {
    "accuracy": ("Acc.\u00a0%", "share of right predictions; higher is better"),
    "auroc": ("AUROC\u00a0%", "how well the class probability ranks the classes; higher is better"),
    "confidence": ("Conf.\u00a0%", "AUROC of the confidence for a right prediction; higher is better"),
    "ue": ("UE\u00a0%", "mean of Conf. and every OOD column; higher is better"),
    "ece": ("ECE\u00a0%", "mean gap between confidence and accuracy; lower is better"),
    "aurc": ("AURC\u00a0%", "mean error as more and more is kept, the surest first; lower is better"),
    "brier": ("Brier", "squared error of the probabilities, 0 to 2; lower is better"),
    "nll": ("NLL", "negative log-likelihood of the label, in nats; lower is better"),
}
AS_NUMBER = {"brier", "nll"}


@dataclass(frozen=True)
class Cell:
    """What stands in one cell.

    Attributes:
        text: the value, or "—".
        below: its interval, or how many seeds it is the mean of.
        reason: number of the footnote that says why there is no value or no interval; 0 for none.
    """

    text: str
    below: str = ""
    reason: int = 0


@dataclass
class MetricsTable:
    """One level's table.

    Attributes:
        columns: (heading, what it means).
        rows: (run, its cells, whether it is a mean over seeds).
        reasons: footnotes.
    """

    columns: list[tuple[str, str]]
    rows: list[tuple[str, list[Cell], bool]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def metrics_table(
    runs: Sequence[Run],
    levels: Sequence[LevelEvaluation | None],
    intervals: Sequence[Mapping[str, Interval] | None],
) -> MetricsTable:
    """Return the table of one level; a run without this level has no row."""
    found = [
        (run, _values(level), by or {}) for run, level, by in zip(runs, levels, intervals, strict=True) if level
    ]
    sets = list(dict.fromkeys(key for _, values, _ in found for key in values if key.startswith("ood ")))
    keys = ["accuracy", "auroc", "confidence", *(sets or ["ood"]), "ue", "ece", "aurc", "brier", "nll"]
    detects = (
        "AUROC of the uncertainty for items known to be out of distribution against items known to be in "
        "distribution; higher is better"
    )
    named = {**NAMES, "ood": ("OOD\u00a0%", detects)}
    table = MetricsTable([named.get(key, (f"OOD {key.removeprefix('ood ')}\u00a0%", detects)) for key in keys])
    nothing = Metric.undefined("no item of this out-of-distribution set")
    for name in dict.fromkeys(run.name for run, _, _ in found):
        of_name = [(run, values, by) for run, values, by in found if run.name == name]
        for run, values, by in of_name:
            cells = [_cell(table, key, values.get(key, nothing), by.get(key)) for key in keys]
            table.rows.append((run.title, cells, False))
        if len(of_name) > 1:
            means = [_mean(table, key, [values.get(key, nothing) for _, values, _ in of_name]) for key in keys]
            table.rows.append((f"{name}, mean ± std of {len(of_name)} seeds", means, True))
    return table


def _values(level: LevelEvaluation) -> dict[str, Metric]:
    values = {**level.metrics, "confidence": level.confidence.auroc}
    if not level.ood:
        values["ood"] = level.metrics["ue"]
    return {**values, **{f"ood {name}": one.auroc for name, one in level.ood.items()}}


def _cell(table: MetricsTable, key: str, metric: Metric, interval: Interval | None) -> Cell:
    if metric.value is None:
        return Cell("—", "", footnote(table, metric.reason))
    if interval is None:
        return Cell(_number(key, metric.value))
    if interval.low is None or interval.high is None:
        return Cell(_number(key, metric.value), "no interval", footnote(table, interval.reason))
    return Cell(_number(key, metric.value), f"{_number(key, interval.low)} – {_number(key, interval.high)}")


def _mean(table: MetricsTable, key: str, metrics: Sequence[Metric]) -> Cell:
    mean = Metric.mean_of(list(metrics))
    if mean.value is None:
        return Cell("—", "", footnote(table, mean.reason))
    spread = float(np.std([metric.value for metric in metrics if metric.value is not None], ddof=1))
    return Cell(_number(key, mean.value), f"± {_number(key, spread)}")


def _number(key: str, value: float) -> str:
    return f"{value:.3f}" if key in AS_NUMBER else f"{100 * value:.1f}"


def footnote(table: MetricsTable, reason: str) -> int:
    """Return the number of the footnote that says ``reason``, added where it is new."""
    if reason not in table.reasons:
        table.reasons.append(reason)
    return table.reasons.index(reason) + 1
