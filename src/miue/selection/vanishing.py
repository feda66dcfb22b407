"""Does uncertainty vanish with data? A run's recipe refitted to n/8, n/4, n/2 and n of its training bags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from miue.bags import BagDataset, check_dataset
from miue.common.errors import DataError, lacking
from miue.common.files import make_folder
from miue.common.tables import write_rows
from miue.common.tasks import run_tasks
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.common.values import checked
from miue.distributions import MEASURES
from miue.evaluation import wide_shares
from miue.io import Splits
from miue.model import PartsOfRun, Recipe, SavedConfig, check_companions, parts_of_run, read_config
from miue.predictions import read_predictions
from miue.selection.cross_validation import open_runs
from miue.settings import RefitSettings, RunSettings
from miue.training import Job, Run

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
EPOCHS = ("max_epochs", "stop_patience", "lr_patience")
FILE = "vanishing.csv"
ENOUGH_PATIENTS = 5  # held the slope in 93 % of simulations, 87 % where values are skewed; three in 76 %
LOG_VOLUME = "differential_entropy"
KINDS = {"total": "total", "data": "aleatoric", "model": "epistemic"}


@dataclass(frozen=True)
class Slope:
    """How one uncertainty measure of the same bags changes with the number of training bags.

    Attributes:
        measure: its name.
        kind: "total", "aleatoric" or "epistemic".
        means: over bags and seeds, at each number of training bags.
        slope: change of the mean per doubling of the training bags, by least squares over log2 of their number.
        low: lower end of its 95 % interval over bags; training is not drawn again.
        high: upper end.
    """

    measure: str
    kind: str
    means: tuple[float, ...]
    slope: float
    low: float
    high: float

    @property
    def left(self) -> float | None:
        """The last mean as a share of the first; None where the first is not above zero.

        A differential entropy h, which can be below zero, is the log of a volume: the share is that of exp h.
        """
        first, last = self.means[0], self.means[-1]
        if self.measure == LOG_VOLUME:
            return float(np.exp(last - first))
        return last / first if first > 0 else None

    @property
    def verdict(self) -> str:
        """Whether it falls, with the whole interval below zero; hardly if more than half is left even so."""
        if self.high >= 0:
            return "does not fall"
        return "hardly falls" if self.left is not None and self.left > 0.5 else "falls"

    def _rise(self, sizes: Sequence[int]) -> str:
        """Return from where it rises again, if by more than a tenth of what it had fallen by."""
        at = int(np.argmin(self.means))
        first, lowest, last = self.means[0], self.means[at], self.means[-1]
        rises = self.high < 0 and last - lowest > 0.1 * (first - lowest)
        return f", rising again from {lowest:.4g} with {sizes[at]}" if rises else ""

    def sentence(self, sizes: Sequence[int]) -> str:
        """Return what was measured in one sentence."""
        first, last = self.means[0], self.means[-1]
        whole = "the volume that it is the log of" if self.measure == LOG_VOLUME else "it"
        remains = f", {self.left:.0%} of {whole}" if self.left is not None and 0 < self.left < 1 else ""
        return (
            f"{self.measure} ({self.kind}) {self.verdict} with data: {first:.4g} with {sizes[0]} training bags, "
            f"{last:.4g} with {sizes[-1]}{remains}{self._rise(sizes)}; {self.slope:+.3g} per doubling "
            f"(95 % interval {self.low:+.3g} to {self.high:+.3g})."
        )


def fit_slope(
    name: str,
    values: Float64[np.ndarray, "sizes bags"],
    doublings: Float64[np.ndarray, "sizes"],
    owners: Shaped[np.ndarray, "bags"],
    resamples: int,
    seed: int,
) -> Slope:
    """Return the slope of the mean of one measure, which is the mean of the bags' own slopes.

    Its interval is between percentiles that are wider where owners are few (``wide_shares``).

    Args:
        name: of the measure.
        values: of each bag, at each number of training bags.
        doublings: log2 of these numbers.
        owners: of each bag, such as its patient, at least two; they are drawn again as a whole.
        resamples: of the bootstrap.
        seed: of its draws.
    """
    centered = doublings - doublings.mean()
    of_bags = centered @ values / (centered @ centered)
    _, of_owner = np.unique(owners.astype(str), return_inverse=True)
    sums, counts = np.bincount(of_owner, of_bags), np.bincount(of_owner)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), wide_shares(len(sums)))
    means = tuple(float(mean) for mean in values.mean(1))
    return Slope(name, KINDS[MEASURES[name].kind], means, float(of_bags.mean()), float(low), float(high))


@dataclass(frozen=True, repr=False)
class Vanishing(PrintsAsTable):
    """The slope of every measure.

    Attributes:
        sizes: numbers of training bags.
        bags: number of bags that were predicted.
        patients: whose they are; a bag without one counts as a patient of its own.
        slopes: of each measure.
    """

    sizes: tuple[int, ...]
    bags: int
    patients: int
    slopes: tuple[Slope, ...]

    def tables(self) -> tuple[ResultTable]:
        """Return a row for each measure, and a sentence."""
        rows = [
            (
                one.measure,
                one.kind,
                *(f"{mean:.4g}" for mean in one.means),
                f"{one.slope:+.3g}",
                f"{one.low:+.3g} to {one.high:+.3g}",
            )
            for one in self.slopes
        ]
        heading = ("mean of", "kind", *(f"n = {size}" for size in self.sizes), "per doubling", "95 % interval")
        first, last = self.sizes[0], self.sizes[-1]
        few = f"The bags are of {self.patients} patients, too few for a 95 % interval."
        notes = (
            f"n training bags; {self.bags} other bags, the same for all n. The interval is over these bags, for "
            "the trainings that were run. An epistemic uncertainty that vanishes as 1/n has "
            f"{100 * first / last:.0f} % of that at n = {first} left at n = {last}.",
            *([few] if self.patients < ENOUGH_PATIENTS else []),
            *(one.sentence(self.sizes) for one in self.slopes),
        )
        return (ResultTable(heading, tuple(rows), notes),)

    def save_table(self, path: Path | str) -> None:
        """Write a row for each measure.

        Raises:
            StorageError: it cannot be written.
        """
        heading = ("measure", "kind", *(f"mean_{size}" for size in self.sizes), "slope", "low", "high", "verdict")
        rows = [(s.measure, s.kind, *s.means, s.slope, s.low, s.high, s.verdict) for s in self.slopes]
        write_rows(Path(path), heading, rows)

    def to_json(self) -> dict[str, object]:
        """Return all numbers as JSON values."""
        slopes = [
            {**asdict(one), "verdict": one.verdict, "sentence": one.sentence(self.sizes)} for one in self.slopes
        ]
        return {"sizes": list(self.sizes), "bags": self.bags, "patients": self.patients, "measures": slopes}


@checked()
def check_vanishing(
    run: Path | str,
    bags: BagDataset,
    out: Path | str,
    *,
    seeds: Sequence[int] = (),
    resamples: int = 1000,
    settings: RefitSettings | Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Vanishing:
    """Refit a run's recipe to n/8, n/4, n/2 and n of its training bags, and measure how its uncertainties change.

    The subsets are nested, drawn by the run's seed with classes alike and patients whole. Validation bags are
    those of the run. The bags that are predicted are the test split in distribution, or without splits all other
    bags in distribution whose patients the run did not learn from. Epochs and patience are multiplied by n over
    the number of bags: all refits make as many updates, as fewer updates alone change every uncertainty.

    Reference: Shen et al. 2024, Section 4, and Bengs et al. 2022, who show that evidential losses need not vanish.

    Args:
        run: folder of a trained model.
        bags: labeled; they hold all bags of the run, and others to predict.
        out: folder of the refits, their predictions and vanishing.csv; what is done there is not done again.
        seeds: of the trainings, over which uncertainties are averaged; that of the run if empty.
        resamples: of the bootstrap over bags, or over patients where they are known.
        settings: where the refits run, and whether code of others is trusted, ``RefitSettings`` or its fields by
            name, such as {"device": "cpu", "jobs": 2}.
        progress: show a bar with the time left.

    Raises:
        DataError: bags without those of the run or without others of two patients, or too few to halve three
            times.
        ModelError: a part that is not of miue, without trust.
        ConfigError, StorageError: as ``cross_validate`` does.
    """
    run, out = Path(run), Path(out)
    check_dataset(bags)
    saved = read_config(run)
    check_companions(run, saved)
    patients = np.array(bags.patient_groups, object)
    train, validation, test = _rows_of_parts(saved, parts_of_run(run, bags), bags)
    subsets = _training_subsets(bags.labels.values[train], patients[train], saved)
    sizes = tuple(int(subset.sum()) for subset in subsets)
    names, chosen = np.array(bags.ids, object), tuple(seeds) or (saved.training.seed,)
    others = {**dict.fromkeys(names[validation], "validation"), **dict.fromkeys(names[test], "test")}
    asked = RefitSettings.of(settings)
    of_run = {name: value for name, value in asked.given().items() if name in RunSettings.model_fields}
    recipe, refitted = _recipe(saved, trust=asked.trust), Run(out, RunSettings.of(of_run), progress=progress)
    make_folder(out)
    folders = [out / f"refit_{size}" for size in sizes]
    with ExitStack() as opened:
        refits = []
        for subset, size, folder in zip(subsets, sizes, folders, strict=True):
            splits = Splits("the run", ({**others, **dict.fromkeys(names[train][subset], "train")},))
            factor = sizes[-1] / size
            epochs = {name: round(recipe.settings[name] * factor) for name in EPOCHS}
            scaled = replace(recipe, settings={**recipe.settings, **epochs})
            job = Job(scaled, bags, splits=splits)
            refits.append(opened.enter_context(open_runs(job, chosen, replace(refitted, folder=folder))))
        tasks = [replace(task, name=f"{refit.out.name}, {task.name}") for refit in refits for task in refit.tasks]
        run_tasks(tasks, refitted.executor, doing="refitting", unit="refits", progress=progress)
        for refit in refits:
            refit.write_tables()
    values = [_uncertainties(folder, chosen) for folder in folders]
    slopes = []
    for name in values[0]:
        of_sizes = np.stack([one[name] for one in values])
        slopes.append(fit_slope(name, of_sizes, np.log2(sizes), patients[test], resamples, saved.training.seed))
    made = Vanishing(sizes, len(test), len(set(patients[test])), tuple(slopes))
    made.save_table(out / FILE)
    return made


def _training_subsets(
    labels: Int64[np.ndarray, "t"], patients: Shaped[np.ndarray, "t"], saved: SavedConfig
) -> list[Bool[np.ndarray, "t"]]:
    """Return for each of ``SHARES`` which training bags belong to it.

    Raises:
        DataError: too few bags to halve three times.
    """
    subsets = nested_subsets(labels, patients, SHARES, saved.training.seed)
    sizes = [int(subset.sum()) for subset in subsets]
    fewest = min(np.unique(labels[subsets[0]], return_counts=True)[1])
    if len(set(sizes)) < len(SHARES) or fewest < 2:
        wanted = "so many that an eighth of them holds 2 of each class"
        got, fix = f"{', '.join(map(str, sizes))} bags in n/8, n/4, n/2 and n", "train on more bags first"
        raise DataError(item="training bags of the run", wanted=wanted, got=got, fix=fix)
    return subsets


def nested_subsets(
    labels: Shaped[np.ndarray, "B"], groups: Shaped[np.ndarray, "B"], shares: Sequence[float], seed: int
) -> list[Bool[np.ndarray, "B"]]:
    """Return for each share which bags belong to it; those of a smaller share belong to every larger one.

    Args:
        labels: class of each bag.
        groups: of the bags, such as patients; none is divided. Groups with the same classes are drawn alike.
        shares: of the bags, in (0, 1]; at least one group of each kind is taken.
        seed: of the draw.
    """
    names, of_bag = np.unique(groups.astype(str), return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    sizes = np.bincount(of_bag)
    kinds: dict[tuple[int, ...], list[int]] = {}
    for group in order.tolist():
        kinds.setdefault(tuple(np.unique(labels[of_bag == group]).tolist()), []).append(group)
    ends = np.empty(len(names))  # share of the bags of its kind up to and with each group
    for members in kinds.values():
        ends[members] = np.cumsum(sizes[members]) / sizes[members].sum()
        ends[members[0]] = 0.0
    return [(ends <= share + 1e-9)[of_bag] for share in shares]


def _rows_of_parts(
    saved: SavedConfig, parts: PartsOfRun, bags: BagDataset
) -> tuple[Int64[np.ndarray, "t"], Int64[np.ndarray, "v"], Int64[np.ndarray, "p"]]:
    """Return the rows to train on, to validate on and to predict.

    Raises:
        DataError: not all bags of the run, or no others, or those of one patient alone.
    """
    of_bag = np.array(parts.parts, object)
    train, validation = np.flatnonzero(of_bag == "train"), np.flatnonzero(of_bag == "validation")
    wanted, found = (saved.training.training_bags, saved.training.validation_bags), (len(train), len(validation))
    if found != wanted:
        said = f"the {wanted[0]} training and {wanted[1]} validation bags of the run"
        got, fix = f"{found[0]} and {found[1]} of them", "pass the bags of the run, with others to predict"
        raise DataError(item="the bags", wanted=said, got=got, fix=fix)
    used = parts.or_of_their_patients("train", "validation")
    free = np.array([name not in used for name in bags.ids]) & ~bags.is_ood.out_of_distribution
    in_test = np.array([split == "test" for split in bags.splits])
    test = np.flatnonzero(free & in_test if in_test.any() else free)
    if not len(test):
        raise lacking("bags to predict", "bags that the run did not learn from", "add test bags to the data")
    if len(set(np.array(bags.patient_groups, object)[test])) < 2:
        got, fix = f"{plural(len(test), 'bag')} of one", "add test bags of other patients to the data"
        raise DataError(item="bags to predict", wanted="bags of two patients or more", got=got, fix=fix)
    return train, validation, test


def _recipe(saved: SavedConfig, *, trust: bool) -> Recipe:
    """Return what the run was trained by, without distances.

    Raises:
        ModelError: a part that is not of miue, or the members of an ensemble are not, without trust.
    """
    saved.model.parts(trust=trust)
    components = (saved.model.network, saved.model.method, saved.model.encoder)
    network, method, encoder = (component.import_path or component.name for component in components)
    return Recipe(network, method, encoder, saved.model.options(), (), saved.training.settings)


def _uncertainties(folder: Path, seeds: Sequence[int]) -> dict[str, Float64[np.ndarray, "bags"]]:
    """Return every measure of every bag, the mean over seeds."""
    measured = [
        read_predictions(folder / "fold_0" / f"seed_{seed}" / "predictions").bags.uncertainties() for seed in seeds
    ]
    return {name: np.mean([one[name] for one in measured], axis=0) for name in measured[0] if name in MEASURES}
