"""Choosing what to train: nested cross-validation over candidates, by the NLL of bags that none was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.bags import BagDataset, check_dataset, fingerprint
from miue.common.errors import lacking, out_of_range, unknown_name
from miue.common.files import make_folder, read_json, remove_temporaries, write_json
from miue.common.folder_kinds import CHOICE
from miue.common.outputs import locked, refuse_taken
from miue.common.parts import BASELINES
from miue.common.tables import write_rows
from miue.common.tasks import run_tasks
from miue.common.text import PrintsAsTable, ResultTable, plural, say
from miue.common.values import checked
from miue.evaluation import evaluate_level
from miue.io import make_folds
from miue.model import Recipe
from miue.predictions import PredictionTable, by_patient, read_predictions
from miue.selection.cross_validation import folder_of, open_runs
from miue.settings import VALIDATION_SHARE, RunSettings
from miue.training import Job, Run, changed_setting, changes, train_job, warn_of_bags

MARK = CHOICE.shown_by[0]
METRICS = ("nll", "accuracy", "auroc", "ece")
RESAMPLES = 2000
FEWEST_FOLDS = 3
CHOSEN = "choice"
NOTE = (
    "Bags, or patients where they are known, that each model was not trained on, all folds together. In brackets "
    "the difference in NLL to the chosen one with its 95 % interval (paired bootstrap). Last, the choice itself, "
    "made anew for each fold, without the bags of that fold."
)

NETWORKS: dict[str, dict[str, Any]] = {
    "mean-softmax": {"network": "mean", "method": "softmax"},
    "attention-softmax": {"network": "attention", "method": "softmax"},
    "attention-sngp": {"network": "attention", "method": "sngp"},
    "attention-mirel": {"network": "attention", "method": "mirel"},
    "one-sided-gp": {"method": "one-sided-gp"},
}
OF_VECTORS: dict[str, Any] = {"options": {"encoder.scaling": "each"}}


def candidates(bags: BagDataset) -> dict[str, Recipe]:
    """Return what ``choose`` tries by default: networks, and pooled baselines where instances are vectors."""
    if len(bags.instance_shape) > 1:
        return {name: Recipe(**parts) for name, parts in NETWORKS.items()}
    pooled = {name: Recipe(method=name) for name in BASELINES}
    return {**pooled, **{name: Recipe(**parts, **OF_VECTORS) for name, parts in NETWORKS.items()}}


@dataclass(frozen=True)
class Tried:
    """What a candidate came to.

    Attributes:
        name: of the candidate; "choice" for the choice itself, made anew in each fold.
        folds: of which it was tested on the bags.
        nll, accuracy, auroc, ece: of these bags together; None where undefined.
        difference: in NLL to the chosen one, None of a candidate that was dropped after some of the folds.
        low, high: ends of its 95 % interval.
    """

    name: str
    folds: int
    nll: float | None
    accuracy: float | None
    auroc: float | None
    ece: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, repr=False)
class Choice(PrintsAsTable):
    """What was chosen, and what each candidate came to.

    Attributes:
        name: of the chosen candidate.
        recipe: of it.
        tried: each candidate, the best first; the choice itself last.
        folds: how many.
        chosen_in: the candidate that was chosen without the bags of each fold.
    """

    name: str
    recipe: Recipe
    tried: tuple[Tried, ...]
    folds: int
    chosen_in: tuple[str, ...]

    def as_table(self) -> ResultTable:
        """Return the table that is printed."""
        return self.tables()[0]

    def tables(self) -> tuple[ResultTable]:
        """Return a row for each candidate."""
        rows = tuple((self._named(one), *_cells(one)) for one in self.tried)
        return (ResultTable(("", *METRICS), rows, (NOTE, self.sentence)),)

    def _named(self, one: Tried) -> str:
        return one.name if one.folds == self.folds else f"{one.name} (dropped after {plural(one.folds, 'fold')})"

    @property
    def sentence(self) -> str:
        """What was chosen, and whether it is better than the best baseline."""
        said = f"Chosen: {self.name}."
        baseline = next((one for one in self.tried if one.name in BASELINES and one.difference is not None), None)
        if self.name in BASELINES:
            return f"{said} No network has a lower NLL than this baseline."
        if baseline is None:
            return f"{said} No baseline was tested on all folds beside it."
        assert baseline.low is not None
        is_clear = baseline.low > 0
        return f"{said} It is {'better' if is_clear else 'not clearly better'} than the baseline {baseline.name}."


@checked()
def choose(
    bags: BagDataset,
    out: Path | str,
    recipes: Mapping[str, Recipe] | None = None,
    *,
    folds: int = 5,
    seed: int = 42,
    settings: RunSettings | Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Choice:
    """Choose a candidate by the NLL of bags that it was not trained on, and train it on all bags.

    After half of the folds the worse half of the candidates is dropped. What the choice comes to is estimated by
    making it anew without the bags of each fold (nested cross-validation).

    Reference: Cawley & Talbot 2010, "On Over-fitting in Model Selection and Subsequent Selection Bias in
    Performance Evaluation"; Jamieson & Talwalkar 2016 (successive halving).

    Args:
        bags: labeled; of those with splits, the ones to train on and to validate on.
        out: folder, new or of the same choice, which goes on; the model is in ``out/model``.
        recipes: candidates by name; None for ``candidates(bags)``.
        folds: outer and inner ones, at least 3.
        seed: of folds and trainings.
        settings: where the runs are trained, ``RunSettings`` or its fields by name.
        progress: show what is done and the time left.

    Raises:
        ConfigError: no candidate, too few folds, or ``out`` holds another choice.
        DataError: bags that cannot be trained on, or too few of a class for the folds.
        StorageError: another process writes ``out``, or it cannot be written.
    """
    check_dataset(bags)
    if folds < FEWEST_FOLDS:
        raise out_of_range("folds", f"at least {FEWEST_FOLDS}", folds)
    learned = learned_from(bags)
    tried = candidates(learned) if recipes is None else recipes
    if not tried:
        raise lacking("the recipes", "at least one", "name some candidates")
    if CHOSEN in tried:
        raise unknown_name("candidate", CHOSEN, tuple(candidates(learned)))
    chosen = settings if isinstance(settings, RunSettings) else RunSettings.of(settings)
    run = Run(Path(out), chosen, progress=progress, warn=False)
    description = {
        "bags": fingerprint(learned),
        "folds": folds,
        "seed": seed,
        "candidates": {name: recipe.to_json() for name, recipe in tried.items()},
    }
    with locked(Path(out)):
        _open(Path(out), description)
        return _choose(learned, tried, folds, seed, run)


def learned_from(bags: BagDataset) -> BagDataset:
    """Return the bags that a choice may use: without those that are kept for a test."""
    if not any(bags.splits):
        return bags
    rows = [row for row, split in enumerate(bags.splits) if split in ("train", "validation")]
    return replace(bags.subset(rows), splits=("",) * len(rows))


def _choose(bags: BagDataset, recipes: Mapping[str, Recipe], folds: int, seed: int, run: Run) -> Choice:
    """Make the choice in each fold and on all bags, and train what was chosen."""
    assert run.folder is not None
    splits = make_folds(bags, folds, validation=VALIDATION_SHARE, seed=seed)
    jobs = {
        name: Job(replace(recipe.with_seed(seed), distances=()), bags, splits=splits)
        for name, recipe in recipes.items()
    }
    without = [learned_from(splits.assign(bags, fold)) for fold in range(folds)]
    inner = [make_folds(of_fold, folds, validation=VALIDATION_SHARE, seed=seed) for of_fold in without]
    trainings = (folds + 1) * _trainings(len(jobs), folds)
    if run.progress:
        say(f"{plural(len(jobs), 'candidate')}, at most {plural(trainings, 'training')}", err=True)
    warn_of_bags(next(iter(jobs.values())))  # once, not for each candidate and fold
    every = _halve(jobs, run.folder / "all", folds, seed, run)
    chosen_in = []
    for fold in range(folds):
        of_fold = {name: replace(job, bags=without[fold], splits=inner[fold]) for name, job in jobs.items()}
        ranked = _halve(of_fold, run.folder / f"without_fold_{fold}", folds, seed, run)
        chosen_in.append(next(iter(ranked)))
    for fold, name in enumerate(chosen_in):
        _train({name: jobs[name]}, run.folder / "all", [fold], seed, run)
    nested = _Tested.read([folder_of(run.folder / "all" / name, k, seed) for k, name in enumerate(chosen_in)])
    name = next(iter(every))
    best = every[name]
    tried = [_tried(one, of_one, best) for one, of_one in every.items()]
    itself = _tried(CHOSEN, nested, best)
    choice = Choice(name, recipes[name].with_seed(seed), (*tried, itself), folds, tuple(chosen_in))
    write_rows(
        run.folder / "choice.csv", list(asdict(itself)), [list(asdict(one).values()) for one in choice.tried]
    )
    train_job(Job(choice.recipe, bags), replace(run, folder=run.folder / "model"), if_exists="resume")
    return choice


@dataclass(frozen=True)
class _Tested:
    """The bags, or patients where they are known, of some folds that a candidate was tested on."""

    table: PredictionTable
    folds: int

    @classmethod
    def read(cls, runs: Sequence[Path]) -> _Tested:
        """Return what was tested in the runs of some folds, given their folders."""
        bags = PredictionTable.concatenate([read_predictions(run / "predictions").bags for run in runs])
        return cls(by_patient(bags) or bags, len(runs))

    @property
    def losses(self) -> dict[str, float]:
        """−log p of the label of each bag or patient that has one, by its name."""
        table = self.table
        rows = np.flatnonzero(table.judged)
        p = table.probabilities[rows, table.labels.values[rows]]
        return dict(
            zip(table.bag_ids[rows].astype(str).tolist(), (-np.log(np.clip(p, 1e-12, 1))).tolist(), strict=True)
        )

    @property
    def nll(self) -> float:
        return float(np.mean(list(self.losses.values())))


def _trainings(count: int, folds: int) -> int:
    """Return how many trainings a halving of so many candidates has."""
    return count * ceil(folds / 2) + ceil(count / 2) * (folds // 2)


def _halve(jobs: Mapping[str, Job], out: Path, folds: int, seed: int, run: Run) -> dict[str, _Tested]:
    """Return what each candidate was tested on, by NLL: those of all folds, then those that were dropped."""
    first, rest = range(ceil(folds / 2)), range(ceil(folds / 2), folds)
    _train(jobs, out, first, seed, run)
    ranked = _ranked(out, jobs, first, seed)
    kept = list(ranked)[: ceil(len(jobs) / 2)]
    _train({name: jobs[name] for name in kept}, out, rest, seed, run)
    dropped = {name: tested for name, tested in ranked.items() if name not in kept}
    return {**_ranked(out, kept, range(folds), seed), **dropped}


def _ranked(out: Path, names: Iterable[str], folds: Iterable[int], seed: int) -> dict[str, _Tested]:
    """Return what candidates were tested on in some folds, the least NLL first."""
    tested = {name: _Tested.read([folder_of(out / name, fold, seed) for fold in folds]) for name in names}
    return dict(sorted(tested.items(), key=lambda one: one[1].nll))


def _train(jobs: Mapping[str, Job], out: Path, folds: Iterable[int], seed: int, run: Run) -> None:
    """Train and test each candidate on some folds, where that is not done yet."""
    wanted = set(folds)
    with ExitStack() as opened:
        tasks = []
        for name, job in jobs.items():
            runs = opened.enter_context(open_runs(job, [seed], replace(run, folder=out / name, progress=False)))
            tasks += [task for task, (fold, _) in zip(runs.tasks, runs.every, strict=True) if fold in wanted]
        run_tasks(tasks, run.executor, doing=f"training ({out.name})", unit="runs", progress=run.progress)


def _tried(name: str, tested: _Tested, best: _Tested) -> Tried:
    metrics = evaluate_level(tested.table).metrics
    values = {metric: metrics[metric].value for metric in METRICS}
    one = Tried(name, tested.folds, **values)
    ours, theirs = tested.losses, best.losses
    if ours.keys() != theirs.keys() or tested is best:
        return one
    differences = np.array([ours[key] - theirs[key] for key in sorted(ours)])
    low, high = mean_interval(differences)
    return replace(one, difference=float(differences.mean()), low=low, high=high)


def mean_interval(differences: Float64[np.ndarray, "n"]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over patients or bags, drawn again with replacement."""
    generator = np.random.default_rng(0)
    rows = generator.integers(0, len(differences), (RESAMPLES, len(differences)))
    low, high = np.quantile(differences[rows].mean(1), (0.025, 0.975))
    return float(low), float(high)


def _cells(one: Tried) -> list[str]:
    cells = []
    for metric in METRICS:
        value, scale, digits = getattr(one, metric), *((1, 3) if metric == "nll" else (100, 1))
        text = "—" if value is None else f"{scale * value:.{digits}f}"
        if metric == "nll" and one.difference is not None:
            text += f" ({one.difference:+.3f} [{one.low:+.3f}, {one.high:+.3f}])"
        cells.append(text)
    return cells


def _open(out: Path, description: dict[str, Any]) -> None:
    """Make the folder, or check that it is one of the same choice."""
    path = out / MARK
    remove_temporaries(out)
    if path.exists():
        if changed := changes(read_json(path, what="choice"), description):
            raise changed_setting(f"choice {str(out)!r}", changed, "choose another --out")
        return
    refuse_taken(out, CHOICE, overwrite=False)
    make_folder(out)
    write_json(path, description)
