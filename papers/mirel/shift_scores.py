"""How well every score separates test bags from out-of-distribution ones, with a network or by looks alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import torch

from miue.bags import BagDataset, Segments, image_statistics
from miue.common.seeds import derive_seed
from miue.common.text import ResultTable
from miue.datasets.image_shifts import shifted_copies
from miue.model import Model
from miue.predictions import PredictionTable
from miue.scores import DISTANCES, ImageStatistics, bag_distances
from papers.mirel.nuclei.experiment import FOLDS, Fold, fold_of, train_fold
from papers.mirel.nuclei.shifts import NUCLEI_SHIFTS
from papers.mirel.paths import Paths
from papers.mirel.trained import load_trained, with_distances

COLUMNS = ("data", "seed", "folds", "level", "score", "against", "auroc")
SHARES = (0.1, 0.2)
NEAR = ("entropy", "mutual_information", "combined_mean", "combined_high", "combined")
Row = tuple[str, ...]


def scores_of_digits(name: str, seed: int, paths: Paths) -> list[Row]:
    """Return the AUROC of every score of one trained preset for test bags of each source, whole or in part.

    In part: some instances of in-distribution bags are replaced, at least one; what is replaced is also to be told
    from what is not.
    """
    trained = load_trained(name, seed, paths)
    model, test = trained.with_distances(list(DISTANCES)), trained.bags.split("test")
    sets = np.array(test.ood_sets, object)
    predictions = model.predict(test)
    assert predictions.instances is not None
    rows = _rows(name, seed, "bag", predictions.bags) + _rows(name, seed, "instance", predictions.instances)
    usual = test.subset(np.flatnonzero(sets == ""))
    before = predictions.bags.subset(np.flatnonzero(sets == "")).uncertainties()
    for source, share in product(sorted(set(sets) - {""}), SHARES):
        mixed, replaced = _mixed(usual, test.subset(np.flatnonzero(sets == source)), share, seed)
        found, against = model.predict(mixed), f"{source}, {share:.0%} of a bag"
        assert found.instances is not None
        after, within = found.bags.uncertainties(), found.instances.uncertainties()
        areas = [("bag", score, _auroc(values, after[score])) for score, values in before.items()]
        areas += [("instance", score, _auroc(v[~replaced], v[replaced])) for score, v in within.items()]
        rows += [(name, str(seed), "", level, score, against, f"{area:.4f}") for level, score, area in areas]
    return rows


def near_table(rows: Sequence[Mapping[str, str]]) -> ResultTable:
    """Return the mean AUROC over seeds for bags of which a part is of another source, in %."""
    areas: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["score"] in NEAR and row["against"].endswith("of a bag"):
            areas[row["data"], row["level"], row["against"], row["score"]].append(100 * float(row["auroc"]))
    shown = []
    for data, level, against in dict.fromkeys(key[:3] for key in areas):
        found = [areas.get((data, level, against, score), []) for score in NEAR]
        cells = [f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "—" for values in found]
        shown.append((data, level, against, str(max(map(len, found))), *cells))
    return ResultTable(("preset", "level", "replaced", "seeds", *NEAR), tuple(shown))


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


def _mixed(usual: BagDataset, others: BagDataset, share: float, seed: int) -> tuple[BagDataset, np.ndarray]:
    """Return bags with a share of their instances replaced, and which these are."""
    random, images = np.random.default_rng(seed), np.asarray(others.instances[others.positions])
    mixed, replaced = [], []
    for start, size in zip(usual.starts, usual.sizes, strict=True):
        bag, count = np.array(usual.instances[start : start + size]), max(1, round(share * size))
        chosen = random.choice(size, count, replace=False)
        bag[chosen] = images[random.choice(len(images), count)]
        mixed.append(bag)
        replaced.append(np.isin(np.arange(size), chosen))
    return BagDataset.from_arrays(mixed), np.concatenate(replaced)
