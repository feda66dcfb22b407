"""Evaluation of every run at each level, with intervals, tables, and the paired differences between methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.evaluation import (
    RECALL,
    Interval,
    Items,
    LevelEvaluation,
    Metric,
    Ranking,
    ResampledLevel,
    detection_score,
    error_measure,
    evaluate_level,
    metric_intervals,
    owners_of_items,
    patients_by_bag,
    resample,
)
from miue.predictions import PredictionTable, by_patient
from miue.report.differences import Difference, find_differences, pair_tables
from miue.report.runs import Run
from miue.report.summaries import LevelSummary
from miue.report.tables import Table, confusion_table, metrics_table

LEVELS = ("bags", "instances")
"""What is predicted, and shown in figures."""
Track = Callable[[str, int], Callable[[int], None]]


@dataclass(frozen=True)
class Resampling:
    """How the intervals of a report are computed.

    Attributes:
        resamples: how often patients or bags are drawn.
        seed: of the draws.
    """

    resamples: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class RunLevel:
    """One level of one run, computed from one ranking of each uncertainty.

    Attributes:
        table: its predictions.
        evaluation: of them.
        values: of the metrics by the names of ``bootstrap_intervals``.
        intervals: of these.
        summary: what the figures show.
        draws: of the metrics in every resample.
        owners: number of patients or bags that were drawn from.
    """

    table: PredictionTable
    evaluation: LevelEvaluation
    values: dict[str, Metric]
    intervals: dict[str, Interval]
    summary: dict[str, Any]
    draws: dict[str, Float64[np.ndarray, "resamples"]] = field(repr=False)
    owners: int


@dataclass(frozen=True)
class Level:
    """One level of all runs.

    Attributes:
        of_runs: None for a run without this level.
        differences: of every two methods, the later minus the earlier one.
        table: all of it as a table; None where no run has this level.
        pairs: the differences between three methods or more, a table for each metric.
        confusion: labels by predicted classes; None where no run has a label.
    """

    of_runs: list[RunLevel | None]
    differences: list[Difference] = field(default_factory=list)
    table: Table | None = None
    pairs: list[Table] = field(default_factory=list)
    confusion: Table | None = None

    @property
    def evaluations(self) -> list[LevelEvaluation | None]:
        """The evaluation of each run."""
        return [None if one is None else one.evaluation for one in self.of_runs]


def evaluate_levels(
    runs: Sequence[Run], classes: Sequence[str], how: Resampling, track: Track
) -> dict[str, Level]:
    """Return each level of the runs, which have the same bags.

    Every run is resampled with the same draws: of the patients that any run knows, else of bags.
    """
    patients = known_patients(runs)
    tables: dict[str, list[PredictionTable | None]] = {
        "bags": [run.predictions.bags for run in runs],
        "patients": [_of_patients(run.predictions.bags, patients) for run in runs],
        "instances": [run.predictions.instances for run in runs],
    }
    count = sum(bool(table) for of_level in tables.values() for table in of_level)
    step = track("evaluation and intervals", how.resamples * count)
    levels = {}
    for name, of_level in tables.items():
        owners = {} if name == "patients" else patients
        measured = [
            _measure(table, run.predictions.provenance.classes, owners, how, step) if table else None
            for run, table in zip(runs, of_level, strict=True)
        ]
        levels[name] = _compare(runs, classes, measured)
    return levels


def known_patients(runs: Sequence[Run]) -> dict[str, str]:
    """Return the patient of each bag of which a run knows it."""
    return {bag: patient for run in runs for bag, patient in patients_by_bag(run.predictions.bags).items()}


def _of_patients(bags: PredictionTable, patients: Mapping[str, str]) -> PredictionTable | None:
    """Return one prediction for each patient; None where none has several bags."""
    of_bags = np.array([patients.get(str(bag), "") for bag in bags.bag_ids], object)
    return by_patient(replace(bags, patients=of_bags))


def _measure(
    table: PredictionTable,
    classes: Sequence[str],
    patients: Mapping[str, str],
    how: Resampling,
    step: Callable[[int], None],
) -> RunLevel:
    items, owners = Items.of(table), owners_of_items(table, patients)
    resampled, summary = ResampledLevel(table, items, owners), LevelSummary(table, items, owners)

    def visit(measure: str, ranking: Ranking, judged: Ranking) -> None:
        resampled.add(measure, ranking, judged)
        summary.add(measure, ranking, judged)

    evaluation = evaluate_level(table, items, visit, classes=classes)
    metrics = resampled.metrics()
    draws = resample(metrics, owners, resamples=how.resamples, seed=how.seed, step=step)
    found = _values(table, evaluation)
    found |= {name: metrics[name].plain for name in ("mean_confidence", "overconfidence") if name in metrics}
    values = {name: metric for name, metric in found.items() if name in metrics or not evaluation.is_numeric}
    intervals = metric_intervals(metrics, draws, owners=owners.count)
    return RunLevel(table, evaluation, values, intervals, summary.finish(evaluation), draws, owners.count)


def _values(table: PredictionTable, level: LevelEvaluation) -> dict[str, Metric]:
    """Return the metrics of one level by the names that ``bootstrap_intervals`` gives them."""
    found = {**level.metrics, "confidence": level.confidence.auroc}
    found |= {f"{RECALL}{number}": metric for number, metric in level.recall_by_class.items()}
    found["errors"] = level.by_measure[error_measure(table)].confidence.auroc
    if not level.ood and "ue" in level.metrics:
        found["ood"] = level.metrics["ue"]
    for name, one in level.ood.items():
        found[f"ood {name}"] = one.auroc
        found[f"detection {name}"] = level.by_measure[detection_score(table)].ood[name].auroc
    return found


def _compare(runs: Sequence[Run], classes: Sequence[str], measured: list[RunLevel | None]) -> Level:
    found = [(run, one) for run, one in zip(runs, measured, strict=True) if one]
    if not found:
        return Level(measured)
    names = {
        "confidence": _named(one.evaluation.confidence_measure for _, one in found),
        "errors": _named(error_measure(one.table) for _, one in found),
        "ood": _named(one.evaluation.ood_measure for _, one in found),
        "detection": _named(detection_score(one.table) for _, one in found),
    }
    for published, preferred in (("confidence", "errors"), ("ood", "detection")):
        if names[published] == names[preferred]:
            del names[preferred]
    names |= {f"{RECALL}{number}": name for number, name in enumerate(classes)}
    owners = max(one.owners for _, one in found)
    differences = find_differences([(run, one.values, one.draws) for run, one in found], owners)
    table = metrics_table([(run, one.values, one.intervals) for run, one in found], names)
    if len(differences) == 1:
        [only] = differences
        cells = [table.difference(column, only.values.get(column.key)) for column in table.columns]
        table.rows.append((f"{only.method} − {only.reference}", cells, "difference"))
    confusion = confusion_table([(run, one.evaluation) for run, one in found], classes)
    return Level(measured, differences, table, pair_tables(differences, table.columns), confusion)


def _named(scores: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(one.replace("_", " ") for one in scores))
