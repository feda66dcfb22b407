"""Choosing what to train: candidates and their mixture, by the NLL of bags that they were not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.bags import BagDataset, check_dataset, fingerprint
from miue.common.errors import lacking, out_of_range, unknown_name
from miue.common.folder_kinds import CHOICE
from miue.common.outputs import locked
from miue.common.parts import BASELINES
from miue.common.tables import write_rows
from miue.common.tasks import Task, run_tasks
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.common.values import checked
from miue.distributions import Draws
from miue.evaluation import NAMED_METRICS, Metric, evaluate_level
from miue.io import make_folds
from miue.model import Model, Recipe, learns_from, mix, mixes
from miue.predictions import PredictionTable, by_patient, read_predictions
from miue.selection.cross_validation import folder_of, open_folder, open_runs
from miue.settings import VALIDATION_SHARE, RunSettings
from miue.training import Job, Run, train_job, warn_of_bags

METRICS = ("nll", "accuracy", "auroc", "ece")
RESAMPLES = 2000
FEWEST_FOLDS = 3
CHOSEN, MIXTURE = "choice", "mixture"
NOTE = (
    "Bags, or patients where they are known, that each model was not trained on, all folds together. In brackets "
    "the difference in NLL to the chosen one with its 95 % interval (paired bootstrap). Last, the choice itself, "
    "made anew for each fold by the bags of the others."
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
    """Return what ``choose`` tries by default: networks, and pooled baselines where instances are vectors.

    Those whose method does not learn from the labels, as few do from times without an event, are left out.
    """
    found = {name: Recipe(**parts) for name, parts in NETWORKS.items()}
    if len(bags.instance_shape) == 1:
        pooled = {name: Recipe(method=name) for name in BASELINES}
        found = {**pooled, **{name: replace(recipe, **OF_VECTORS) for name, recipe in found.items()}}
    return {name: recipe for name, recipe in found.items() if learns_from(recipe, bags)}


@dataclass(frozen=True)
class Tried:
    """What a candidate came to, tested on the bags of all folds.

    Attributes:
        name: of the candidate; "mixture" for the mean of all; "choice" for the choice, made anew for each fold.
        is_baseline: whether it has no network.
        nll, accuracy, auroc, ece: of these bags together; None where undefined.
        own: metrics of the target that say the most, by name: means over folds, each of which has intervals of its
            own; None where undefined.
        difference: in NLL to the chosen one.
        low, high: ends of its 95 % interval.
    """

    name: str
    is_baseline: bool
    nll: float | None
    accuracy: float | None
    auroc: float | None
    ece: float | None
    difference: float = 0.0
    low: float = 0.0
    high: float = 0.0
    own: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Choice(PrintsAsTable):
    """What was chosen, and what each candidate came to.

    Attributes:
        name: of the chosen candidate, or "mixture".
        members: recipes of what the model is made of: one, or those that are mixed.
        tried: each candidate, the best first; the choice itself last.
        chosen_in: the candidate that was chosen for each fold by the bags of the others.
    """

    name: str
    members: Mapping[str, Recipe]
    tried: tuple[Tried, ...]
    chosen_in: tuple[str, ...]

    def as_table(self) -> ResultTable:
        """Return the table that is printed."""
        return self.tables()[0]

    def tables(self) -> tuple[ResultTable]:
        """Return a row for each candidate."""
        shown = [metric for metric in METRICS if any(getattr(one, metric) is not None for one in self.tried)]
        rows = tuple((one.name, *_cells(one, shown, self.name)) for one in self.tried)
        titles = [NAMED_METRICS[name].title for name in self.tried[0].own]
        return (ResultTable(("", *shown, *titles), rows, (NOTE, self.sentence)),)

    @property
    def sentence(self) -> str:
        """What was chosen, and whether it is better than the best baseline."""
        mixed = f", the mean of {plural(len(self.members), 'candidate')}" if len(self.members) > 1 else ""
        said = f"Chosen: {self.name}{mixed}."
        baseline = next((one for one in self.tried if one.is_baseline), None)
        if baseline is None:
            return f"{said} No baseline was tested beside it."
        if baseline.name == self.name:
            return f"{said} No network has a lower NLL than this baseline."
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
    """Compare candidates by cross-validation, and train the mixture of all, or one that is clearly better.

    The mixture is the mean of the probabilities of all candidates whose method predicts in one pass. A candidate
    is chosen in its place if its NLL is lower by an interval without 0: the best of some candidates on a few
    dozen bags is often not the best on the next. What the choice comes to is estimated by making it for each fold
    by the bags of the other folds alone.

    Reference: Breiman 1996, "Stacked Regressions"; Tsamardinos et al. 2018, "Bootstrapping the out-of-sample
    predictions for efficient and accurate cross-validation", for a choice that is judged without nested training.

    Args:
        bags: labeled; of those with splits, the ones to train on and to validate on.
        out: folder, new or of the same choice, which goes on; the model is in ``out/model``.
        recipes: candidates by name; None for ``candidates(bags)``.
        folds: at least 3.
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
    if taken := {CHOSEN, MIXTURE} & tried.keys():
        raise unknown_name("candidate", min(taken), tuple(candidates(learned)))
    chosen = settings if isinstance(settings, RunSettings) else RunSettings.of(settings)
    run = Run(Path(out), chosen, progress=progress, warn=False)
    description = {
        "bags": fingerprint(learned),
        "folds": folds,
        "seed": seed,
        "candidates": {name: recipe.to_json() for name, recipe in tried.items()},
    }
    with locked(Path(out)):
        open_folder(Path(out), CHOICE, description)
        return _choose(learned, {name: recipe.with_seed(seed) for name, recipe in tried.items()}, folds, seed, run)


