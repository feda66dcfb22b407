"""Which bags are trained, validated and tested on: read, made by patient and class, checked, saved."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.data.bag_names import named_twice, places_of, rows_of
from miue.data.label_table import BAG_COLUMNS, fold_columns, known_text, read_text_columns, split_name
from miue.errors import DataError, StorageError
from miue.files import atomic_file
from miue.readers.arrays import UNREADABLE
from miue.readers.columns import PATIENT_COLUMNS, column_of, word_of
from miue.seeds import seed_of

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Splits:
    """Folds, each an assignment of bags, or of patients, to splits.

    Attributes:
        source: where they come from, for messages.
        folds: for each fold, the split of each name; names that are not there belong to none.
        of_patients: whether the names are those of patients.
    """

    source: str
    folds: tuple[Mapping[str, str], ...]
    of_patients: bool = False

    def __len__(self) -> int:
        return len(self.folds)

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
                fix="choose another --fold",
            )
        found, strangers = self.of_bags(bags, fold)
        if strangers:
            kind = "patient" if self.of_patients else "bag"
            raise DataError(
                item=f"{kind} {strangers[0]!r} of {self.source!r}",
                wanted=f"a {kind} of the data",
                got=f"no such one, and {len(strangers) - 1} more" if strangers[1:] else "no such one",
                fix="add their features, or take them out of the splits",
            )
        assigned = replace(bags, splits=found)
        check_splits(assigned, self.source)
        return assigned

    def of_bags(self, bags: BagDataset, fold: int) -> tuple[tuple[str, ...], list[str]]:
        """Return the split of each of ``bags``, "" for none, and the names that no bag or patient has.

        Raises:
            DataError: a name that may be that of two, or two names of one.
        """
        chosen = self.folds[fold]
        called = patients_of(bags) if self.of_patients else bags.ids
        names = list(dict.fromkeys(called))
        places = dict(zip(chosen, places_of(list(chosen), names, self.source), strict=True))
        split_of = {names[place]: chosen[name] for name, place in places.items() if place is not None}
        strangers = sorted(name for name, place in places.items() if place is None)
        return tuple(split_of.get(name, "") for name in called), strangers


def patients_of(bags: BagDataset) -> tuple[str, ...]:
    """Return whose each bag is: its own name where its patient is not known."""
    if bags.patients is None:
        return bags.ids
    return tuple(patient or name for patient, name in zip(bags.patients, bags.ids, strict=True))


def check_splits(bags: BagDataset, source: str) -> None:
    """Raise unless no patient is in two splits and every split can be used.

    Raises:
        DataError: a patient in two splits, no bag to train on, or a split without a class that others have.
    """
    check_patients(bags, source)
    if "train" not in bags.splits:
        raise DataError(item=f"splits of {source!r}", wanted="bags to train on", got="none", fix="check the file")
    known = bags.labels.known & ~bags.is_ood
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
    for patient, split in zip(patients_of(bags), bags.splits, strict=True):
        if split and seen.setdefault(patient, split) != split:
            raise DataError(
                item=f"patient {patient!r} in {source!r}",
                wanted="all bags of a patient in one split",
                got=f"{seen[patient]} and {split}",
                fix="move them into one, or make splits with 'miue data split'",
            )


def make_folds(
    bags: BagDataset, count: int, *, validation: float = 0.15, calibration: float = 0.0, seed: int = 42
) -> Splits:
    """Return ``count`` folds, each bag tested once; no patient in two splits, classes alike in all.

    Out-of-distribution bags are tested on in every fold that does not learn from their patient.

    Args:
        bags: with labels; bags without one are in no split.
        count: folds, at least two.
        validation: share of the bags outside the test split that is validated on.
        calibration: share of those that are left that is kept for ``miue calibrate``; none if 0.
        seed: of the draw.

    Raises:
        DataError: a class with too few patients.
    """
    labelled = np.flatnonzero(bags.labels.known & ~bags.is_ood)
    labels, groups = bags.labels.values[labelled], np.array(patients_of(bags), object)[labelled]
    _check_patients(bags, labels, groups, count, max(2 * count, 8) if calibration else max(count, 3))
    folds = []
    for number, (rest, tested) in enumerate(_group_folds(labels, groups, count, seed)):
        kept, validated = held_out(labels[rest], groups[rest].tolist(), validation, seed_of(seed, number))
        names = {"validation": labelled[rest[validated]], "test": labelled[tested]}
        if calibration:
            rest = rest[kept]
            kept, set_aside = held_out(labels[rest], groups[rest].tolist(), calibration, seed_of(seed, number, 1))
            names["calibration"] = labelled[rest[set_aside]]
        names = {"train": labelled[rest[kept]], **names}
        fold = {bags.ids[bag]: split for split, chosen in names.items() for bag in chosen}
        folds.append(fold | _foreign_bags(bags, fold))
    return Splits(f"{count} folds made with seed {seed}", tuple(folds))


def make_split(
    bags: BagDataset, *, test: float = 0.2, validation: float = 0.15, calibration: float = 0.0, seed: int = 42
) -> Splits:
    """Return one fold in which a share of about ``test`` of the bags is tested on, as ``make_folds`` draws it."""
    folds = make_folds(bags, max(2, round(1 / test)), validation=validation, calibration=calibration, seed=seed)
    return Splits(f"a split made with seed {seed}", folds.folds[:1])


def held_out(
    labels: np.ndarray, patients: Sequence[str], share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions kept and held out: about ``share`` of the bags, whole patients, classes alike.

    A bag whose patient is "", not known, is one of its own.
    """
    groups = np.array([patient or f"\0{row}" for row, patient in enumerate(patients)], object)
    fewest = min(len(set(groups[labels == c].tolist())) for c in np.unique(labels))
    return next(_group_folds(labels, groups, max(2, min(round(1 / share), fewest)), seed))


