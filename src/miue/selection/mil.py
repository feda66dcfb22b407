"""Does a network with its method respect the MIL assumption? It is trained and tested on generated bags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from miue.common.errors import out_of_range, unknown_name
from miue.common.files import read_json, write_json
from miue.common.seeds import derive_seed
from miue.common.tasks import Executor, Task, run_tasks, shares_shown
from miue.common.text import PrintsAsTable, ResultTable, bar
from miue.common.values import checked
from miue.evaluation import LEVEL, Auc
from miue.model import PartLike, Recipe, find_part
from miue.selection.mil_bags import MIL_TESTS
from miue.settings import RunSettings, TrainSettings
from miue.training import Job, Run, train_job

SETTINGS = {"max_epochs": 30, "learning_rate": 1e-3, "bags_per_update": 8, "lr_patience": 5, "stop_patience": 10}
Pair = tuple[Auc, Auc]
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
    recipe, executor = replace(Recipe.of(chosen), distances=()), chosen.to_executor()
    trainings = [
        {"test": name, "seed": seed, "train_bags": train_bags, "test_bags": test_bags, "device": chosen.device}
        for name in tests
        for seed in seeds
    ]
    if executor.is_local:
        pairs = _one_after_another(recipe, trainings, progress)
    else:
        pairs = _side_by_side(recipe, trainings, executor, progress)
    results = []
    for number, test in enumerate(MIL_TESTS[name] for name in tests):
        of_seeds = pairs[number * len(seeds) : (number + 1) * len(seeds)]
        as_trained, shifted = (Auc.over_seeds(values) for values in zip(*of_seeds, strict=True))
        results.append(MILTestResult(test.name, test.shift, as_trained, shifted))
    names = [find_part(kind, part).name for kind, part in (("network", chosen.network), ("method", chosen.method))]
    return MILCheck(names[0], names[1], train_bags, tuple(seeds), tuple(results))


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


def _one_after_another(recipe: Recipe, trainings: Sequence[dict[str, Any]], progress: bool) -> list[Pair]:
    """Return the AUCs of each training; the bar moves by epochs."""
    pairs: list[Pair] = []
    with bar("trainings", shown=progress) as shown:
        task = shown.add_task("checking", total=len(trainings))
        for training in trainings:
            with shares_shown(lambda share: shown.update(task, completed=len(pairs) + share)):
                pairs.append(_train_and_test(recipe, **training))
            shown.update(task, completed=len(pairs))
    return pairs


def _side_by_side(
    recipe: Recipe, trainings: Sequence[dict[str, Any]], executor: Executor, progress: bool
) -> list[Pair]:
    """Return the AUCs of each training; the bar moves by trainings."""
    recipe.check_importable(f"executor {executor.kind!r}")
    described = recipe.to_json()
    with TemporaryDirectory(prefix="miue-") as folder:
        tasks = []
        for number, training in enumerate(trainings):
            name, part = f"{training['test']}, seed {training['seed']}", Path(folder) / f"{number}.json"
            arguments = {"recipe": described, "training": training, "part": str(part)}
            tasks.append(Task(name, "miue.selection.mil:run_training", arguments, part))
        run_tasks(tasks, executor, doing="checking", unit="trainings", progress=progress)
        found = [read_json(task.part, what="AUCs") for task in tasks]
    return [(Auc(**pair["as_trained"]), Auc(**pair["shifted"])) for pair in found]


def run_training(recipe: Mapping[str, Any], training: Mapping[str, Any], part: str) -> None:
    """Train with one seed for one test, and write the AUCs of both test sets; a task."""
    as_trained, shifted = _train_and_test(Recipe(**recipe), **training)
    write_json(Path(part), {"as_trained": asdict(as_trained), "shifted": asdict(shifted)})


def _train_and_test(recipe: Recipe, test: str, seed: int, train_bags: int, test_bags: int, device: str) -> Pair:
    """Train on bags in which the easy rule is right; return the AUCs of others like them and of shifted ones."""
    chosen = MIL_TESTS[test]
    bags = chosen.bags(train_bags, seed=derive_seed(seed, TRAIN))
    held_out = chosen.bags(max(4, train_bags // 4), seed=derive_seed(seed, VALIDATION))
    run = Run(None, RunSettings.of(device=device), progress=False)
    model = train_job(Job(recipe.with_seed(seed), bags, held_out), run)
    values = []
    for part, is_shifted in ((TEST, False), (SHIFTED, True)):
        bags = chosen.bags(test_bags, seed=derive_seed(seed, part), is_shifted=is_shifted)
        probabilities = model.predict(bags, progress=False).bags.probabilities
        with np.errstate(divide="ignore"):
            odds = np.log(probabilities[:, 1]) - np.log(probabilities[:, 0])
        values.append(Auc.of(odds, bags.labels.values))
    return values[0], values[1]