def learned_from(bags: BagDataset) -> BagDataset:
    """Return the bags that a choice may use: without those that are kept for a test."""
    if not any(bags.splits):
        return bags
    rows = [row for row, split in enumerate(bags.splits) if split in ("train", "validation")]
    return replace(bags.subset(rows), splits=("",) * len(rows))


def _choose(bags: BagDataset, recipes: Mapping[str, Recipe], folds: int, seed: int, run: Run) -> Choice:
    """Test each candidate on all folds, choose, and train what was chosen on all bags."""
    assert run.folder is not None
    mixed = [name for name, recipe in recipes.items() if mixes(recipe, bags.instance_shape)]
    tested = _test(bags, recipes, folds, seed, run)
    if len(mixed) > 1:
        tested[MIXTURE] = [mixture_of(each) for each in zip(*(tested[name] for name in mixed), strict=True)]
    tables = {name: [by_patient(table) or table for table in of_folds] for name, of_folds in tested.items()}
    losses = {name: [losses_of(table) for table in of_folds] for name, of_folds in tables.items()}
    every = range(folds)
    name = _best(losses, every)
    chosen_in = tuple(_best(losses, [other for other in every if other != fold]) for fold in every)
    tables[CHOSEN] = [tables[one][fold] for fold, one in enumerate(chosen_in)]
    losses[CHOSEN] = [losses[one][fold] for fold, one in enumerate(chosen_in)]
    baselines = {one for one, recipe in recipes.items() if recipe.method in BASELINES}
    of_chosen = np.concatenate(losses[name])
    tried = []
    for one, of_folds in tables.items():
        values, own = _metrics_of(of_folds)
        differences = np.concatenate(losses[one]) - of_chosen
        low, high = mean_interval(differences)
        difference = float(differences.mean())
        tried.append(Tried(one, one in baselines, **values, difference=difference, low=low, high=high, own=own))
    tried.sort(key=lambda one: (one.name == CHOSEN, one.difference))
    members = [one.name for one in tried if one.name in (mixed if name == MIXTURE else [name])]
    choice = Choice(name, {one: recipes[one] for one in members}, tuple(tried), chosen_in)
    rows = [{**asdict(one), **one.own} for one in choice.tried]
    header = [name for name in rows[0] if name != "own"]
    write_rows(run.folder / "choice.csv", header, [[row[name] for name in header] for row in rows])
    _train(choice, bags, run)
    return choice


