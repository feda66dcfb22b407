"""Results of one preset and seed: a tidy CSV file, whole or absent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from miue.common.errors import not_readable
from miue.common.tables import read_rows, write_rows
from miue.evaluation import Evaluation, LevelEvaluation, Metric

COLUMNS = ("preset", "seed", "estimator", "level", "task", "measure", "value")
DEFAULT = "default"  # the measure that the paper uses for the task
END = "end"  # task of the last line, so that a truncated file is known


@dataclass(frozen=True)
class Result:
    """One number: an AUROC, an accuracy or another metric, as a share.

    Attributes:
        estimator: what instances were predicted from.
        level: "bag" or "instance".
        task: "accuracy", "conf", "ood fmnist", "ue", "ece", "brier", "nll", "aurc".
        measure: the uncertainty behind it, or "default".
        value: None where it is undefined.
    """

    estimator: str
    level: str
    task: str
    measure: str
    value: float | None


def results_of(evaluation: Evaluation, estimator: str) -> Iterator[Result]:
    """Yield every number of an evaluation."""
    levels: list[tuple[str, LevelEvaluation | None]] = [
        ("bag", evaluation.bags),
        ("instance", evaluation.instances),
    ]
    for name, level in levels:
        if level is None:
            continue
        for task, metric in level.metrics.items():
            yield Result(estimator, name, task, DEFAULT, metric.value)
        yield Result(estimator, name, "conf", DEFAULT, level.confidence.auroc.value)
        for ood_set, separation in level.ood.items():
            yield Result(estimator, name, f"ood {ood_set}", DEFAULT, separation.auroc.value)
        for measure, separations in level.by_measure.items():
            yield Result(estimator, name, "conf", measure, separations.confidence.auroc.value)
            for ood_set, separation in separations.ood.items():
                yield Result(estimator, name, f"ood {ood_set}", measure, separation.auroc.value)


def write_results(path: Path, preset: str, seed: int, results: list[Result]) -> None:
    """Write the results to ``path``, atomically."""
    rows = [(preset, seed, one.estimator, one.level, one.task, one.measure, _text(one.value)) for one in results]
    write_rows(path, COLUMNS, [*rows, (preset, seed, "", "", END, "", "")])


def read_results(path: Path) -> list[Result] | None:
    """Return the results at ``path``, or None where there are none or the file is not whole.

    Raises:
        StorageError: a file that is whole but not one of results.
    """
    if not path.exists():
        return None
    rows = read_rows(path)
    if rows[-1].get("task") != END:
        return None
    try:
        return [
            Result(
                row["estimator"],
                row["level"],
                row["task"],
                row["measure"],
                float(row["value"]) if row["value"] else None,
            )
            for row in rows[:-1]
        ]
    except (KeyError, ValueError) as error:
        raise not_readable(
            f"results {str(path)!r}", f"columns {', '.join(COLUMNS)}", error, "remove the file and run again"
        ) from error


def metric_of(results: list[Result], estimator: str, level: str, task: str, measure: str = DEFAULT) -> Metric:
    """Return one number; a task that ends in "*" stands for the one task that begins so."""
    for result in results:
        matches = result.task.startswith(task[:-1]) if task.endswith("*") else result.task == task
        if matches and (result.estimator, result.level, result.measure) == (estimator, level, measure):
            if result.value is None:
                return Metric.undefined("undefined for this seed")
            return Metric(result.value)
    return Metric.undefined("not run")


def mean_and_std(values: Sequence[float], digits: int = 3) -> str:
    """Return mean ± standard deviation, of one value itself, of none "—".

    >>> mean_and_std([0.25, 0.75]), mean_and_std([0.25]), mean_and_std([])
    ('0.500 ± 0.354', '0.250', '—')
    """
    if not values:
        return "—"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
