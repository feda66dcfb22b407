"""Splits of a data set, drawn by patient and class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from miue.bags import BagDataset, check_dataset, draw_folds, hold_out
from miue.bags.drawing import folds_for
from miue.common.errors import DataError, lacking, out_of_range
from miue.common.seeds import derive_seed
from miue.common.text import plural
from miue.common.values import checked
from miue.io.loaded import LoadedBags
from miue.io.splits import Splits
from miue.settings import VALIDATION_SHARE

DRAWS: dict[str, tuple[int, ...]] = {"validation": (), "calibration": (1,)}
"""What the seeds of the two draws of a fold differ in."""
NO_CALIBRATION = "keep no bags for calibration"


@checked()
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
        ConfigError: no dataset, fewer than two folds, or a share below 0 or of 1 and more.
        DataError: a class with too few patients.
    """
    check_dataset(bags)
    if count < 2:
        raise out_of_range("the number of folds", "at least 2", count)
    shares = {"validation": validation, "calibration": calibration}
    _check_shares(shares)
    purpose = f"for {count} folds", "draw fewer folds"
    tested = _test_folds(bags, count, calibration, seed, *purpose)
    folds = tuple(_fold(bags, rows, shares, seed, number) for number, rows in enumerate(tested))
    return Splits(f"{plural(count, 'fold')} made with seed {seed}", folds)


@checked()
def make_split(
    bags: BagDataset,
    *,
    test: float = 0.2,
    validation: float = VALIDATION_SHARE,
    calibration: float = 0.0,
    seed: int = 42,
) -> Splits:
    """Return one division of the bags, as ``miue train`` makes it; no patient in two splits, classes alike in all.

    Args:
        bags: with labels; bags without one are in no split, those out of distribution in the test split.
        test: share of the bags that is tested on, about.
        validation: share of the other bags that is validated on; none if 0.
        calibration: share of those that are left that is kept for ``miue calibrate``; none if 0.
        seed: of the draw.

    Raises:
        ConfigError: no dataset, or a share that is no number from 0 to below 1; ``test`` is above 0.
        DataError: a class with too few patients.

    >>> bags = BagDataset.from_arrays([np.ones((2, 3))] * 20, [0, 1] * 10)
    >>> splits = make_split(bags, calibration=0.3).assign(bags).splits
    >>> {name: splits.count(name) for name in sorted(set(splits))}
    {'calibration': 4, 'test': 4, 'train': 9, 'validation': 3}
    """
    check_dataset(bags)
    shares = {"validation": validation, "calibration": calibration}
    _check_shares(shares)
    if not 0 < test < 1:
        raise out_of_range("the share 'test'", "above 0 and below 1", test)
    count, held = folds_for(test, max(round(1 / test), _fewest_patients(bags) // (2 if calibration else 1)))
    purpose = f"to test on a share of {test:g}", "test on a larger share"
    tested = np.concatenate(_test_folds(bags, count, calibration, seed, *purpose)[:held])
    fold = _fold(bags, np.sort(tested), shares, seed, 0)
    return Splits(f"a split made with seed {seed}", (fold,))


def _check_shares(shares: Mapping[str, float]) -> None:
    for what, share in shares.items():
        if not 0 <= share < 1:
            raise out_of_range(f"the share {what!r}", "at least 0 and below 1", share)


def _test_folds(
    bags: BagDataset, count: int, calibration: float, seed: int, purpose: str, instead: str
) -> list[Int64[np.ndarray, "tested"]]:
    """Return the rows that are tested on in each fold; an error says what they are for, and what to do instead."""
    labeled = _labeled(bags)
    if not len(labeled):
        raise lacking(
            "the bags",
            "labels to draw a split by",
            "load them with labels=TABLE",
        )
    labels, groups = bags.labels.values[labeled], np.array(bags.patient_groups, object)[labeled]
    fewest, uncalibrated = 8 if calibration else 3, max(count, 3)
    wanted = max(2 * count, fewest) if calibration else uncalibrated
    ways = {instead: fewest} | ({NO_CALIBRATION: uncalibrated} if calibration else {})
    _check_patients(bags, labels, groups, wanted, purpose, ways)
    return [labeled[tested] for _, tested in draw_folds(labels, count, seed, groups=groups)]


def _labeled(bags: BagDataset) -> Int64[np.ndarray, "labeled"]:
    """Return the rows that are divided: labeled, and not out of distribution."""
    return np.flatnonzero(bags.labels.known & ~bags.is_ood.out_of_distribution)


def _fold(
    bags: BagDataset, tested: Int64[np.ndarray, "tested"], shares: Mapping[str, float], seed: int, number: int
) -> dict[str, str]:
    """Return the split of each bag in a fold: of those not tested on, a share of what is left for each name."""
    rest = np.setdiff1d(_labeled(bags), tested)
    groups, names = np.array(bags.patient_groups, object), {"test": tested}
    for name, share in shares.items():
        if share:
            fold_seed = derive_seed(seed, number, *DRAWS[name])
            kept, aside = hold_out(bags.labels.values[rest], share, fold_seed, groups=groups[rest])
            names[name], rest = rest[aside], rest[kept]
    names["train"] = rest
    fold = {bags.ids[bag]: split for split, chosen in names.items() for bag in chosen}
    return fold | _ood_bags(bags, fold)


def _fewest_patients(bags: BagDataset) -> int:
    """Return how many patients the class with the fewest has."""
    patients = {(bags.labels.values[row], bags.patient_groups[row]) for row in np.flatnonzero(bags.labels.known)}
    counts = [sum(label == number for label, _ in patients) for number in range(bags.num_classes)]
    return int(min(counts, default=0))


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


def _check_patients(
    bags: BagDataset, labels: np.ndarray, groups: np.ndarray, wanted: int, purpose: str, ways: Mapping[str, int]
) -> None:
    """Raise if a class has fewer patients than wanted; ``ways`` are other remedies and the patients they need."""
    counts = [len(set(groups[labels == c].tolist())) for c in range(bags.num_classes)]
    if min(counts) < wanted:
        rarest = int(np.argmin(counts))
        name = bags.class_names[rarest] if bags.class_names else str(rarest)
        helping = (way for way, least in ways.items() if counts[rarest] >= least)
        who, least = ("patients", "bags of at least") if bags.patients else ("bags", "at least")
        raise DataError(
            item=f"class {name!r}",
            wanted=f"{least} {wanted} {who} {purpose}",
            got=str(counts[rarest]),
            fix=", or ".join((f"add {who} of this class", *helping)),
        )


def draw_split(loaded: LoadedBags, validation_share: float) -> LoadedBags:
    """Return the bags with a split drawn by patient and class, where they have labels and no split.

    Args:
        loaded: the bags that are used: others have no share in what is drawn.
        validation_share: share of the bags outside the test split to validate on.
    """
    bags = loaded.bags
    if any(bags.splits) or not bags.labels.known.any():
        return loaded
    try:
        drawn = make_split(bags, validation=validation_share)
    except DataError as error:
        return replace(loaded, drawn=f"no split was drawn ({error})")
    said = f"split by {'patient and class' if bags.patients else 'class'} with seed 42"
    return replace(loaded, bags=drawn.assign(bags), drawn=said)
