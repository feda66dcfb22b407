"""How well every score separates test bags from out-of-distribution ones, with a network or by looks alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from miue.bags import BagDataset, Segments, image_statistics
from miue.common.seeds import derive_seed
from miue.datasets.image_shifts import shifted_copies
from miue.model import Model
from miue.predictions import PredictionTable
from miue.scores import DISTANCES, ImageStatistics, bag_distances
from papers.mirel.nuclei.experiment import FOLDS, Fold, fold_of, train_fold
from papers.mirel.nuclei.shifts import NUCLEI_SHIFTS
from papers.mirel.paths import Paths
from papers.mirel.trained import load_trained, with_distances

COLUMNS = ("data", "seed", "folds", "level", "score", "against", "auroc")
SHARE = 0.2
Row = tuple[str, ...]


def scores_of_digits(name: str, seed: int, paths: Paths) -> list[Row]:
    """Return the AUROC of every score of one trained preset for test bags of each source, whole or in part.

    In part: a fifth of the instances of in-distribution bags is replaced, at least one.
    """
    trained = load_trained(name, seed, paths)
    model, test = trained.with_distances(list(DISTANCES)), trained.bags.split("test")
    sets = np.array(test.ood_sets, object)
    predictions = model.predict(test)
    assert predictions.instances is not None
    rows = _rows(name, seed, "bag", predictions.bags) + _rows(name, seed, "instance", predictions.instances)
    usual = test.subset(np.flatnonzero(sets == ""))
    before = predictions.bags.subset(np.flatnonzero(sets == "")).uncertainties()
    for source in sorted(set(sets) - {""}):
        mixed = _mixed(usual, test.subset(np.flatnonzero(sets == source)), seed)
        after = model.predict(mixed).bags.uncertainties()
        for score in before:
            area = _auroc(before[score], after[score])
            rows.append((name, str(seed), "", "bag", score, f"{source}, {SHARE:.0%} of a bag", f"{area:.4f}"))
    return rows


def scores_of_nuclei(seed: int, folds: Sequence[int], paths: Paths, bags: BagDataset) -> list[Row]:
    """Return the AUROC of every score for shifted copies of test bags, the mean over folds of trained models."""
    rows: dict[Row, list[float]] = {}
    for fold in folds:
        run = paths.work / "runs" / "nuclei" / "mirel" / f"{seed}-{fold}"
        if not run.exists():
            train_fold(Fold("mirel", seed, fold), bags).save(run)
        training, validation, test = fold_of(bags, seed, fold)
        model = with_distances(Model.load(run), list(DISTANCES), training, seed=seed, held_out=validation)
        shifted = shifted_copies(test, seed=derive_seed(seed, fold), shifts=NUCLEI_SHIFTS)
        predictions = model.predict(shifted)
        assert predictions.instances is not None
        for level, table in (("bag", predictions.bags), ("instance", predictions.instances)):
            for *row, area in _rows("nuclei/mirel", seed, level, table):
                rows.setdefault(tuple(row), []).append(float(area))
    return _means(rows, folds)


def looks_of_nuclei(seed: int, bags: BagDataset) -> list[Row]:
    """Return the AUROC of image statistics, for which no network is needed, the mean over ten folds."""
    rows: dict[Row, list[float]] = {}
    for fold in range(FOLDS):
        training, _, test = fold_of(bags, seed, fold)
        shifted = shifted_copies(test, seed=derive_seed(seed, fold), shifts=NUCLEI_SHIFTS)
        score = ImageStatistics.fit(_statistics(training), None, generator=torch.Generator())
        values = score.score(_statistics(shifted))
        of_bags = bag_distances(values, Segments(torch.from_numpy(shifted.sizes)))["mean"].numpy()
        sets = np.array(shifted.ood_sets, object)
        for level, scores, of in (
            ("bag", of_bags, sets),
            ("instance", values.numpy(), np.repeat(sets, shifted.sizes)),
        ):
            for shift in NUCLEI_SHIFTS:
                row = ("nuclei", str(seed), "", level, "statistics", shift)
                rows.setdefault(row, []).append(_auroc(scores[of == ""], scores[of == shift]))
    return _means(rows, range(FOLDS))


def _means(rows: Mapping[Row, Sequence[float]], folds: Sequence[int]) -> list[Row]:
    whole = " ".join(map(str, folds))
    return [(*row[:2], whole, *row[3:], f"{np.mean(areas):.4f}") for row, areas in rows.items()]


def _rows(name: str, seed: int, level: str, table: PredictionTable) -> list[Row]:
    sets = np.array(table.ood_sets, object)
    return [
        (name, str(seed), "", level, score, source, f"{_auroc(values[sets == ''], values[sets == source]):.4f}")
        for score, values in table.uncertainties().items()
        for source in dict.fromkeys(sets[sets != ""])
    ]


def _auroc(usual: np.ndarray, shifted: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([False, True], [len(usual), len(shifted)])
    return float(roc_auc_score(labels, np.concatenate([usual, shifted])))


def _statistics(bags: BagDataset) -> torch.Tensor:
    return image_statistics(torch.from_numpy(np.ascontiguousarray(bags.instances[bags.positions])))


def _mixed(usual: BagDataset, others: BagDataset, seed: int) -> BagDataset:
    random, images = np.random.default_rng(seed), np.asarray(others.instances[others.positions])
    mixed = []
    for start, size in zip(usual.starts, usual.sizes, strict=True):
        bag, count = np.array(usual.instances[start : start + size]), max(1, round(SHARE * size))
        bag[random.choice(size, count, replace=False)] = images[random.choice(len(images), count)]
        mixed.append(bag)
    return BagDataset.from_arrays(mixed)
