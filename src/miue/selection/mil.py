"""Does a network with its method respect the MIL assumption? It is trained and tested on generated bags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from miue.common.errors import out_of_range, unknown_name
from miue.common.files import read_json, write_json
from miue.common.seeds import derive_seed
from miue.common.tasks import Task, run_tasks
from miue.common.text import PrintsAsTable, ResultTable
from miue.common.values import checked
from miue.evaluation import LEVEL, Auc
from miue.model import PartLike, Recipe, find_part
from miue.selection.mil_bags import MIL_TESTS, MILTest
from miue.settings import TrainSettings
from miue.training import Job, Run, handed_over, read_job, train_job

SETTINGS = {"max_epochs": 30, "learning_rate": 1e-3, "bags_per_update": 8, "lr_patience": 5, "stop_patience": 10}
TRAIN, VALIDATION, TEST, SHIFTED = range(4)
FEWEST_TEST_BAGS = 20  # of 8, not even an AUC of 1 has an interval above 0.5
NOTE = (
    f"AUC of bags with a {100 * LEVEL:.0f} % interval over test bags; of several seeds the mean and the "
    "widest ends. A test passes where the interval of shifted bags is above 0.5 and fails where it is below."
)


@dataclass(frozen=True)
class MILTestResult:
    """What one test of the MIL assumption gave.

    Attributes:
        test: name of the test.
        shift: what is different in the shifted test bags.
        as_trained: of test bags drawn as those to train on.
        shifted: of test bags in which the easy rule is wrong.
    """

    test: str
    shift: str
    as_trained: Auc
    shifted: Auc

    @property
    def verdict(self) -> str:
        """Whether shifted bags are ranked better than by chance: "passes", "fails" or "undecided"."""
        if self.shifted.low > 0.5:
            return "passes"
        return "fails" if self.shifted.high < 0.5 else "undecided"


@dataclass(frozen=True, repr=False)
class MILCheck(PrintsAsTable):
    """The tests of the MIL assumption of a network with a method; prints as a table.

    Attributes:
        network: name of the network.
        method: name of the method.
        train_bags: bags of each training.
        seeds: of the trainings and their bags.
        results: of each test.
    """

    network: str
    method: str
    train_bags: int
    seeds: tuple[int, ...]
    results: tuple[MILTestResult, ...]

    @property
    def passes(self) -> bool:
        """Whether every test passes."""
        return all(result.verdict == "passes" for result in self.results)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        who = f"Network {self.network!r} with method {self.method!r}"
        if self.passes:
            return f"{who} passes every test of the MIL assumption that was run: {self._tests('passes')}."
        parts = [f"{verdict} {names}" for verdict in ("passes", "fails") if (names := self._tests(verdict))]
        if undecided := self._tests("undecided"):
            parts.append(f"is not clearly better or worse than chance in {undecided}")
        joined = ", ".join(parts[:-1]) + (" and " if parts[1:] else "") + parts[-1]
        unlearned = ", ".join(one.test for one in self.results if one.as_trained.low <= 0.5)
        note = f" Bags as in training are not clearly ranked better than by chance in {unlearned}: train on more."
        return f"{who} {joined}.{note if unlearned else ''}"

    def tables(self) -> tuple[ResultTable]:
        """Return a row for each test."""
        rows = tuple((one.test, str(one.as_trained), str(one.shifted), one.verdict) for one in self.results)
        heading = ("test", "as in training", "shifted", "verdict")
        shifts = "; ".join(f"{one.test}: {one.shift}" for one in self.results)
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        bags = f"Trained on {self.train_bags:,} bags with {seeds}."
        return (ResultTable(heading, rows, (self.sentence, bags, f"Shifted: {shifts}.", NOTE)),)

    def to_json(self) -> dict[str, Any]:
        """Return the results, verdicts and sentence as JSON values."""
        results = [{**asdict(one), "verdict": one.verdict} for one in self.results]
        return {**asdict(self), "results": results, "passes": self.passes, "sentence": self.sentence}

    def _tests(self, verdict: str) -> str:
        return ", ".join(one.test for one in self.results if one.verdict == verdict)


@checked()
def check_mil(
    network: PartLike | None = None,
    method: PartLike | None = None,
    encoder: PartLike | None = None,
    *,
    tests: Sequence[str] = tuple(MIL_TESTS),
    train_bags: int = 1200,
    test_bags: int = 1000,
    seeds: Sequence[int] = (42,),
    progress: bool = True,
    settings: TrainSettings | Mapping[str, Any] | None = None,
) -> MILCheck:
    """Return whether a network with a method learns that a bag is positive because of what it contains.

    In each test an easy rule against the MIL assumption is right for the bags to learn from: a poison instance
    marks negative bags, or many instances of a concept mark positive ones. The model is then tested on bags in
    which that rule is wrong. One that respects the assumption still ranks positive bags above negative ones
    (AUC > 0.5); one that learned the easy rule does not.

    Reference: Raff & Holt 2023.

    Args:
        network: as ``train`` takes it.
        method: likewise.
        encoder: likewise, for vectors of 16 numbers.
        tests: names of ``MIL_TESTS``.
        train_bags: bags of each training, at least 8; a quarter as many are drawn to stop by.
        test_bags: bags of each test set, at least ``FEWEST_TEST_BAGS``.
        seeds: one training for each; a seed fixes the bags, too.
        progress: show a bar with the time left.
        settings: as ``train`` takes them, those that differ from ``SETTINGS``; trainings are the jobs.

    Raises:
        ConfigError: a name, option, setting, or number of bags or jobs that cannot be, no seed, or a part that
            other processes cannot build although there are several jobs.
    """
    _check_arguments(tests, train_bags, test_bags, seeds)
    given = settings.given() if isinstance(settings, TrainSettings) else settings or {}
    chosen = TrainSettings.of({**SETTINGS, **given}, network=network, method=method, encoder=encoder)
    recipe, run = replace(Recipe.of(chosen), distances=()), Run(None, chosen, progress=progress)
    tasks = []
    with TemporaryDirectory(prefix="miue-") as folder, ExitStack() as handed:
        for name in tests:
            for seed in seeds:
                job = _job(recipe.with_seed(seed), MIL_TESTS[name], train_bags, seed)
                out = Path(folder) / f"{name}-{seed}.json"
                path = handed.enter_context(handed_over(job, out, run))
                arguments = {"job": path, "test": name, "seed": seed, "test_bags": test_bags, "out": str(out)}
                tasks.append(Task(f"{name}, seed {seed}", "miue.selection.mil:train_and_test", arguments, out))
        run_tasks(tasks, run.executor, doing="checking", unit="trainings", progress=progress)
        pairs = [[Auc(**auc) for auc in read_json(task.part, what="AUCs")["aucs"]] for task in tasks]
    results = []
    for number, test in enumerate(MIL_TESTS[name] for name in tests):
        of_seeds = pairs[number * len(seeds) : (number + 1) * len(seeds)]
        as_trained, shifted = (Auc.over_seeds(values) for values in zip(*of_seeds, strict=True))
        results.append(MILTestResult(test.name, test.shift, as_trained, shifted))
    names = [find_part(kind, part).name for kind, part in (("network", chosen.network), ("method", chosen.method))]
    return MILCheck(names[0], names[1], train_bags, tuple(seeds), tuple(results))


def _job(recipe: Recipe, test: MILTest, count: int, seed: int) -> Job:
    """Return a training on bags in which the easy rule is right; a quarter as many are drawn to stop by."""
    bags = test.bags(count, seed=derive_seed(seed, TRAIN))
    return Job(recipe, bags, test.bags(max(4, count // 4), seed=derive_seed(seed, VALIDATION)))


def train_and_test(job: str, test: str, seed: int, test_bags: int, out: str) -> None:
    """Train, and write the AUCs of test bags drawn as those to train on and of shifted ones; a task.

    Args:
        job: where the job was handed over.
        test: its name.
        seed: of the training and its bags.
        test_bags: bags of each test set.
        out: file to write.
    """
    shared, run = read_job(job)
    model, aucs = train_job(shared, run), []
    for part, is_shifted in ((TEST, False), (SHIFTED, True)):
        bags = MIL_TESTS[test].bags(test_bags, seed=derive_seed(seed, part), is_shifted=is_shifted)
        probabilities = model.predict(bags, progress=False).bags.probabilities
        with np.errstate(divide="ignore"):
            odds = np.log(probabilities[:, 1]) - np.log(probabilities[:, 0])
        aucs.append(asdict(Auc.of(odds, bags.labels.values)))
    write_json(Path(out), {"aucs": aucs})


def _check_arguments(tests: Sequence[str], train_bags: int, test_bags: int, seeds: Sequence[int]) -> None:
    for name in tests:
        if name not in MIL_TESTS:
            raise unknown_name("test of the MIL assumption", name, MIL_TESTS)
    for item, number, least in (
        ("train_bags", train_bags, 8),
        ("test_bags", test_bags, FEWEST_TEST_BAGS),
        ("the number of seeds", len(seeds), 1),
        ("the number of tests", len(tests), 1),
    ):
        if number < least:
            raise out_of_range(item, f"at least {least}", number)
