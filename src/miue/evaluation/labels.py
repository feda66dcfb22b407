"""Evaluations of several labels side by side, and the means over the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from miue.common.text import PrintsAsTable, ResultTable
from miue.evaluation.class_metrics import METRICS, units
from miue.evaluation.evaluation import Evaluation, as_frame, as_plain
from miue.evaluation.metrics import Metric
from miue.evaluation.tables import decisions_by_group, metric_cell, numbered

MEAN = "mean"
OF_LABELS = "With and without: items whose label is known. The mean is over labels (macro average)."
COLUMNS = {
    "accuracy": METRICS["accuracy"].title,
    "balanced_accuracy": METRICS["balanced_accuracy"].title,
    "auroc": "AUROC",
    "recall_no": "spec.",
    "recall_yes": "sens.",
    "ece": METRICS["ece"].title,
    "brier": METRICS["brier"].title,
    "nll": METRICS["nll"].title,
    "confidence_auroc": "Conf., AUROC",
}
"""What is shown of each label, by the name of the metric."""


@dataclass(frozen=True, repr=False)
class LabelEvaluations(PrintsAsTable):
    """Evaluations of several labels, each of which is predicted by itself.

    Attributes:
        labels: the evaluation of each, by its name.
    """

    labels: Mapping[str, Evaluation]

    def means(self) -> dict[str, dict[str, Metric]]:
        """Return the mean over labels of each metric (macro average), by level and name.

        A metric that is undefined for one of the labels has no mean, and the reason names the label.
        """
        every: dict[str, dict[str, list[Metric]]] = {}
        for label, one in self.labels.items():
            for level, name, metric in one.metrics():
                why = f"label {label!r}: {metric.reason}"
                named = metric if metric.value is not None else Metric.undefined(why)
                every.setdefault(level, {}).setdefault(name, []).append(named)
        return {
            level: {
                name: Metric.mean_of(found) for name, found in metrics.items() if len(found) == len(self.labels)
            }
            for level, metrics in every.items()
        }

    def tables(self) -> Iterator[ResultTable]:
        """Return tables with a row for each label, of each level and of decisions, and others of each label."""
        means = self.means()
        labeled = {name: any(one.levels()[name].labeled for one in self.labels.values()) for name in means}
        nothing = [name for name, some in labeled.items() if not some]
        for level in [name for name in means if labeled[name]] or nothing[:1]:
            shown, reasons = [name for name in COLUMNS if name in means[level]], list[str]()
            rows = [self._row(label, level, shown, reasons) for label in self.labels]
            rows.append((MEAN, "", "", *(_cell(name, means[level][name], reasons) for name in shown)))
            without = f" No label of {' or '.join(nothing)} is known." if nothing else ""
            heading = (level, "with", "without", *(COLUMNS[name] for name in shown))
            yield ResultTable(heading, tuple(rows), (units(), OF_LABELS + without, *numbered(reasons)))
        decided = {label: one.decisions for label, one in self.labels.items() if one.decisions is not None}
        if decided:
            yield decisions_by_group(decided, "label")
        for label, one in self.labels.items():
            for table in one.further_tables():
                yield replace(table, heading=(f"{label}: {table.heading[0]}", *table.heading[1:]))

    def _row(self, label: str, level: str, shown: Sequence[str], reasons: list[str]) -> tuple[str, ...]:
        found = {name: metric for where, name, metric in self.labels[label].metrics() if where == level}
        no, yes = map(sum, self.labels[label].levels()[level].confusion)
        return (label, f"{yes:,}", f"{no:,}", *(_cell(name, found[name], reasons) for name in shown))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with label ("mean" for that of all), level, metric, value and reason.

        Raises:
            ConfigError: pandas is not installed.
        """
        every = {label: list(one.metrics()) for label, one in self.labels.items()}
        every[MEAN] = [(level, name, one) for level, found in self.means().items() for name, one in found.items()]
        rows = [
            {"label": label, "level": level, "metric": name, **asdict(one)}
            for label, found in every.items()
            for level, name, one in found
        ]
        return as_frame(rows, "label", "level", "metric")

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; an undefined metric is null with its reason beside it."""
        means = {
            level: {name: asdict(one) for name, one in found.items()} for level, found in self.means().items()
        }
        return {"labels": {label: one.to_json() for label, one in self.labels.items()}, MEAN: as_plain(means)}


def _cell(name: str, metric: Metric, reasons: list[str]) -> str:
    in_percent = name not in METRICS or METRICS[name].is_share
    return metric_cell(metric, in_percent, reasons, decimals=1)
