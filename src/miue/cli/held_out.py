"""Which bags a trained run may be calibrated on."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miue.common.errors import DataError

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset

STOPPED_EARLY = (
    "these bags also chose the epoch that training kept, so that the guarantees hold nearly, not exactly; "
    "a split of their own, named calibration, mends this"
)


def calibration_bags(run: Path, bags: BagDataset, split: str | None) -> tuple[BagDataset, dict[str, Any]]:
    """Return the bags to calibrate on, and what there is to say of them.

    Without ``split``: the split calibration, else validation, else the bags that training held out, else, where
    the bags have no splits and the run knows none of them, all.

    Raises:
        DataError: bags or patients that the model was trained on, or no bags that are known not to be.
    """
    from miue.bags.fingerprint import fingerprint
    from miue.common.files import read_json

    known = parts_of_run(run, bags)
    held_out = known.within("validation")
    marks = read_json(run / "run.json", what="run") if (run / "run.json").exists() else {}
    chosen, name = _chosen(bags, split, held_out)
    found = fingerprint(chosen)
    seen = len(known.or_of_their_patients("train") & set(chosen.ids))
    if name == "train" or seen or found == marks.get("training_bags"):
        raise DataError(
            item=f"split {name!r}",
            wanted="bags that took no part in training",
            got=f"{seen or len(chosen)} bags that the model was trained on, or others of their patients",
            fix="keep patients for calibration in a split of their own, and pass --split",
        )
    about: dict[str, Any] = {"split": name, "fingerprint": found}
    if found == marks.get("validation_bags") or held_out & set(chosen.ids):
        about["caveat"] = STOPPED_EARLY
    return chosen, about


@dataclass(frozen=True)
class PartsOfRun:
    """What bags were to the training of a run.

    Attributes:
        ids: of the bags.
        parts: of each bag, as far as the run tells: "train", "validation" or another, "" where it does not.
        patients: of each bag, or its own name.
        patients_in: all patients that the run lists, with the parts that their bags were in.
    """

    ids: tuple[str, ...]
    parts: tuple[str, ...]
    patients: tuple[str, ...]
    patients_in: Mapping[str, Set[str]]

    def within(self, *wanted: str) -> set[str]:
        """Return the bags that were in one of these parts."""
        return {name for name, part in zip(self.ids, self.parts, strict=True) if part in wanted}

    def or_of_their_patients(self, *wanted: str) -> set[str]:
        """Return the bags that were in one of these parts, and all others of their patients."""
        learned = {patient for patient, parts in self.patients_in.items() if not parts.isdisjoint(wanted)}
        learned |= {whose for part, whose in zip(self.parts, self.patients, strict=True) if part in wanted}
        return {name for name, whose in zip(self.ids, self.patients, strict=True) if whose in learned}


def parts_of_run(run: Path, bags: BagDataset) -> PartsOfRun:
    """Return what each bag was to the training of a run.

    A bag that the run does not list is the one that it lists under the same name but for endings of files.
    """
    from miue.io.labels.bag_names import key_of
    from miue.io.splits.files import read_parts
    from miue.io.splits.splits import patients_of

    path = run / "splits.csv"
    listed = read_parts(path) if path.exists() else {}
    by_key: dict[str, str] = {}
    for wanted in ("validation", "train"):  # where two bags differ in the ending alone, the stronger counts
        by_key |= {key_of(name): wanted for name, (part, _) in listed.items() if part == wanted}
    parts = [listed[name][0] if name in listed else by_key.get(key_of(name), "") for name in bags.ids]
    patients_in: dict[str, set[str]] = {}
    for part, patient in listed.values():
        patients_in.setdefault(patient, set()).add(part)
    return PartsOfRun(bags.ids, tuple(parts), tuple(patients_of(bags)), patients_in)


def _chosen(bags: BagDataset, split: str | None, held_out: set[str]) -> tuple[BagDataset, str]:
    if split == "all":
        return bags, "all bags"
    for name in ("calibration", "validation") if split is None else ():
        if name in bags.splits:
            return bags.split(name), name
    if split is not None or any(bags.splits):
        return bags.split(split or "calibration"), split or "calibration"
    rows = [row for row, name in enumerate(bags.ids) if name in held_out]
    if rows:
        return bags.subset(rows), "held out by training"
    return bags, "all bags"
