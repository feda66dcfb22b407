"""Which bags of which patients a model learned from, so that it knows them again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import numpy as np

from miue.bags import BagDataset
from miue.bags.classes import names_or_numbers
from miue.bags.names import NUMBERED, patients_in_names, strip_endings
from miue.common.tables import read_text_columns, write_rows

FILE = "splits.csv"
COMPARED_INSTANCES = 64
"""Of bags that are numbered; bags that are drawn from few images may well begin with the same one."""
COLUMNS = ("bag_id", "patient", "label", "fold_0", "content", "instances")


class TrainingBag(NamedTuple):
    """A bag as a run lists it, all as text.

    Attributes:
        name: of the bag.
        patient: whose it is, or the name of the bag.
        label: the name of its class, "" where unknown.
        part: "train", "validation" or another.
        content: a digest of it where its name is a number alone, else "".
        instances: their number, "" where the run lists none.
    """

    name: str
    patient: str
    label: str
    part: str
    content: str
    instances: str


@dataclass(frozen=True)
class TrainingBags:
    """The bags of a training: those that were learned from, validated on, and kept for later.

    Attributes:
        rows: all bags.
    """

    rows: tuple[TrainingBag, ...]

    @classmethod
    def of(cls, part_of: Mapping[str, str], *sources: BagDataset) -> TrainingBags:
        """Return the bags of several datasets, of one name the first, with the part of each name."""
        rows: dict[str, TrainingBag] = {}
        for bags in sources:
            names = names_or_numbers(bags.class_names, bags.num_classes)
            for row, name in enumerate(bags.ids):
                patient = (bags.patients[row] if bags.patients else "") or name
                label = names[int(bags.labels.values[row])] if bags.labels.known[row] else ""
                content = _digest(bags, row) if NUMBERED.fullmatch(name) else ""
                size = str(int(bags.sizes[row]))
                rows.setdefault(name, TrainingBag(name, patient, label, part_of.get(name, ""), content, size))
        return cls(tuple(rows.values()))

    @classmethod
    def load(cls, folder: Path) -> TrainingBags | None:
        """Return the training bags of the model in ``folder``, None where it does not list them.

        Raises:
            StorageError: a table that cannot be read.
        """
        path = folder / FILE
        if not path.exists():
            return None
        columns = read_text_columns(path)
        cells = zip(*(columns[name] for name in COLUMNS), strict=True)
        return cls(tuple(TrainingBag(*row) for row in cells))

    def save(self, folder: Path) -> None:
        """Write the bags into the folder of a model."""
        write_rows(folder / FILE, COLUMNS, self.rows)

    def compare(self, bags: BagDataset) -> PartsOfRun:
        """Return what each of ``bags`` was to the training.

        A bag that is not listed is the one that is listed under the same name but for endings of files. Where the
        run lists contents, bags that are numbered are known by what they hold, and patients by names of their own.
        """
        by_content, sizes, listed, by_key, patients_in, stated = self._known
        parts = tuple(
            by_content.get(_digest(bags, row), "")
            if by_content and NUMBERED.fullmatch(name)
            else listed.get(name, by_key.get(strip_endings(name), ""))
            for row, name in enumerate(bags.ids)
        )
        other_sizes = {
            name
            for name, size in zip(bags.ids, bags.sizes.tolist(), strict=True)
            if sizes.get(name, "") not in ("", str(size)) and not (by_content and NUMBERED.fullmatch(name))
        }
        return PartsOfRun(bags.ids, parts, bags.patient_groups, patients_in, frozenset(other_sizes), stated)

    @cached_property
    def _known(self) -> _Known:
        by_content = {row.content: row.part for row in self.rows if row.content}
        listed = {row.name: row.part for row in self.rows}
        by_key: dict[str, str] = {}
        for wanted in ("validation", "train"):  # where two bags differ in the ending alone, the stronger counts
            by_key |= {strip_endings(name): wanted for name, part in listed.items() if part == wanted}
        patients_in: dict[str, set[str]] = {}
        for row in self.rows:
            if not (by_content and NUMBERED.fullmatch(row.patient)):
                patients_in.setdefault(normalize("NFC", row.patient), set()).add(row.part)
        stated = {row.patient for row in self.rows if strip_endings(row.patient) != strip_endings(row.name)}
        sizes = {row.name: row.instances for row in self.rows}
        return _Known(by_content, sizes, listed, by_key, patients_in, tuple(sorted(stated)))


class _Known(NamedTuple):
    """What a run lists: parts by content, sizes and parts by name, parts by name without endings, and patients."""

    by_content: Mapping[str, str]
    sizes: Mapping[str, str]
    listed: Mapping[str, str]
    by_key: Mapping[str, str]
    patients_in: Mapping[str, Set[str]]
    stated: tuple[str, ...]


@dataclass(frozen=True)
class PartsOfRun:
    """What bags were to the training of a run.

    Attributes:
        ids: of the bags.
        parts: of each bag, as far as the run records it: "train", "validation" or another, "" where it does not.
        patients: of each bag, or its own name.
        patients_in: all patients that the run lists, with the parts that their bags were in.
        other_sizes: bags of which the run lists another number of instances: others of the same name, or the same
            with other features.
        stated_patients: those that the run lists and that are no names of bags.
    """

    ids: tuple[str, ...]
    parts: tuple[str, ...]
    patients: tuple[str, ...]
    patients_in: Mapping[str, Set[str]]
    other_sizes: Set[str]
    stated_patients: tuple[str, ...] = ()

    def within(self, *wanted: str) -> set[str]:
        """Return the bags that were in one of these parts."""
        return {name for name, part in zip(self.ids, self.parts, strict=True) if part in wanted}

    def or_of_their_patients(self, *wanted: str) -> set[str]:
        """Return the bags that were in one of these parts, and all others of their patients."""
        learned = {patient for patient, parts in self.patients_in.items() if not parts.isdisjoint(wanted)}
        learned |= {patient for part, patient in zip(self.parts, self.patients, strict=True) if part in wanted}
        return {name for name, patient in zip(self.ids, self.patients, strict=True) if patient in learned}

    def perhaps_of_their_patients(self, *wanted: str) -> dict[str, str]:
        """Return the bags whose names begin with that of a patient with bags in these parts, and that patient.

        Only bags that the run does not list and whose patient is not known. A name that begins alike is no proof.
        """
        unknown = [
            name
            for name, part, patient in zip(self.ids, self.parts, self.patients, strict=True)
            if not part and strip_endings(patient) == strip_endings(name)
        ]
        learned = [
            patient
            for patient in self.stated_patients
            if not self.patients_in.get(normalize("NFC", patient), set()).isdisjoint(wanted)
        ]
        begun = patients_in_names(unknown, learned)
        return {name: learned[rows[-1]] for name, rows in zip(unknown, begun, strict=True) if rows}

    def part_of(self) -> dict[str, str]:
        """Return "train" or "validation" of each bag that was used so, or another of its patient; else ""."""
        parts = dict.fromkeys(self.ids, "")
        for part in ("validation", "train"):  # the stronger counts
            parts |= dict.fromkeys(self.or_of_their_patients(part), part)
        return parts


def _digest(bags: BagDataset, row: int) -> str:
    """Return a key of the instances of one bag: their number and the first of them."""
    start, size = int(bags.starts[row]), int(bags.sizes[row])
    first = np.asarray(bags.instances[start : start + min(size, COMPARED_INSTANCES)], np.float32)
    return hashlib.sha256(f"{size} ".encode() + first.tobytes()).hexdigest()[:16]


def parts_of_run(run: Path, bags: BagDataset) -> PartsOfRun:
    """Return what each bag was to the training of a run; nothing where the run does not list its bags."""
    return (TrainingBags.load(run) or TrainingBags(())).compare(bags)