def _group_folds(
    labels: np.ndarray, groups: np.ndarray, count: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedGroupKFold

    yield from StratifiedGroupKFold(count, shuffle=True, random_state=seed % 2**32).split(labels, labels, groups)


def _foreign_bags(bags: BagDataset, fold: Mapping[str, str]) -> dict[str, str]:
    """Return the out-of-distribution bags as test bags, but for those of a patient who is learned from."""
    learned = {p for p, name in zip(patients_of(bags), bags.ids, strict=True) if fold.get(name, "test") != "test"}
    return {bags.ids[b]: "test" for b in np.flatnonzero(bags.is_ood) if patients_of(bags)[b] not in learned}


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


def read_splits(path: Path) -> Splits:
    """Return the splits at ``path``, of any of the kinds in use.

    This tool's and Patho-Bench's: a table with one row per bag and columns ``fold_0``, …; CLAM's: columns
    ``train``, ``val`` and ``test`` with ids below them, or one row per bag with truth values, in one file or a
    folder with ``splits_0.csv``, …; MIREL's: an .npz with ``train_patients``, ``val_patients``, ``test_patients``.

    Raises:
        StorageError: missing or unreadable.
        DataError: none of these kinds, or a bag in two splits.
    """
    if path.is_dir():
        return _from_folder(path)
    if path.suffix.lower() == ".npz":
        return Splits(str(path), (_from_npz(path),), of_patients=True)
    columns = read_text_columns(path)
    folds = [list(map(split_name, columns[name])) for name in fold_columns(path, columns).values()]
    if folds:
        names = columns[_id_column(path, columns)]
        return Splits(str(path), tuple(_by_name(path, names, fold) for fold in folds))
    return Splits(str(path), (_from_clam(path, columns),))


def read_parts(path: Path) -> dict[str, tuple[str, str]]:
    """Return split and patient of each bag in the first fold that ``write_splits`` wrote, "" of a bag in none.

    Raises:
        StorageError: missing, or not such a table.
    """
    columns = read_text_columns(path)
    if not {"bag_id", "patient", "fold_0"} <= set(columns):
        raise StorageError(
            item=f"splits {str(path)!r}",
            wanted="columns bag_id, patient and fold_0",
            got=f"columns {', '.join(columns)}",
            fix="put back the file that the training wrote",
        )
    parts = zip(map(split_name, columns["fold_0"]), columns["patient"], strict=True)
    return dict(zip(columns["bag_id"], parts, strict=True))


def write_splits(path: Path, splits: Splits, *sources: BagDataset) -> None:
    """Write ``splits`` as a table with one row per bag: bag_id, patient, label, fold_0, …

    Args:
        path: the file.
        splits: what is written.
        sources: the bags; those of a later source that are called as one of an earlier are not written again.
    """
    written: set[str] = set()
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["bag_id", "patient", "label", *(f"fold_{k}" for k in range(len(splits)))])
        for bags in sources:
            rows = _rows_of(bags, splits)
            writer.writerows(row for row in rows if row[0] not in written)
            written |= set(bags.ids)


