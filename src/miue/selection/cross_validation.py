"""Folds times seeds: each run is trained and evaluated on its test bags."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from miue.bags import BagDataset, check_dataset, fingerprint
from miue.common.devices import torch_device
from miue.common.errors import StorageError, lacking, out_of_range
from miue.common.files import make_folder, read_json, remove_temporaries, write_json
from miue.common.folder_kinds import CROSS_VALIDATION, FolderKind
from miue.common.outputs import locked, refuse_taken
from miue.common.records import is_sealed, sealed
from miue.common.tables import write_rows
from miue.common.tasks import Shard, Task, run_tasks
from miue.common.values import checked
from miue.evaluation import evaluate
from miue.io import Splits, write_splits
from miue.model import Recipe
from miue.predictions import read_predictions
from miue.selection.summaries import FoldShares, Summaries, Summary, Value, summarize
from miue.settings import RunSettings
from miue.training import (
    Job,
    Run,
    changed_setting,
    changes,
    check_trackers,
    handed_over,
    keep_in_memory,
    question_negative_class,
    read_job,
    train_job,
    warn_of_bags,
)

MARK = CROSS_VALIDATION.shown_by[0]

DEFAULT = Recipe()
REMOVE = "remove the file; the same command evaluates this run again"


@checked()
def cross_validate(
    bags: BagDataset,
    splits: Splits,
    seeds: Sequence[int],
    out: Path | str,
    recipe: Recipe = DEFAULT,
    *,
    settings: RunSettings | Mapping[str, Any] | None = None,
    shard: Shard | None = None,
    progress: bool = True,
) -> Summaries:
    """Train on every fold with every seed, evaluate on its test bags, and return mean, deviation and interval.

    Of a shard after which runs are missing, nothing is summarized.

    Each run is written to ``out/fold_<k>/seed_<s>`` as it ends; what is there is not run again. The folder also
    gets splits.csv, runs.csv (every number) and summary.csv.

    Args:
        bags: labeled.
        splits: folds, each with test bags.
        seeds: one run each for every fold.
        out: folder, new or of the same cross-validation.
        recipe: what is trained.
        settings: where the runs are trained, ``RunSettings`` or its fields by name, such as {"device": "cpu",
            "jobs": 4, "trackers": ("tensorboard",)}; each run is tracked in its own folder.
        shard: the part of the runs to do; the last shard to end writes the tables. None for all runs.
        progress: show a bar with the time left.

    Raises:
        ConfigError: no dataset, no seed or one twice, ``out`` holds another cross-validation, or a tracker that is
            not installed.
        DataError: a fold that cannot be trained or tested on.
        StorageError: another process writes ``out``, or it cannot be written.
    """
    chosen = settings if isinstance(settings, RunSettings) else RunSettings.of(settings)
    run = Run(Path(out), chosen, progress=progress)
    with open_runs(Job(recipe, bags, splits=splits), seeds, run, shard) as runs:
        run_tasks(runs.tasks, run.executor, doing="cross-validating", unit="runs", progress=progress)
        return runs.write_tables()


@dataclass(frozen=True)
class OpenRuns:
    """The runs of a cross-validation while its folder is open.

    Attributes:
        out: the folder.
        every: the fold and the seed of each run.
        tasks: to be run, those of the shard.
        shares: test bags of a fold over its training bags.
    """

    out: Path
    every: tuple[tuple[int, int], ...]
    tasks: Sequence[Task]
    shares: FoldShares

    def write_tables(self) -> Summaries:
        """Write runs.csv and summary.csv where every run is done, and return the summary; else nothing."""
        if not all(_evaluation(self.out, k, seed).exists() for k, seed in self.every):
            return Summaries()
        with locked(self.out, wait=True):
            values = [value for k, seed in self.every for value in values_of_run(self.out, k, seed)]
            return write_tables(self.out, values, self.shares)


@contextmanager
def open_runs(job: Job, seeds: Sequence[int], run: Run, shard: Shard | None = None) -> Iterator[OpenRuns]:
    """Open the folder of a cross-validation for the block, in which its tasks can be run.

    Args:
        job: with its splits.
        seeds: one run each for every fold.
        run: folder, and where the runs are trained.
        shard: the part of the runs to do; None for all.

    Raises:
        ConfigError, DataError, StorageError: as ``cross_validate`` does.
    """
    bags, splits, out = job.bags, job.splits, run.folder
    assert splits is not None
    assert out is not None
    check_dataset(bags)
    if not seeds or len(set(seeds)) < len(seeds):
        raise out_of_range("seeds", "different numbers, such as [1, 2, 3]", list(seeds))
    folds = [splits.assign(bags, fold) for fold in range(len(splits))]
    if not any(fold.split("test").labels.known.any() for fold in folds):
        raise lacking(f"the test bags of {splits.source!r}", "at least one with a label", "label some of them")
    torch_device(run.settings.device)
    check_trackers(run.settings.trackers, out)
    job.fold(0).check()
    keep_in_memory(job, run.settings.memory_share, progress=run.progress)
    if run.progress:
        question_negative_class(bags, job.recipe)
    if run.warn:
        warn_of_bags(job)
    every = tuple((k, seed) for seed in seeds for k in range(len(folds)))
    held = out if shard is None else out / f"shard-{shard.number}-of-{shard.count}"
    description = {"bags": fingerprint(bags), "splits": _digest(folds), "recipe": job.recipe.to_json()}
    with locked(held):
        with locked(out, wait=True):
            open_folder(out, CROSS_VALIDATION, description, begun=_has_runs(out))
            write_splits(out / "splits.csv", splits, bags)
        with handed_over(job, held, run) as path:
            tasks = [_task(path, out.resolve(), k, seed) for k, seed in every]
            try:
                yield OpenRuns(out, every, tasks if shard is None else shard.share(tasks), _shares(folds))
            finally:
                if not (out / MARK).exists() and _has_runs(out):  # removed meanwhile: the same call goes on
                    write_json(out / MARK, description)


def _task(job: str, out: Path, fold: int, seed: int) -> Task:
    arguments = {"job": job, "out": str(out), "fold": fold, "seed": seed}
    function = "miue.selection.cross_validation:run_fold"
    return Task(f"fold {fold}, seed {seed}", function, arguments, _evaluation(out, fold, seed))


def run_fold(job: str, out: str, fold: int, seed: int) -> None:
    """Train, predict and evaluate one fold with one seed; a task.

    Args:
        job: where the job was handed over.
        out: folder of the cross-validation.
        fold: its number, from 0.
        seed: of the training.
    """
    shared, run = read_job(job)
    of_fold, home = shared.fold(fold).with_seed(seed), Path(out)
    folder = folder_of(home, fold, seed)
    remove_temporaries(folder)
    model = train_job(of_fold, replace(run, folder=folder / "run", root=home, warn=False), if_exists="resume")
    test = of_fold.bags.split("test")
    model.stream(test, device=run.settings.device).save(folder / "predictions", overwrite=True)
    predictions = read_predictions(folder / "predictions")
    evaluation = evaluate(predictions, allow_training_bags=True)  # copies of test bags, which were warned of
    rows = [
        {"level": level, "metric": name, "value": metric.value} for level, name, metric in evaluation.metrics()
    ]
    write_json(_evaluation(home, fold, seed), sealed({"fold": fold, "seed": seed, "metrics": rows}))


def folder_of(out: Path, fold: int, seed: int) -> Path:
    """Return the folder of a run: its model is in "run", its predictions are in "predictions"."""
    return out / f"fold_{fold}" / f"seed_{seed}"


def _evaluation(out: Path, fold: int, seed: int) -> Path:
    return folder_of(out, fold, seed) / "metrics.json"


def values_of_run(out: Path, fold: int, seed: int) -> Iterator[Value]:
    """Yield the metrics of a run.

    Raises:
        StorageError: a damaged file, or one of another run.
    """
    path = _evaluation(out, fold, seed)
    content = read_json(path, what="metrics of a run")
    if not is_sealed(content) or (content["fold"], content["seed"]) != (fold, seed):
        wanted, got = f"what was written of fold {fold}, seed {seed}", "another content"
        raise StorageError(item=f"metrics {str(path)!r}", wanted=wanted, got=got, fix=REMOVE)
    for row in content["metrics"]:
        yield Value(fold, seed, row["level"], row["metric"], row["value"])


def open_folder(out: Path, kind: FolderKind, description: dict[str, Any], *, begun: bool = True) -> None:
    """Make a folder, or check that it is one of the same description; one that is not begun is made anew.

    Raises:
        ConfigError: it holds something else, or another description.
    """
    path = out / kind.shown_by[0]
    remove_temporaries(out)
    if path.exists() and begun:
        if changed := changes(read_json(path, what=kind.name), description):
            raise changed_setting(f"{str(out)!r}", changed, "choose another --out")
        return
    if not path.exists():
        refuse_taken(out, kind, overwrite=False)
    make_folder(out)
    write_json(path, description)


def _has_runs(out: Path) -> bool:
    return any(any(out.glob(f"fold_*/seed_*/{file}")) for file in ("run/run.json", "metrics.json"))


def _digest(folds: Sequence[BagDataset]) -> str:
    return hashlib.sha256("\n".join(" ".join(fold.splits) for fold in folds).encode()).hexdigest()[:16]


def _shares(folds: Sequence[BagDataset]) -> FoldShares:
    return FoldShares.of(folds[0].labels.known.tolist(), [fold.splits for fold in folds])


def write_tables(out: Path, values: Sequence[Value], shares: FoldShares) -> Summaries:
    """Write runs.csv and summary.csv of these values into the folder of a cross-validation; return the summary."""
    summaries = summarize(values, shares)
    _write(out / "runs.csv", values)
    _write(out / "summary.csv", summaries)
    return summaries


def _write(path: Path, rows: Sequence[Value] | Sequence[Summary]) -> None:
    write_rows(path, list(asdict(rows[0])), [list(asdict(row).values()) for row in rows])
