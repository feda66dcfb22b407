"""Cross-validation on nuclei-bags as a page: bags beside what was published, instances, and shifts by measure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from miue.evaluation import LevelEvaluation, Metric
from miue.pathology.stain_shifts import ALL_SHIFTS
from papers.mirel.folds import evaluate_pooled
from papers.mirel.nuclei.experiment import FOLDS, METHOD_SETUPS, Fold, version_of_setup
from papers.mirel.nuclei.shift_detection import (
    CALIBRATION_BAGS,
    FALSE_ALARMS,
    TEST_BAGS,
    UNSHIFTED,
    detections_path,
    read_detections,
)
from papers.mirel.nuclei.shifts import NUCLEI_SHIFTS
from papers.mirel.results import DEFAULT, MARK, MARKED, Result, mean_and_std, metric_of, older_rows, read_results

COMMAND = "python -m papers.mirel nuclei"
PUBLISHED = (
    ("attention pooling, published", "0.900 ± 0.009", "0.959 ± 0.008"),
    ("best of those published", "0.927", "0.983"),
)
"""Accuracy and AUC in PMC10072016, Table 6: 100 images of CRCHistoPhenotypes, not these 98 bags."""

POOLED: dict[str, Callable[[LevelEvaluation], Metric]] = {
    "Conf.": lambda pooled: pooled.confidence.auroc,
    "ECE": lambda pooled: pooled.metrics["ece"],
    "AURC": lambda pooled: pooled.metrics["aurc"],
}
"""What is computed of the bags of all folds together."""

DISTANCES = {
    "bag": ("knn_mean", "statistics_mean", "combined_mean"),
    "instance": ("knn", "statistics", "combined"),
}
MEASURES = ("inverse_max_alpha", "least_confidence", "entropy", "mutual_information", "vacuity")
Folds = dict[str, dict[int, list[list[Result]]]]
"""Results of each method, repetition and fold."""


def nuclei_page(results: Path, seeds: Sequence[int], *, older: bool = False) -> str:
    """Return the page as Markdown: a number is the mean over the folds of a repetition, then mean ± standard
    deviation over repetitions; repetitions that lack a fold are left out and counted.

    Args:
        results: the folder.
        seeds: of the repetitions.
        older: show methods that were run with an earlier version of them, with a mark.

    Raises:
        StorageError: a file of results that is not one, or rows as ``older_rows`` refuses them.
    """
    folds = {method: _whole_repetitions(results, method, seeds) for method in METHOD_SETUPS}
    files = {
        method: (
            [fold.path(results) for seed in of for fold in _repetition(method, seed)],
            version_of_setup(method),
        )
        for method, of in folds.items()
    }
    marked = older_rows(files, shown=older)
    parts = (
        _heading(results, seeds, marked),
        _bags(folds, results, marked),
        _instances(folds),
        _shifts(folds),
        _shift_detections(results, seeds),
    )
    return "\n".join(line for part in parts for line in part)


def _heading(results: Path, seeds: Sequence[int], marked: Collection[str]) -> list[str]:
    done = {
        method: [sum(Fold(method, seed, fold).path(results).exists() for fold in range(FOLDS)) for seed in seeds]
        for method in METHOD_SETUPS
    }
    folds = "; ".join(f"{METHOD_SETUPS[m].title} {' '.join(map(str, counts))}" for m, counts in done.items())
    return [
        "# Nuclei-bags",
        "",
        f"98 bags in {FOLDS} folds; a repetition is a seed. How it is run and what the data are: overview.md.",
        "A number is the mean over folds, then mean ± standard deviation over whole repetitions; Conf., ECE and",
        "AURC of bags are of the test bags of all folds together, as the ten of one fold are too few for them.",
        *(["", MARKED] if marked else []),
        "",
        f"`{COMMAND} run`, `{COMMAND} table{' --older' if marked else ''} --out results/nuclei/README.md`",
        "",
        f"Folds done with seeds {', '.join(map(str, seeds))}: {folds}.",
        "",
    ]


def _whole_repetitions(results: Path, method: str, seeds: Sequence[int]) -> dict[int, list[list[Result]]]:
    whole = {}
    for seed in seeds:
        read = [
            of_fold
            for fold in _repetition(method, seed)
            if (of_fold := read_results(fold.path(results), fold.run)) is not None
        ]
        if len(read) == FOLDS:
            whole[seed] = read
    return whole


def _repetition(method: str, seed: int) -> list[Fold]:
    return [Fold(method, seed, number) for number in range(FOLDS)]


def _run(folds: Folds) -> Folds:
    return {method: repetitions for method, repetitions in folds.items() if repetitions}


def _bags(folds: Folds, results: Path, marked: Collection[str]) -> list[str]:
    tasks = {"accuracy": "accuracy", "AUC": "auroc", "NLL": "nll"}
    columns = [*tasks, *POOLED]
    lines = ["## Bags", "", f"| | repetitions | {' | '.join(columns)} |"]
    lines.append("| --- |" + " ---: |" * (1 + len(columns)))
    for title, accuracy, area in PUBLISHED:
        lines.append(f"| {title} | | {accuracy} | {area} |" + " |" * len(columns[2:]))
    for method, repetitions in folds.items():
        estimator = METHOD_SETUPS[method].estimators[0]
        cells = [_cell(repetitions, estimator, "bag", task) for task in tasks.values()]
        pooled = [evaluate_pooled(_repetition(method, seed), results) for seed in repetitions]
        for of in POOLED.values():
            values = [value for one in pooled if one is not None and (value := of(one).value) is not None]
            cells.append(mean_and_std(values) if len(values) == len(repetitions) else "—")
        title = METHOD_SETUPS[method].title + (MARK if method in marked else "")
        lines.append(f"| {title} | {len(repetitions)} | {' | '.join(cells)} |")
    lines += ["", "—: the predictions of the test bags of these folds were not kept."]
    note = "Published: PMC10072016, Table 6, on 100 images of the same source, cut otherwise: near, not the same."
    return [*lines, "", note, ""]


def _instances(folds: Folds) -> list[str]:
    tasks = {"AUROC of the class": "auroc", "accuracy": "accuracy", "Conf.": "conf"}
    lines = ["## Instances", "", f"| | from | {' | '.join(tasks)} |", "| --- | --- |" + " ---: |" * len(tasks)]
    for method, repetitions in _run(folds).items():
        for estimator in METHOD_SETUPS[method].estimators:
            cells = [_cell(repetitions, estimator, "instance", task) for task in tasks.values()]
            lines.append(f"| {METHOD_SETUPS[method].title} | {estimator} | {' | '.join(cells)} |")
    return [*lines, ""]


def _shifts(folds: Folds) -> list[str]:
    lines: list[str] = []
    for level, distances in DISTANCES.items():
        lines += [f"## Shifted copies against the originals, {level}s: AUROC by score", ""]
        lines += [f"| | score | repetitions | {' | '.join(ALL_SHIFTS)} |"]
        lines += ["| --- | --- |" + " ---: |" * (1 + len(ALL_SHIFTS))]
        for method, repetitions in _run(folds).items():
            estimator = METHOD_SETUPS[method].estimators[0]
            for score in (DEFAULT, *MEASURES, *distances):
                shown = "the paper's" if score == DEFAULT else score
                tasks = [f"ood {shift}" for shift in ALL_SHIFTS]
                count = max(len(_means(repetitions, estimator, level, task, score)) for task in tasks)
                if count:
                    cells = [_cell(repetitions, estimator, level, task, score) for task in tasks]
                    lines.append(f"| {METHOD_SETUPS[method].title} | {shown} | {count} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _shift_detections(results: Path, seeds: Sequence[int]) -> list[str]:
    """Return how often calibrated models detect a shift: bags flagged one by one, and all bags together."""
    found = {
        method: [run for seed in seeds if (run := read_detections(detections_path(results, method, seed)))]
        for method in METHOD_SETUPS
    }
    runs = {method: detections for method, detections in found.items() if detections}
    lines = [
        "## Shifts detected by a calibrated model",
        "",
        f"{TEST_BAGS} test bags, {CALIBRATION_BAGS} to calibrate, at most {FALSE_ALARMS:g} false alarms.",
        "In each cell: share of the bags flagged as out of distribution; in how many runs all together were",
        f"unlike the calibration bags. `{COMMAND} detect-shifts`",
        "",
        f"| | {' | '.join(f'{METHOD_SETUPS[method].title}, {len(of)} runs' for method, of in runs.items())} |",
        "| --- |" + " ---: |" * len(runs),
    ]
    for shift in (UNSHIFTED, *NUCLEI_SHIFTS):
        cells = []
        for detections in runs.values():
            of_shift = [one for run in detections for one in run if one.shift == shift]
            share = np.mean([one.flagged_share for one in of_shift])
            cells.append(f"{share:.3f}; {sum(one.detected for one in of_shift)}")
        lines.append(f"| {shift} | {' | '.join(cells)} |")
    return [*lines, ""] if runs else []


def _means(
    repetitions: dict[int, list[list[Result]]], estimator: str, level: str, task: str, measure: str = DEFAULT
) -> list[float]:
    """Return the mean over folds of each repetition; a fold in which the metric is undefined is left out."""
    means = []
    for folds in repetitions.values():
        metrics = [metric_of(fold, estimator, level, task, measure).value for fold in folds]
        defined = [value for value in metrics if value is not None]
        if defined:
            means.append(float(np.mean(defined)))
    return means


def _cell(
    repetitions: dict[int, list[list[Result]]], estimator: str, level: str, task: str, measure: str = DEFAULT
) -> str:
    """Return mean ± standard deviation over repetitions."""
    return mean_and_std(_means(repetitions, estimator, level, task, measure))
