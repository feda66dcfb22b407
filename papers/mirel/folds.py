"""Folds of a cross-validation as tasks, each of which writes one file of results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from miue.common.tasks import Executor, Task, run_tasks
from miue.common.text import say
from miue.evaluation import LevelEvaluation
from miue.evaluation.level import evaluate_level
from miue.predictions import PredictionTable
from papers.mirel.results import read_results
from papers.mirel.stored_bags import bags_path, read_bags, write_bags


@dataclass(frozen=True)
class CrossValidationFold(ABC):
    """One method on one fold; its fields say which.

    Attributes:
        function: import path of what trains and evaluates it, given these fields, source, results and device.
    """

    function: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in messages."""

    @abstractmethod
    def path(self, results: Path) -> Path:
        """Return the file of its results."""

    @property
    @abstractmethod
    def run(self) -> tuple[str, int]:
        """Preset and seed in the file of its results."""

    def task(self, source: Path, results: Path, device: str) -> Task:
        """Return what trains and evaluates it."""
        arguments = {
            "fold": list(astuple(self)),
            "source": str(source.resolve()),
            "results": str(results.resolve()),
            "device": device,
        }
        part = self.path(results.resolve())
        return Task(self.name, self.function, arguments, part, again=part.exists())


def write_test_bags(fold: CrossValidationFold, bags: PredictionTable, results: Path) -> None:
    """Write the predictions of a fold's own test bags, which are pooled with those of the other folds."""
    write_bags(bags_path(fold.path(results)), bags.subset(np.flatnonzero(bags.judged)))


def evaluate_pooled(folds: Sequence[CrossValidationFold], results: Path) -> LevelEvaluation | None:
    """Return the evaluation of the test bags of all folds together; None where those of one are not kept."""
    paths = [bags_path(fold.path(results)) for fold in folds]
    if not all(path.exists() for path in paths):
        return None
    return evaluate_level(PredictionTable.concatenate([read_bags(path) for path in paths]))


F = TypeVar("F", bound=CrossValidationFold)


def missing(folds: Sequence[F], results: Path) -> list[F]:
    """Return the folds without whole results."""
    return [fold for fold in folds if read_results(fold.path(results), fold.run) is None]


def run_missing(
    folds: Sequence[CrossValidationFold], source: Path, results: Path, device: str, executor: Executor
) -> None:
    """Train and evaluate the folds without whole results, and say how many there are."""
    left = missing(folds, results)
    say(f"{len(left)} folds to do, {len(folds) - len(left)} done before")
    tasks = [fold.task(source, results, device) for fold in left]
    run_tasks(tasks, executor, doing="training on folds", unit="folds", progress=True)
