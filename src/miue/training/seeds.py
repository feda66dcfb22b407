"""One recipe trained with several seeds, each run in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from miue.bags.dataset import BagDataset, check_dataset
from miue.common.errors import ConfigError, one_of_two
from miue.common.folder_kinds import kind_of
from miue.common.locks import locked
from miue.common.outputs import refuse_existing, refuse_taken
from miue.common.tasks import Task, run_tasks
from miue.common.values import checked
from miue.model.folder import read_config
from miue.model.recipe import Recipe
from miue.predictions.provenance import TrainingRecord
from miue.training.fit import Run
from miue.training.job import Job, handed_over, read_job
from miue.training.plan import (
    Plan,
    question_negative_class,
    say_parts_used,
    warn_of_large_pixels,
    warn_of_same_bags,
    warn_of_unlabeled,
)
from miue.training.run_folder import RUN, IfExists, changed_to_resume, clear_run
from miue.training.trackers import Tracking, check_trackers
from miue.training.train import train_recipe


@checked()
def train_seeds(
    recipe: Recipe, bags: BagDataset, seeds: Sequence[int], run: Run, *, if_exists: IfExists = "refuse"
) -> list[TrainingRecord]:
    """Train a recipe with several seeds, each as one task, and return how each went.

    Args:
        recipe: what is trained.
        bags: labeled; if they have splits, their train split.
        seeds: different ones; the run of each is ``seed_<number>`` in the folder of ``run``.
        run: where and how they run.
        if_exists: what to do where the folder holds runs; a resume trains what is missing, and finished runs
            on to another max_epochs.

    Raises:
        ConfigError: no folder, no seed or one twice, callbacks or a logger, several devices for each training, a
            run to resume that is another, or an argument of another type.
        DataError, StorageError: as ``train_recipe`` does.
    """
    check_dataset(bags)
    out = run.folder
    if run.processes > 1:
        raise one_of_two(
            "several devices for each training (--devices, --nodes), and several seeds (--seeds)",
            fix="train one seed after another with --seed, each into a folder of its own",
        )
    listed = f"seeds {', '.join(map(str, seeds))}" if seeds else "no seed"
    if out is None or not seeds or len(set(seeds)) < len(seeds) or run.callbacks or run.loggers:
        raise ConfigError(
            item="the seeds",
            wanted="different ones, a folder for their runs, and neither callbacks nor logger",
            got=f"{listed}, folder {out}, {len(run.callbacks + run.loggers)} callbacks",
            fix="train one seed after another where each needs its own callbacks",
        )
    plans = [Plan.of(recipe.with_seed(seed), bags) for seed in seeds]
    for plan in plans:
        plan.check_saveable()
    check_trackers(run.tracking.names, out)
    folders = [out.resolve() / f"seed_{seed}" for seed in seeds]
    descriptions = [plan.description(run.trainer_options) for plan in plans]
    job = Job(bags, recipe, run.accelerator, run.tracking.names, run.trainer_options)
    if run.progress:
        say_parts_used(bags, plans[0])
        question_negative_class(bags, recipe)
    warn_of_large_pixels(plans[0])
    warn_of_same_bags(plans[0], bags)
    warn_of_unlabeled(bags)
    with locked(out):
        if if_exists == "refuse":
            refuse_existing(out, RUN, overwrite=False)
        if if_exists == "overwrite":
            for folder in [*([out] if kind_of(out) else []), *folders]:
                refuse_taken(folder, RUN, overwrite=True)
            for folder in folders:
                clear_run(folder)
        changed = [changed_to_resume(*each) for each in zip(folders, descriptions, strict=True)]
        with handed_over(job, out, run.executor) as path:
            tasks = [
                Task(
                    f"seed {seed}",
                    "miue.training.seeds:train_seed",
                    {"job": path, "folder": str(folder), "seed": seed},
                    folder / "config.json",
                    again=bool(of_run),
                    output=folder,
                )
                for folder, seed, of_run in zip(folders, seeds, changed, strict=True)
            ]
            run_tasks(tasks, run.executor, doing="training", unit="runs", progress=run.progress)
    return [read_config(folder).training for folder in folders]


def train_seed(job: str, folder: str, seed: int) -> None:
    """Train one seed, from its last checkpoint where there is one; a task.

    Args:
        job: where the job was handed over.
        folder: of the run.
        seed: of the training.
    """
    shared = read_job(job)
    run = Run(
        Path(folder),
        progress=False,
        warn=False,
        accelerator=shared.device,
        tracking=Tracking(shared.trackers, root=Path(folder).parent),
        trainer_options=shared.trainer_options,
    )
    train_recipe(shared.recipe.with_seed(seed), shared.bags, run, if_exists="resume")
