"""Results of one preset and seed: a tidy CSV file, whole or absent."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

import miue
from miue.common.errors import StorageError, not_readable
from miue.common.tables import read_rows, write_rows
from miue.evaluation import Evaluation, LevelEvaluation, Metric

COLUMNS = ("preset", "seed", "estimator", "level", "task", "measure", "value")
DEFAULT = "default"  # the measure that the paper uses for the task
END = "end"  # task of the last line: a truncated file lacks it; its value is the version of the method's numbers
MARK = " †"
MARKED = (
    "† trained before the last change of its method's numbers (`papers/mirel/versions.py`), not run again since."
)


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


def write_results(path: Path, preset: str, seed: int, version: int, results: list[Result]) -> None:
    """Write the results to ``path``, atomically, with the versions of the method's numbers and of miue."""
    rows = [(preset, seed, one.estimator, one.level, one.task, one.measure, _text(one.value)) for one in results]
    write_rows(path, COLUMNS, [*rows, (preset, seed, "", "", END, f"miue {miue.__version__}", str(version))])


def older_rows(rows: Mapping[str, tuple[Iterable[Path], int]], *, shown: bool) -> set[str]:
    """Return the rows of a table that are of an earlier version of their method's numbers.

    Args:
        rows: files of each row, and the version that the code comes to now.
        shown: whether the table may show such rows, with ``MARK``.

    Raises:
        StorageError: such rows are not to be shown, or a row has files of several versions.
    """
    older = set()
    for row, (paths, version) in rows.items():
        versions = {path: _last_row(path)[-1] for path in paths if path.exists() and _is_whole(path)}
        if len(set(versions.values())) > 1:
            raise StorageError(
                item=f"row {row!r}",
                wanted="files of one version of its method's numbers",
                got=", ".join(f"{path.name} of version {of}" for path, of in versions.items()),
                fix=f"run again those of an earlier version than {version}",
            )
        if any(of != str(version) for of in versions.values()):
            older.add(row)
    if older and not shown:
        raise StorageError(
            item="the table",
            wanted="rows of the versions that their methods have now",
            got=f"earlier ones of {', '.join(sorted(older))}",
            fix="run these again, or show them with a mark (--older)",
        )
    return older


def read_results(path: Path, run: tuple[str, int] | None = None) -> list[Result] | None:
    """Return the results at ``path``, or None where there are none or the file is not whole, wherever it is cut.

    Args:
        path: of the file.
        run: preset and seed that the results are of; None where only the file's name says so.

    Raises:
        StorageError: a file that is whole but not one of results, or of other runs than one, or of another run.
    """
    if not path.exists() or not _is_whole(path):
        return None
    rows = read_rows(path)
    item, fix = f"results {str(path)!r}", "remove the file and run again"
    try:
        runs = sorted({(row["preset"], int(row["seed"])) for row in rows})
        if len(runs) > 1 or (run is not None and runs != [run]):
            raise StorageError(
                item=item,
                wanted="results of one preset and seed"
                if run is None
                else f"those of {run[0]}, seed {run[1]}, alone",
                got=", ".join(f"{name}, seed {seed}" for name, seed in runs),
                fix=fix,
            )
        results = [
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
        raise not_readable(item, f"columns {', '.join(COLUMNS)}", error, fix) from error
    unknown = next((one for one in results if one.value is not None and not isfinite(one.value)), None)
    if unknown is not None:
        raise StorageError(
            item=item,
            wanted="finite numbers, or empty cells where they are undefined",
            got=f"{unknown.value} for {unknown.task} of {unknown.level}s",
            fix=fix,
        )
    return results


def _is_whole(path: Path) -> bool:
    """Return whether the last line, line break included, is the one that is written last."""
    last = _last_row(path)
    return path.read_bytes().endswith(b"\n") and len(last) == len(COLUMNS) and last[COLUMNS.index("task")] == END


def _last_row(path: Path) -> list[str]:
    text = path.read_bytes().decode(errors="replace")
    return next(csv.reader([text.rstrip("\r\n").rsplit("\n", 1)[-1]]), [])


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
