"""Small cohorts: pooled baselines and networks on the same folds, all out-of-fold predictions together.

The data are the CSV tables of the Python package ``mil`` (version 1.0.5), of which nothing is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.cli.cross_validate import markdown
from miue.common.errors import DataError, unknown_name
from miue.common.text import ResultTable
from miue.evaluation import evaluate_level
from miue.io import make_folds
from miue.methods import METHODS
from miue.model import Recipe
from miue.predictions import PredictionTable, read_predictions
from miue.selection import candidates, cross_validate
from miue.selection.choice import MIXTURE, mean_interval, mixture_of
from miue.settings import VALIDATION_SHARE
from papers.mirel.stored_bags import read_bags, write_bags

FOLDS, SEED = 5, 42
SETS = {
    "musk1": "6eb13180b63f7cfabd1c759c510a036ecb561069aa8e86700c76a2fe139d297a",
    "musk2": "14040c8891369392f87f4ce8969a20657e615e40e042f02d1a2fe2cabab01717",
    "elephant": "ffe36a08fb0b8175ff8a4e7eeac6ccfd3300f84dbc047a6fb3ff7ca1a1caf6c9",
    "ucsb_breast_cancer": "9e48d4d5d44ae2728c940e8d79b3e59ffcec3e515017f70d3feb0063148dbd96",
    "birds_brown_creeper": "89cbb7f2430ebbf37da45e1efbc22b9db68fee86bcab4914015ab797fed50323",
    "corel_dogs": "d499f15d29e9a6cb55152c2a65b01a445dae06ae30af7c4ddd57d821d70a53f0",
}
"""Names of the files, and their SHA-256."""
METRICS = ("nll", "ece", "brier", "aurc", "confidence_auroc", "auroc", "accuracy")
SHARES = ("ece", "aurc", "confidence_auroc", "auroc", "accuracy")
DEFAULT = "default"
PUBLISHED = {"musk1": "89.2 and 90.0", "musk2": "85.8 and 86.3", "elephant": "86.8 and 85.7"}
"""Accuracy of attention and gated attention: Ilse et al. 2018, Table 1, ten folds five times."""
NOTE = (
    f"{FOLDS} folds, out-of-fold bags together; the mean of several draws of folds. In brackets the difference "
    "in NLL to the better pooled baseline, with its 95 % interval (paired bootstrap); bold if that is below 0. "
    "`mixture` is the mean of all but `default`, which is what a user gets without options."
)


def read_set(name: str, folder: Path) -> BagDataset:
    """Return the bags of a set: columns label, bag and features; a bag is positive if one of its instances is.

    Raises:
        ConfigError: a set that is not here.
        DataError: another file.
    """
    if name not in SETS:
        raise unknown_name("set", name, tuple(SETS))
    path = folder / f"{name}.csv"
    if hashlib.sha256(path.read_bytes()).hexdigest() != SETS[name]:
        raise DataError(item=str(path), wanted=f"SHA-256 {SETS[name]}", got="another", fix="take mil 1.0.5")
    rows = np.genfromtxt(path, delimiter=",", dtype=np.float32)
    names, of_row = np.unique(rows[:, 1], return_inverse=True)
    arrays = [rows[of_row == bag, 2:] for bag in range(len(names))]
    return BagDataset.of(arrays, [int(rows[of_row == bag, 0].max() > 0) for bag in range(len(names))])


def measure(name: str, source: Path, work: Path, results: Path, draws: int, device: str) -> None:
    """Cross-validate each candidate on the same folds, and keep its out-of-fold predictions.

    Args:
        name: of the set.
        source: folder of the tables.
        work: folder of the runs, which are not run again.
        results: gets small_cohorts/SET/CANDIDATE-DRAW.parquet.
        draws: how often folds are drawn.
        device: where is trained.
    """
    bags = read_set(name, source)
    for draw in range(1, draws + 1):
        folds = make_folds(bags, FOLDS, validation=VALIDATION_SHARE, seed=draw)
        for candidate, recipe in {DEFAULT: Recipe(), **candidates(bags)}.items():
            path = results / "small_cohorts" / name / f"{candidate}-{draw}.parquet"
            if path.exists():
                continue
            out = work / "small_cohorts" / name / f"{candidate}-{draw}"
            cross_validate(bags, folds, [SEED], out, replace(recipe, distances=()), settings={"device": device})
            parts = [read_predictions(one).bags for one in sorted(out.glob(f"fold_*/seed_{SEED}/predictions"))]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bags(path, PredictionTable.concatenate(parts))


def page(results: Path) -> str:
    """Return the tables of all sets that were measured, as Markdown."""
    names = [name for name in SETS if (results / "small_cohorts" / name).is_dir()]
    said = "Published accuracy of attention and gated attention (Ilse et al. 2018, Table 1; ten folds, five times)"
    sections = [
        f"## {name}\n\n{markdown(table(name, results))}"
        + (f"\n{said}: {PUBLISHED[name]}.\n" if name in PUBLISHED else "")
        for name in names
    ]
    command = "`python -m papers.mirel small-cohorts --source TABLES --results results --draws 0`"
    regret = f"## Regret\n\n{markdown(regrets(names, results))}"
    return "\n".join(["# Small cohorts\n", f"{command}\n", regret, *sections])


def regrets(names: Sequence[str], results: Path) -> ResultTable:
    """Return how far the NLL of each candidate is above that of the best single one, by set; least worst first."""
    losses = {name: _mean_losses(_found(name, results)) for name in names}
    least = {name: min(of_set[one].mean() for one in of_set if one != MIXTURE) for name, of_set in losses.items()}
    shared = set.intersection(*({*of_set} for of_set in losses.values()))
    worst = {one: [float(losses[name][one].mean()) - least[name] for name in names] for one in shared}
    rows = [
        (one, *(f"{value:+.3f}" for value in (max(of_sets), *of_sets)))
        for one, of_sets in sorted(worst.items(), key=lambda item: max(item[1]))
    ]
    return ResultTable(("NLL above the best single one", "worst", *names), tuple(rows))


def table(name: str, results: Path) -> ResultTable:
    """Return a row for each candidate of a set, the least NLL first."""
    found = _found(name, results)
    losses = _mean_losses(found)
    baselines = [one for one in found if one in METHODS and METHODS[one].is_fitted_at_once]
    base = losses[min(baselines, key=lambda one: losses[one].mean())] if baselines else None
    rows = []
    for candidate in sorted(found, key=lambda one: losses[one].mean()):
        metrics = [dict(evaluate_level(one).named_metrics(("0", "1"))) for one in found[candidate]]
        cells = []
        for metric in METRICS:
            values = [of_one[metric].value for of_one in metrics]
            value = None if None in values else float(np.mean(np.array(values, float)))
            scale = 100 if metric in SHARES else 1
            cells.append("—" if value is None else f"{scale * value:.{1 if metric in SHARES else 3}f}")
        if base is not None and candidate not in baselines:
            cells[0] = _beside(cells[0], losses[candidate] - base)
        rows.append((candidate, str(len(metrics)), *cells))
    return ResultTable(("", "draws", *METRICS), tuple(rows), (NOTE,))


def _found(name: str, results: Path) -> dict[str, list[PredictionTable]]:
    """Return what each candidate and their mixture predict of a set, a table for each draw."""
    found: dict[str, list[PredictionTable]] = {}
    for path in sorted((results / "small_cohorts" / name).glob("*.parquet")):
        found.setdefault(path.stem.rpartition("-")[0], []).append(read_bags(path))
    mixed = [tables for candidate, tables in found.items() if candidate != DEFAULT]
    if len(mixed) > 1:
        found[MIXTURE] = [mixture_of(of_draw) for of_draw in zip(*mixed, strict=True)]
    return found


def _mean_losses(found: Mapping[str, Sequence[PredictionTable]]) -> dict[str, np.ndarray]:
    return {candidate: np.mean([_losses(one) for one in tables], 0) for candidate, tables in found.items()}


def _beside(cell: str, differences: np.ndarray) -> str:
    """Return an NLL with its difference to the baseline, bold where that is clearly below 0."""
    low, high = mean_interval(differences)
    text = f"{cell} ({differences.mean():+.3f} [{low:+.3f}, {high:+.3f}])"
    return f"**{text}**" if high < 0 else text


def _losses(one: PredictionTable) -> np.ndarray:
    """Return −log p of the label of each bag, in the order of their names."""
    p = one.probabilities[np.arange(len(one)), one.labels.values]
    losses: np.ndarray = -np.log(np.clip(p, 1e-12, 1))[np.argsort(one.bag_ids.astype(str))]
    return losses
