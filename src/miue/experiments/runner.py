"""Running presets: what is trained is not trained again, what is half done is continued."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from miue.bags import BagDataset
from miue.distances import DISTANCES
from miue.errors import ConfigError
from miue.evaluation import evaluate
from miue.experiments.preset import preset
from miue.experiments.results import Result, read_results, results_of, write_results

if TYPE_CHECKING:
    from miue.model import Model

SEEDS = (42, 17, 26, 50, 82)


@dataclass(frozen=True)
class Places:
    """Where an experiment finds and leaves its files.

    Attributes:
        source: folder with the image files.
        work: folder for stores and trained models.
        results: folder for results, <preset>/<seed>.csv.
    """

    source: Path
    work: Path
    results: Path

    def result(self, name: str, seed: int) -> Path:
        """Return the file of one preset and seed."""
        return self.results / name / f"{seed}.csv"


def missing(names: Sequence[str], seeds: Sequence[int], places: Places) -> list[tuple[str, int]]:
    """Return every preset and seed without whole results."""
    tasks = [(name, seed) for name in names for seed in seeds]
    return [(name, seed) for name, seed in tasks if read_results(places.result(name, seed)) is None]


def run_all(
    tasks: Sequence[tuple[str, int]], places: Places, *, jobs: int = 1, device: str = "auto"
) -> Iterator[tuple[str, int]]:
    """Run every task and yield it when it is done; the order is that of completion.

    Args:
        tasks: presets and seeds.
        places: where files are.
        jobs: processes side by side; the cores are divided among them.
        device: "auto", "cpu", "gpu".

    Raises:
        ConfigError: less than one job.
    """
    if jobs < 1:
        raise ConfigError(item="--jobs", wanted="at least 1", got=str(jobs), fix="raise it")
    for data in dict.fromkeys(preset(name).data for name, _ in tasks):
        store_of(data, places)
    if jobs == 1:
        for name in dict.fromkeys(name for name, _ in tasks):
            seeds = [seed for one, seed in tasks if one == name]
            train_preset(name, seeds, places, device)
            for seed in seeds:
                run_one(name, seed, places, device)
                yield name, seed
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), _use_threads, (threads,)) as pool:
        futures = {pool.submit(run_one, name, seed, places, device): (name, seed) for name, seed in tasks}
        for future in as_completed(futures):
            future.result()
            yield futures[future]


def train_preset(name: str, seeds: Sequence[int], places: Places, device: str = "auto") -> list[Model]:
    """Train one preset with several seeds where that is not done, together where that is faster."""
    from miue.api import train_seeds

    chosen = preset(name)
    return train_seeds(
        store_of(chosen.data, places),
        seeds,
        network=chosen.network,
        method=chosen.method,
        encoder=chosen.encoder,
        options=chosen.options,
        distances=(),
        settings=chosen.settings,
        out=places.work / "runs" / name,
        if_exists="resume",
        progress=False,
        device=device,
    )


def run_one(name: str, seed: int, places: Places, device: str = "auto") -> list[Result]:
    """Train one preset with one seed where that is not done, predict, evaluate, and write the results."""
    from miue.distance_scores import fit_distances

    chosen = preset(name)
    bags = store_of(chosen.data, places)
    model = train_preset(name, [seed], places, device)[0]
    fitted = fit_distances(model.method, bags.split("train"), list(DISTANCES), seed=seed)
    model = replace(model, distances=fitted)
    test = bags.split("test")
    results: list[Result] = []
    for estimator in chosen.estimators:
        predictions = model.predict(test, estimator=estimator, device="cuda" if device == "gpu" else device)
        results.extend(results_of(evaluate(predictions), estimator))
    write_results(places.result(name, seed), name, seed, results)
    return results


def store_of(data: str, places: Places) -> BagDataset:
    """Return the bags of an experiment, made on first use.

    Raises:
        StorageError: the image files are not in ``places.source``.
    """
    from miue.data.store import read_store, write_store

    path = places.work / "stores" / data
    if not (path / "store.json").exists():
        if data == "mnist-bags":
            from miue.data import mnist_bags as mnist

            bags = mnist.mnist_bags(places.source, ood=mnist.OOD_SOURCES)
        elif data == "cifar10-bags":
            from miue.data import cifar10_bags as cifar10

            bags = cifar10.cifar10_bags(places.source, ood=cifar10.OOD_SOURCES)
        else:
            from miue.data.gaussian_bags import gaussian_bags

            bags = gaussian_bags()
        write_store(path, bags, made_by={"experiment": data}, overwrite=True)
    return read_store(path)


def _use_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)
