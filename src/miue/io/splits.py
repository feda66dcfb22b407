"""Which bags are trained, validated and tested on, and that no patient is in two splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from miue.bags import BagDataset
from miue.bags.names import match_names
from miue.common.errors import DataError, lacking
from miue.common.text import PrintsAsTable, ResultTable
from miue.settings import ReadFile

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

        Raises:
            DataError: a name that may be that of two, or two names of one.
        """
        chosen = self.folds[fold]
        bag_names = bags.patient_groups if self.of_patients else bags.ids
        names = list(dict.fromkeys(bag_names))
        rows = dict(zip(chosen, match_names(list(chosen), names, self.source), strict=True))
        split_of = {names[row]: chosen[name] for name, row in rows.items() if row is not None}
        unknown = sorted(name for name, row in rows.items() if row is None)
        return tuple(split_of.get(name, "") for name in bag_names), unknown


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
    for split in [name for name in SPLITS if name in bags.splits]:
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
            raise DataError(
                item=f"patient {patient!r} in {source!r}",
                wanted="all bags of a patient in one split",
                got=f"{seen[patient]} and {split}",
                fix="move them into one, or draw the splits",
            )
