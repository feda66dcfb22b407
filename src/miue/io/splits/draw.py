"""Splits of a data set, drawn by patient and class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from miue.bags.dataset import BagDataset
from miue.bags.drawing import draw_folds, hold_out
from miue.common.errors import DataError, lacking
from miue.common.plural import plural
from miue.common.seeds import derive_seed
from miue.io.splits.splits import Splits

VALIDATION_SHARE = 0.15


def make_folds(
    bags: BagDataset, count: int, *, validation: float = VALIDATION_SHARE, calibration: float = 0.0, seed: int = 42
) -> Splits:
    """Return ``count`` folds, each bag tested once; no patient in two splits, classes alike in all.

    Out-of-distribution bags are tested on in every fold that does not learn from their patient.

    Args:
        bags: with labels; bags without one are in no split.
        count: folds, at least two.
        validation: share of the bags outside the test split that is validated on; none if 0.
        calibration: share of those that are left that is kept for ``miue calibrate``; none if 0.
        seed: of the draw.

    Raises:
        DataError: a class with too few patients.
    """
    labelled = np.flatnonzero(bags.labels.known & ~bags.is_ood.out_of_distribution)
    if not len(labelled):
        raise lacking("the bags", "labels to draw a split by", "give a table of labels with --labels")
    labels, groups = bags.labels.values[labelled], np.array(bags.patient_groups, object)[labelled]
    _check_patients(bags, labels, groups, count, max(2 * count, 8) if calibration else max(count, 3))
    folds = []
    for number, (rest, tested) in enumerate(draw_folds(labels, count, seed, groups=groups)):
        names = {"test": labelled[tested]}
        for name, share, draw in (("validation", validation, ()), ("calibration", calibration, (1,))):
            if share:
                fold_seed = derive_seed(seed, number, *draw)
                kept, aside = hold_out(labels[rest], share, fold_seed, groups=groups[rest])
                names[name], rest = labelled[rest[aside]], rest[kept]
        names["train"] = labelled[rest]
        fold = {bags.ids[bag]: split for split, chosen in names.items() for bag in chosen}
        folds.append(fold | _ood_bags(bags, fold))
    return Splits(f"{plural(count, 'fold')} made with seed {seed}", tuple(folds))


def make_split(
    bags: BagDataset,
    *,
    test: float = 0.2,
    validation: float = VALIDATION_SHARE,
    calibration: float = 0.0,
    seed: int = 42,
) -> Splits:
    """Return one fold in which a share of about ``test`` of the bags is tested on, as ``make_folds`` draws it."""
    folds = make_folds(bags, max(2, round(1 / test)), validation=validation, calibration=calibration, seed=seed)
    return Splits(f"a split made with seed {seed}", folds.folds[:1])


def _ood_bags(bags: BagDataset, fold: Mapping[str, str]) -> dict[str, str]:
    """Return the out-of-distribution bags as test bags, but for those of a patient who is learned from."""
    learned = {
        p for p, name in zip(bags.patient_groups, bags.ids, strict=True) if fold.get(name, "test") != "test"
    }
    return {
        bags.ids[b]: "test"
        for b in np.flatnonzero(bags.is_ood.out_of_distribution)
        if bags.patient_groups[b] not in learned
    }


def _check_patients(bags: BagDataset, labels: np.ndarray, groups: np.ndarray, count: int, wanted: int) -> None:
    """Raise unless every class has enough patients for a bag of it in every split of every fold."""
    for c in range(bags.num_classes):
        patients = len(set(groups[labels == c].tolist()))
        if patients < wanted:
            name = bags.class_names[c] if bags.class_names else str(c)
            raise DataError(
                item=f"class {name!r}",
                wanted=f"bags of at least {wanted} patients for {count} folds",
                got=f"{patients}",
                fix="ask for fewer folds, or add patients of this class",
            )