def _rows_of(bags: BagDataset, splits: Splits) -> Iterator[tuple[str, ...]]:
    patients = patients_of(bags)
    folds = [splits.of_bags(bags, fold)[0] for fold in range(len(splits))]
    for row, name in enumerate(bags.ids):
        known = bool(bags.labels.known[row])
        label = bags.class_names[bags.labels.values[row]] if known and bags.class_names else ""
        yield (name, patients[row], label, *(fold[row] for fold in folds))


def _from_folder(folder: Path) -> Splits:
    numbered = [(int(m[1]), p) for p in folder.iterdir() if (m := re.fullmatch(r"splits_(\d+)\.csv", p.name))]
    if not numbered:
        raise StorageError(
            item=f"{str(folder)!r}",
            wanted="splits_0.csv, splits_1.csv, … as CLAM writes them",
            got="none of them",
            fix="check the path",
        )
    files = [path for _, path in sorted(numbered)]
    return Splits(str(folder), tuple(_from_clam(path, read_text_columns(path)) for path in files))


def _from_clam(path: Path, columns: Mapping[str, list[str]]) -> dict[str, str]:
    lower = {word_of(name): name for name in columns}
    present = {split_name(word): lower[word] for word in ("train", "val", "validation", "test") if word in lower}
    if "train" not in present:
        raise DataError(
            item=f"splits {str(path)!r}",
            wanted="columns train, val, test (CLAM), or fold_0, … with the id of a bag (Patho-Bench)",
            got=f"columns {', '.join(columns)}",
            fix="name the columns so",
        )
    values = {split: columns[name] for split, name in present.items()}
    truth = {"true", "false"}
    if all(text.strip().lower() in truth for column in values.values() for text in column):
        index = next((name for name in columns if name not in present.values()), None)
        if index is None:
            raise _no_id(path, columns)
        pairs = [
            (name, split)
            for row, name in enumerate(columns[index])
            for split, column in values.items()
            if column[row].strip().lower() == "true"
        ]
    else:
        pairs = [(text, split) for split, column in values.items() for text in column if known_text(text)]
    return _by_name(path, [name for name, _ in pairs], [split for _, split in pairs])


def _from_npz(path: Path) -> dict[str, str]:
    parts = {"train": "train_patients", "validation": "val_patients", "test": "test_patients"}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = {
                split: np.atleast_1d(arrays[name].astype(str)).tolist()
                for split, name in parts.items()
                if name in arrays
            }
    except UNREADABLE as error:
        raise StorageError(
            item=f"splits {str(path)!r}",
            wanted="an .npz of texts, without pickled objects",
            got=str(error).split("\n")[0],
            fix="save the names as arrays of text: np.array(names, dtype=str)",
        ) from error
    if "train" not in found:
        raise DataError(
            item=f"splits {str(path)!r}",
            wanted="an array train_patients",
            got=", ".join(parts[split] for split in found) or "none",
            fix=f"name the arrays {', '.join(parts.values())}",
        )
    pairs = [(name, split) for split, names in found.items() for name in names]
    return _by_name(path, [name for name, _ in pairs], [split for _, split in pairs])


def _by_name(path: Path, names: Sequence[str], splits: Sequence[str]) -> dict[str, str]:
    assigned = [(name, split) for name, split in zip(names, splits, strict=True) if split]
    listed = [name for name, _ in assigned]
    twice = named_twice(listed)
    if twice is not None:
        found = [assigned[row][1] for row in rows_of(twice, listed)]
        raise DataError(
            item=f"{twice!r} in splits {str(path)!r}",
            wanted="one split",
            got=" and ".join(dict.fromkeys(found)) if len(set(found)) > 1 else f"{found[0]} twice",
            fix="keep it in one",
        )
    return dict(assigned)


def _id_column(path: Path, columns: Mapping[str, list[str]]) -> str:
    found = column_of(columns, (*BAG_COLUMNS, *PATIENT_COLUMNS), str(path))
    if found is None:
        raise _no_id(path, columns)
    return found


def _no_id(path: Path, columns: Iterable[str]) -> DataError:
    return DataError(
        item=f"splits {str(path)!r}",
        wanted=f"a column with the id of the bag, such as {BAG_COLUMNS[0]}",
        got=f"columns {', '.join(columns)}",
        fix="name it so",
    )
