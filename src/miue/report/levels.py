"""Evaluation of every run at both levels, with intervals, and the paired differences between methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from miue.evaluation.bootstrap import (
    Interval,
    count_owners,
    paired_differences,
    patients_by_bag,
    percentile_intervals,
    resampled_metrics,
)
from miue.evaluation.evaluate import Items, detection_score, evaluate_level
from miue.evaluation.evaluation import LevelEvaluation
from miue.evaluation.metrics import Metric, mean_confidence, overconfidence
from miue.predictions.table import PredictionTable
from miue.report.metrics_table import Difference, MetricsTable, metric_values, metrics_table
from miue.report.pairs import PairTable, pair_tables
from miue.report.runs import Run

LEVELS = ("bags", "instances")
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
        intervals: by run, of each metric.
        differences: of every two methods, the later minus the earlier one.
        table: all of it as a table; None where no run has this level.
        pairs: the differences between three methods or more, by metric.
    """

    evaluations: list[LevelEvaluation | None]
    intervals: list[dict[str, Interval] | None]
    differences: list[Difference] = field(default_factory=list)
    table: MetricsTable | None = None
    pairs: list[PairTable] = field(default_factory=list)


def evaluate_levels(runs: Sequence[Run], how: Resampling, track: Track) -> dict[str, Level]:
    """Return both levels of the runs, which have the same bags.

    Every run is resampled with the same draws: of the patients that any run knows, else of bags.
    """
    patients: dict[str, str] = {}
    for run in runs:
        patients.update(patients_by_bag(run.predictions.bags))
    tables = {level: [getattr(run.predictions, level) for run in runs] for level in LEVELS}
    step = track(
        "evaluation and intervals", how.resamples * sum(t is not None for of in tables.values() for t in of)
    )
    return {level: _evaluate(runs, of_level, patients, how, step) for level, of_level in tables.items()}


def _evaluate(
    runs: Sequence[Run],
    tables: Sequence[PredictionTable | None],
    patients: Mapping[str, str],
    how: Resampling,
    step: Callable[[int], None],
) -> Level:
    evaluations = [evaluate_level(table) if table else None for table in tables]
    if not any(evaluations):
        return Level(evaluations, [None] * len(runs))
    scores = {
        "ood": _named(one.ood_measure for one in evaluations if one),
        "detection": _named(detection_score(table) for table in tables if table),
    }
    if scores["ood"] == scores["detection"]:
        del scores["detection"]
    values = [
        metric_values(one, _detection(table, scores), _confidences(table)) if table and one else None
        for table, one in zip(tables, evaluations, strict=True)
    ]
    draws = [
        resampled_metrics(table, patients, resamples=how.resamples, seed=how.seed, step=step) if table else None
        for table in tables
    ]
    owners = [count_owners(table, patients) if table else 0 for table in tables]
    intervals = [
        percentile_intervals(drawn, owners=count) if drawn else None
        for drawn, count in zip(draws, owners, strict=True)
    ]
    differences = _differences(runs, values, draws, max(owners))
    table = metrics_table(runs, values, intervals, differences if len(differences) == 1 else (), scores)
    return Level(evaluations, intervals, differences, table, pair_tables(differences, table.keys, scores))


def _detection(table: PredictionTable, scores: Mapping[str, str]) -> str | None:
    return detection_score(table) if "detection" in scores else None


def _confidences(table: PredictionTable) -> dict[str, Metric]:
    results = Items.of(table).results
    return {"mean_confidence": mean_confidence(results).plain, "overconfidence": overconfidence(results).plain}


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
