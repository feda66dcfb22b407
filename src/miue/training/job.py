"""What the tasks of one command share: bags and a recipe, which any process can read."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from miue.bags.dataset import BagDataset
from miue.common.files import make_folder
from miue.common.nested import write_nested
from miue.common.tasks import Executor
from miue.io.handover import describe_bags, find_bags_again, read_handed_over
from miue.io.splits.splits import Splits
from miue.model.recipe import Recipe

FILE = "job.safetensors"
_of_this_process: dict[str, Job] = {}


@dataclass(frozen=True)
class Job:
    """What the tasks of one command share.

    Attributes:
        bags: labeled.
        recipe: what is trained.
        device: to train on.
        trackers: names of those that log each epoch.
        trainer_options: of ``TRAINER_OPTIONS``.
        validation: bags for early stopping, where they are not in ``bags``.
        splits: folds, where there are several.
    """

    bags: BagDataset
    recipe: Recipe
    device: str = "auto"
    trackers: tuple[str, ...] = ()
    trainer_options: Mapping[str, Any] = field(default_factory=dict)
    validation: BagDataset | None = None
    splits: Splits | None = None


@contextmanager
def handed_over(job: Job, output: Path, executor: Executor) -> Iterator[str]:
    """Yield the path by which tasks read the job while the block runs.

    Other processes read it from a folder beside the output, which also gets instances that are in memory alone;
    this process takes it as it is. No path is yielded twice: a worker that outlives the command, as those of a
    Ray cluster that the caller has joined, keeps what it read from one.

    Args:
        job: what is shared.
        output: file or folder that the tasks write, whose lock the caller holds.
        executor: where the tasks run.

    Raises:
        ConfigError: a part that other processes cannot build.
        StorageError: the folder cannot be written.
    """
    every = output.parent.resolve() / f".{output.name}.job"
    folder = every / secrets.token_hex(4)
    try:
        if executor.is_local:
            _of_this_process[str(folder)] = job
        else:
            job.recipe.check_importable(f"executor {executor.kind!r}")
            shutil.rmtree(every, ignore_errors=True)  # of a process that was killed
            _write(folder, job)
        yield str(folder)
    finally:
        _of_this_process.pop(str(folder), None)
        shutil.rmtree(every, ignore_errors=True)


def read_job(path: str) -> Job:
    """Return the job that was handed over at ``path``.

    Raises:
        StorageError: its files, or those of its bags, are not there.
    """
    if path in _of_this_process:
        return _of_this_process[path]
    return _read(path)


def _write(folder: Path, job: Job) -> None:
    make_folder(folder)
    splits = job.splits
    content = {
        "bags": describe_bags(job.bags, folder / "bags.npy"),
        "recipe": job.recipe.to_json(),
        "device": job.device,
        "trackers": job.trackers,
        "trainer_options": dict(job.trainer_options),
        "validation": None if job.validation is None else describe_bags(job.validation, folder / "validation.npy"),
        "splits": splits and (splits.source, [dict(fold) for fold in splits.folds], splits.of_patients),
    }
    write_nested(folder / FILE, content)


@lru_cache(1)
def _read(path: str) -> Job:
    content = read_handed_over(Path(path) / FILE)
    validation, splits = content.pop("validation"), content.pop("splits")
    return Job(
        **{
            **content,
            "bags": find_bags_again(content["bags"]),
            "recipe": Recipe(**content["recipe"]),
            "validation": None if validation is None else find_bags_again(validation),
            "splits": None if splits is None else Splits(splits[0], tuple(splits[1]), splits[2]),
        }
    )
