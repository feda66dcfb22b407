"""Which bags are trained, validated and tested on; how that is drawn; and that no patient is in two splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from miue.bags import BagDataset, check_dataset, draw_folds, hold_out
from miue.bags.drawing import folds_for
from miue.bags.names import match_names
from miue.common.errors import DataError, lacking, out_of_range
from miue.common.seeds import derive_seed
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.common.values import checked
from miue.settings import VALIDATION_SHARE, ReadFile

DRAWS: dict[str, tuple[int, ...]] = {"validation": (), "calibration": (1,)}
"""What the seeds of the two draws of a fold differ in."""
NO_CALIBRATION = "keep no bags for calibration"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, repr=False)
class Splits(ReadFile, PrintsAsTable):
    """Folds, each an assignment of bags, or of patients, to splits.

    Attributes:
        source: where they come from, for messages.
        folds: for each fold, the split of each name; names that are not there belong to none.
        of_patients: whether the names are those of patients.
    """

    source: str
    folds: tuple[Mapping[str, str], ...]
    of_patients: bool = False

    made_by: ClassVar[str] = "make them: miue.make_folds(bags, 5), or miue.make_split(bags)"  # for messages

    def __len__(self) -> int:
        return len(self.folds)

    def tables(self) -> tuple[ResultTable]:
        """Return how many bags, or patients, each fold has in each split."""
        counts = [Counter(fold.values()) for fold in self.folds]
        there = dict.fromkeys(split for count in counts for split in count)
        splits = sorted(there, key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))
        rows = tuple((str(fold), *(f"{count[split]:,}" for split in splits)) for fold, count in enumerate(counts))
        note = f"{'Patients' if self.of_patients else 'Bags'} of {self.source}"
        return (ResultTable(("fold", *splits), rows, (note,)),)

    def assign(self, bags: BagDataset, fold: int = 0) -> BagDataset:
        """Return ``bags`` with the splits of one fold.

        Raises:
            DataError: no such fold, a name without a bag or of two, a patient in two splits, an empty split
                or a class that a split has no bag of.
        """
        if not 0 <= fold < len(self):
            raise DataError(
                item=f"fold {fold} of {self.source!r}",
                wanted=f"a number from 0 to {len(self) - 1}",
                got=str(fold),
                fix="choose another fold",
            )
        assigned, unknown = self.split_bags(bags, fold)
        if unknown:
            kind = "patient" if self.of_patients else "bag"
            more = f", and {len(unknown) - 1} more" if unknown[1:] else ""
            raise DataError(
                item=f"{kind} {unknown[0]!r} of {self.source!r}",
                wanted=f"a {kind} of the data",
                got=f"no such one{more}",
                fix=f"add the features of the {kind}, take it out of the splits, or leave out what is not there "
                "(skip_bad=True)",
            )
        bags = replace(bags, splits=assigned)
        check_splits(bags, self.source)
        return bags

    def without_absent(self, bags: BagDataset) -> tuple[Splits, list[str]]:
        """Return the splits without the names that no bag or patient has, and these names.

        Where none of the names is there, which are then written in another way, the splits stay as they are.

        Raises:
            DataError: a name that may be that of two, or two names of one.
        """
        of_folds = [self.split_bags(bags, fold) for fold in range(len(self))]
        absent = {name for _, unknown in of_folds for name in unknown}
        if not any(any(assigned) for assigned, _ in of_folds):
            return self, []
        kept = ({name: part for name, part in fold.items() if name not in absent} for fold in self.folds)
        return replace(self, folds=tuple(kept)), sorted(absent)

    def split_bags(self, bags: BagDataset, fold: int) -> tuple[tuple[str, ...], list[str]]:
        """Return the split of each of ``bags``, "" for none, and the names that no bag or patient has.

        Names may be those of the slides that bags hold.

        Raises:
            DataError: a name that may be that of two, or two names of one; or slides of a bag in two splits.
        """
        bag_names = bags.patient_groups if self.of_patients else bags.ids
        split_of, unknown = self._match(list(dict.fromkeys(bag_names)), fold)
        if split_of or bags.slides is None:
            return tuple(split_of.get(name, "") for name in bag_names), unknown
        split_of, unknown = self._match(bags.slides.names, fold)
        of_bags = []
        for bag, slides in zip(bags.ids, bags.slides[bags.positions].of_bags(bags.sizes), strict=True):
            found = {split_of.get(slide, "") for slide in slides} - {""}
            if len(found) > 1:
                raise _in_two(f"{bags.bag_per} {bag!r} in {self.source!r}", *sorted(found))
            of_bags.append("".join(found))
        return tuple(of_bags), unknown

    def _match(self, names: Sequence[str], fold: int) -> tuple[dict[str, str], list[str]]:
        """Return the split of each of ``names`` that has one, and which names of a fold are none of them."""
        chosen = self.folds[fold]
        rows = dict(zip(chosen, match_names(list(chosen), names, self.source), strict=True))
        split_of = {names[row]: chosen[name] for name, row in rows.items() if row is not None}
        return split_of, sorted(name for name, row in rows.items() if row is None)


def check_splits(bags: BagDataset, source: str) -> None:
    """Raise unless no patient is in two splits and every split can be used.

    Raises:
        DataError: a patient in two splits, no bag to train on, or a split without a class that others have.
    """
    check_patients(bags, source)
    if "train" not in bags.splits:
        raise lacking(f"splits of {source!r}", "bags to train on", "check the file")
    known = bags.labels.known & ~bags.is_ood.out_of_distribution
    classes = set(np.unique(bags.labels.values[known]).tolist())
    has_classes = bags.outcomes is None and not bags.by_label()
    for split in [name for name in SPLITS if name in bags.splits and has_classes]:
        inside = known & (np.array(bags.splits) == split)
        missing = sorted(classes - set(bags.labels.values[inside].tolist()))
        if missing and inside.any():
            name = bags.class_names[missing[0]] if bags.class_names else str(missing[0])
            raise DataError(
                item=f"{split} bags of {source!r}",
                wanted="at least one bag of each class",
                got=f"none of class {name!r}",
                fix="choose other splits, or fewer folds",
            )


def check_patients(bags: BagDataset, source: str) -> None:
    """Raise unless all bags of a patient are in one split.

    Raises:
        DataError: a patient in two.
    """
    seen: dict[str, str] = {}
    for patient, split in zip(bags.patient_groups, bags.splits, strict=True):
        if split and seen.setdefault(patient, split) != split:
            raise _in_two(f"patient {patient!r} in {source!r}", seen[patient], split)


def _in_two(item: str, one: str, other: str) -> DataError:
    fix = "move them into one, or draw the splits"
    return DataError(item=item, wanted="all bags of a patient in one split", got=f"{one} and {other}", fix=fix)


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
    labels, groups = bags.strata[labeled], np.array(bags.patient_groups, object)[labeled]
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
            kept, aside = hold_out(bags.strata[rest], share, fold_seed, groups=groups[rest])
            names[name], rest = rest[aside], rest[kept]
    names["train"] = rest
    fold = {bags.ids[bag]: split for split, chosen in names.items() for bag in chosen}
    return fold | _ood_bags(bags, fold)


def _fewest_patients(bags: BagDataset) -> int:
    """Return how many patients the class with the fewest has."""
    known, strata = np.flatnonzero(bags.labels.known), bags.strata
    patients = {(strata[row], bags.patient_groups[row]) for row in known}
    counts = [sum(bool(label == number) for label, _ in patients) for number in range(len(bags.stratum_names))]
    return min(counts, default=0)


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
    names = bags.stratum_names
    counts = [len(set(groups[labels == c].tolist())) for c in range(len(names))]
    if min(counts) < wanted:
        rarest = int(np.argmin(counts))
        name = names[rarest]
        helping = (way for way, least in ways.items() if counts[rarest] >= least)
        who, least = ("patients", "bags of at least") if bags.patients else ("bags", "at least")
        raise DataError(
            item=f"class {name!r}",
            wanted=f"{least} {wanted} {who} {purpose}",
            got=str(counts[rarest]),
            fix=", or ".join((f"add {who} of this class", *helping)),
        )
