"""Running presets: what is trained is not trained again, what is half done is continued."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from miue.common.outputs import locked
from miue.common.tasks import LOCAL, Executor, Task, run_tasks
from miue.evaluation import evaluate
from papers.mirel.paths import Paths
from papers.mirel.preset import Preset, preset
from papers.mirel.results import Result, read_results, results_of, write_results
from papers.mirel.stored_bags import bags_path, resample_test_bags, resamples_path, write_bags, write_resamples
from papers.mirel.stores import make_stores, store_of
from papers.mirel.trained import with_distances

if TYPE_CHECKING:
    from miue.model import Model


def missing(names: Sequence[str], seeds: Sequence[int], paths: Paths) -> list[tuple[str, int]]:
    """Return every preset and seed without whole results."""
    tasks = [(name, seed) for name in names for seed in seeds]
    return [(name, seed) for name, seed in tasks if read_results(paths.result(name, seed), (name, seed)) is None]


def make_bags(names: Sequence[str], paths: Paths, *, progress: bool = False) -> None:
    """Make the bags that presets are trained and evaluated on, where that is not done.

    Raises:
        StorageError, DataError: files that are not in ``paths.source``, or that cannot be used.
    """
    presets = [each for name in names for each in (_trained(preset(name)), preset(name))]
    make_stores({each.data: each.bags for each in presets}, paths, progress=progress)


def run_all(
    tasks: Sequence[tuple[str, int]],
    paths: Paths,
    executor: Executor = LOCAL,
    *,
    device: str = "auto",
    progress: bool = False,
) -> None:
    """Run presets with seeds and write the results of each.

    Args:
        tasks: presets and seeds, without whole results.
        paths: where files are.
        executor: where the tasks run.
        device: "auto", "cpu", "gpu".
        progress: show a bar with the time left.
    """
    make_bags([name for name, _ in tasks], paths, progress=progress)
    here = Paths(*(Path(folder).resolve() for folder in (paths.source, paths.work, paths.results)))
    folders = {"source": str(here.source), "work": str(here.work), "results": str(here.results)}
    runs = []
    for name, seed in tasks:
        arguments = {"name": name, "seed": seed, "device": device, **folders}
        part = here.result(name, seed)
        runs.append(Task(f"{name}, seed {seed}", "papers.mirel.runner:run_task", arguments, part, part.exists()))
    run_tasks(runs, executor, doing="running presets", unit="runs", progress=progress)


def run_task(name: str, seed: int, device: str, source: str, work: str, results: str) -> None:
    """Run one preset with one seed; a task."""
    run_one(name, seed, Paths(Path(source), Path(work), Path(results)), device)


def train_preset(name: str, seeds: Sequence[int], paths: Paths, device: str = "auto") -> list[Model]:
    """Train one preset with several seeds where that is not done."""
    from miue.settings import RunSettings
    from miue.training import Job, Run, train_job

    chosen = _trained(preset(name))
    runs = {seed: paths.run(preset(name).trained_as or name, seed) for seed in seeds}
    with ExitStack() as locks:
        for seed in sorted(seeds):  # presets that take the same trained models wait for each other
            locks.enter_context(locked(runs[seed], wait=True))
        bags = store_of(chosen.data, paths, chosen.bags)
        return [
            train_job(
                Job(chosen.recipe.with_seed(seed), bags),
                Run(runs[seed], RunSettings.of(device=device), progress=False),
                if_exists="resume",
            )
            for seed in seeds
        ]


def run_one(name: str, seed: int, paths: Paths, device: str = "auto") -> list[Result]:
    """Train one preset with one seed where that is not done, predict, evaluate, and write the results."""
    chosen = preset(name)
    trained = _trained(chosen)
    model = train_preset(name, [seed], paths, device)[0]
    bags = store_of(trained.data, paths, trained.bags)
    held_out = bags.split("validation") if "validation" in bags.splits else None
    model = with_distances(
        model, chosen.distances, bags.split("train"), seed=seed, held_out=held_out, device=device
    )
    if held_out is not None and model.error_model is None:  # of an earlier version
        model = model.with_validation(held_out, device=device)
    test = store_of(chosen.data, paths, chosen.bags).split("test")
    path = paths.result(name, seed)
    results: list[Result] = []
    resamples: dict[str, np.ndarray] = {}
    for estimator in chosen.estimators:
        predictions = model.predict(test, estimator=estimator, device=device)
        results.extend(results_of(evaluate(predictions), estimator))
        resamples = resample_test_bags(predictions, estimator) | resamples
        if estimator == chosen.estimators[0]:  # whose bags have the error probability
            write_bags(bags_path(path), predictions.bags)
    write_resamples(resamples_path(path), resamples)
    write_results(path, name, seed, chosen.version, results)
    return results


def _trained(chosen: Preset) -> Preset:
    """Return the preset that is trained: itself, or the one whose models it takes."""
    return preset(chosen.trained_as) if chosen.trained_as else chosen