def _metrics_of(of_folds: Sequence[PredictionTable]) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the metrics of the bags of all folds together, and those of their target, of each fold by itself."""
    metrics, target = evaluate_level(PredictionTable.concatenate(of_folds)).metrics, of_folds[0].target
    values = {metric: metrics[metric].value if metric in metrics else None for metric in METRICS}
    if target is None:
        return values, {}
    each = [evaluate_level(table).metrics for table in of_folds]
    own = {name: Metric.mean_of([of_fold[name] for of_fold in each]).value for name in target.headline}
    values["nll"] = float(np.concatenate([losses_of(table) for table in of_folds]).mean())
    return values, own


def _test(
    bags: BagDataset, recipes: Mapping[str, Recipe], folds: int, seed: int, run: Run
) -> dict[str, list[PredictionTable]]:
    """Return what each candidate predicts of the bags of each fold, on which it was not trained."""
    assert run.folder is not None
    splits = make_folds(bags, folds, validation=VALIDATION_SHARE, seed=seed)
    jobs = {name: Job(replace(recipe, distances=()), bags, splits=splits) for name, recipe in recipes.items()}
    warn_of_bags(next(iter(jobs.values())))  # once, not for each candidate
    homes = {name: run.folder / "candidates" / name for name in recipes}
    with ExitStack() as opened:
        tasks: list[Task] = []
        for name, job in jobs.items():
            of_candidate = replace(run, folder=homes[name], progress=False)
            tasks += opened.enter_context(open_runs(job, [seed], of_candidate)).tasks
        run_tasks(tasks, run.executor, doing="comparing candidates", unit="runs", progress=run.progress)
    return {
        name: [read_predictions(folder_of(home, fold, seed) / "predictions").bags for fold in range(folds)]
        for name, home in homes.items()
    }


def mixture_of(tables: Sequence[PredictionTable]) -> PredictionTable:
    """Return the mean of what several models predict of the same bags."""
    first = tables[0]
    assert all(np.array_equal(table.bag_ids, first.bag_ids) for table in tables)
    return replace(first, distribution=Draws.of([table.distribution for table in tables]))


def losses_of(table: PredictionTable) -> Float64[np.ndarray, "n"]:
    """Return −log p of the label of each bag or patient that has one, of a lower bound of all that it allows."""
    return -np.log(np.clip(table.likelihoods()[table.judged], 1e-12, 1))


def _best(losses: Mapping[str, Sequence[np.ndarray]], folds: Iterable[int]) -> str:
    """Return the mixture, or the candidate of the least loss in some folds where that is clearly less."""
    joined = {name: np.concatenate([of_folds[fold] for fold in folds]) for name, of_folds in losses.items()}
    best = min(joined.keys() - {MIXTURE}, key=lambda name: (joined[name].mean(), name))
    if MIXTURE not in joined:
        return best
    return best if mean_interval(joined[best] - joined[MIXTURE])[1] < 0 else MIXTURE


def _train(choice: Choice, bags: BagDataset, run: Run) -> None:
    """Train what was chosen on all bags, where that is not done yet."""
    assert run.folder is not None
    model = run.folder / "model"
    if len(choice.members) == 1:
        (recipe,) = choice.members.values()
        train_job(Job(recipe, bags), replace(run, folder=model), if_exists="resume")
        return
    jobs = {name: Job(recipe, bags) for name, recipe in choice.members.items()}
    models: list[Model] = []
    for name, job in jobs.items():
        of_member = replace(run, folder=run.folder / "members" / name)
        models.append(train_job(job, of_member, if_exists="resume"))
    first = next(iter(jobs.values()))
    mixture = mix(models)
    if first.holds_out:
        mixture = mixture.with_validation(first.validation, device=run.settings.device)
    mixture.save(model, overwrite=True)


def mean_interval(differences: Float64[np.ndarray, "n"]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over patients or bags, drawn again with replacement."""
    generator = np.random.default_rng(0)
    rows = generator.integers(0, len(differences), (RESAMPLES, len(differences)))
    low, high = np.quantile(differences[rows].mean(1), (0.025, 0.975))
    return float(low), float(high)


def _cells(one: Tried, shown: Sequence[str], chosen: str) -> list[str]:
    cells = []
    for metric in shown:
        value, scale, digits = getattr(one, metric), *((1, 3) if metric == "nll" else (100, 1))
        text = "—" if value is None else f"{scale * value:.{digits}f}"
        if metric == "nll" and one.name != chosen:
            text += f" ({one.difference:+.3f} [{one.low:+.3f}, {one.high:+.3f}])"
        cells.append(text)
    return [*cells, *("—" if value is None else f"{value:.3f}" for value in one.own.values())]
