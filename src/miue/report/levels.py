"""Evaluation of every run at each level, with intervals, and the paired differences between methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.evaluation.bootstrap import owners_of_items, paired_differences, patients_by_bag, resample
from miue.evaluation.class_metrics import mean_confidence, overconfidence
from miue.evaluation.default_measures import detection_score, error_measure
from miue.evaluation.evaluate_level import ResampledLevel, evaluate_level
from miue.evaluation.intervals import Interval, metric_intervals, percentile_intervals
from miue.evaluation.items import Items
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import RECALL, Metric, WeightedMetric
from miue.evaluation.ranking import Ranking
from miue.predictions.patients import by_patient
from miue.predictions.table import PredictionTable
from miue.report.confusion_table import confusion_table
from miue.report.metrics_table import Difference, MetricsTable, metric_values, metrics_table
from miue.report.pairs import PairTable, pair_tables
from miue.report.runs import Run
from miue.report.summaries import LevelSummary

LEVELS = ("bags", "instances")
"""What is predicted, and shown in figures."""
EVALUATED = ("bags", "patients", "instances")
"""What is evaluated: patients as well, whose predictions are made of those of their bags."""
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
class Level:
    """One level of every run; None for a run without it.

    Attributes:
        evaluations: by run.
        summaries: by run, what the figures show.
        intervals: by run, of each metric.
        differences: of every two methods, the later minus the earlier one.
        table: all of it as a table; None where no run has this level.
        pairs: the differences between three methods or more, by metric.
        confusion: labels by predicted classes; None where no run has a label.
    """

    evaluations: list[LevelEvaluation | None]
    summaries: list[dict[str, Any] | None]
    intervals: list[dict[str, Interval] | None]
    differences: list[Difference] = field(default_factory=list)
    table: MetricsTable | None = None
    pairs: list[PairTable] = field(default_factory=list)
    confusion: MetricsTable | None = None


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
    step = track(
        "evaluation and intervals", how.resamples * sum(t is not None for of in tables.values() for t in of)
    )
    owners: dict[str, dict[str, str]] = {"bags": patients, "patients": {}, "instances": patients}
    return {level: _evaluate(runs, classes, tables[level], owners[level], how, step) for level in EVALUATED}


def known_patients(runs: Sequence[Run]) -> dict[str, str]:
    """Return the patient of each bag of which a run knows it."""
    return {bag: patient for run in runs for bag, patient in patients_by_bag(run.predictions.bags).items()}


def _of_patients(bags: PredictionTable, patients: Mapping[str, str]) -> PredictionTable | None:
    """Return one prediction for each patient; None where none has several bags."""
    of_bags = np.array([patients.get(str(bag), "") for bag in bags.bag_ids], object)
    return by_patient(replace(bags, patients=of_bags))


def _evaluate(
    runs: Sequence[Run],
    classes: Sequence[str],
    tables: Sequence[PredictionTable | None],
    patients: Mapping[str, str],
    how: Resampling,
    step: Callable[[int], None],
) -> Level:
    measured = [
        _measure(table, run.predictions.provenance.classes, patients, how, step) if table else None
        for run, table in zip(runs, tables, strict=True)
    ]
    evaluations = [one.evaluation if one else None for one in measured]
    if not any(evaluations):
        return Level(evaluations, [None] * len(runs), [None] * len(runs))
    scores = {
        "confidence": _named(one.confidence_measure for one in evaluations if one),
        "errors": _named(error_measure(table) for table in tables if table),
        "ood": _named(one.ood_measure for one in evaluations if one),
        "detection": _named(detection_score(table) for table in tables if table),
    }
    for published, preferred in (("confidence", "errors"), ("ood", "detection")):
        if scores[published] == scores[preferred]:
            del scores[preferred]
    scores |= {f"{RECALL}{number}": name for number, name in enumerate(classes)}
    values = [
        metric_values(
            one.evaluation,
            one.confidences,
            error_measure(table) if "errors" in scores else None,
            detection_score(table) if "detection" in scores else None,
        )
        if table and one
        else None
        for table, one in zip(tables, measured, strict=True)
    ]
    draws = [one.draws if one else None for one in measured]
    owners = [one.owners if one else 0 for one in measured]
    intervals = [
        metric_intervals(one.resampled, one.draws, owners=one.owners) if one else None for one in measured
    ]
    differences = _differences(runs, values, draws, max(owners))
    table = metrics_table(runs, values, intervals, differences if len(differences) == 1 else (), scores)
    pairs = pair_tables(differences, table.keys, scores)
    summaries = [one.summary if one else None for one in measured]
    confusion = confusion_table(runs, evaluations, classes)
    return Level(evaluations, summaries, intervals, differences, table, pairs, confusion)


@dataclass(frozen=True)
class _Measured:
    """What is computed of one table, from one ranking of each uncertainty."""

    evaluation: LevelEvaluation
    confidences: dict[str, Metric]
    summary: dict[str, Any]
    resampled: dict[str, WeightedMetric]
    draws: dict[str, Float64[np.ndarray, "resamples"]]
    owners: int


def _measure(
    table: PredictionTable,
    classes: Sequence[str],
    patients: Mapping[str, str],
    how: Resampling,
    step: Callable[[int], None],
) -> _Measured:
    items, owners = Items.of(table), owners_of_items(table, patients)
    resampled, summary = ResampledLevel(table, items, owners), LevelSummary(table, items, owners)

    def visit(measure: str, ranking: Ranking, judged: Ranking) -> None:
        resampled.add(measure, ranking, judged)
        summary.add(measure, ranking, judged)

    evaluation = evaluate_level(table, items, visit, classes=classes)
    metrics = resampled.metrics()
    return _Measured(
        evaluation,
        {
            "mean_confidence": mean_confidence(items.results).plain,
            "overconfidence": overconfidence(items.results).plain,
        },
        summary.finish(evaluation),
        metrics,
        resample(metrics, owners, resamples=how.resamples, seed=how.seed, step=step),
        owners.count,
    )


def _named(scores: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(one.replace("_", " ") for one in scores))


def _differences(
    runs: Sequence[Run],
    values: Sequence[Mapping[str, Metric] | None],
    draws: Sequence[Mapping[str, np.ndarray] | None],
    owners: int,
) -> list[Difference]:
    """Return the paired difference of every two methods; a method with several seeds is their mean."""
    rows: dict[str, list[int]] = {}
    for row, run in enumerate(runs):
        if values[row] is not None:
            rows.setdefault(run.name, []).append(row)
    found = []
    for reference, name in combinations(rows, 2):
        drawn = [[draws[row] or {} for row in rows[one]] for one in (name, reference)]
        intervals = percentile_intervals(paired_differences(*drawn), owners=owners)
        both = {}
        for key, interval in intervals.items():
            ours, theirs = (_mean(values, rows[one], key) for one in (name, reference))
            if ours is not None and theirs is not None:
                both[key] = (ours - theirs, interval)
        found.append(Difference(name, reference, both))
    return found


def _mean(values: Sequence[Mapping[str, Metric] | None], rows: Sequence[int], key: str) -> float | None:
    return Metric.mean_of([(values[row] or {}).get(key, Metric.undefined("")) for row in rows]).value
