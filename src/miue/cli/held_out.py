"""Which bags a trained run may be calibrated on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from miue.errors import DataError

if TYPE_CHECKING:
    from miue.bags import BagDataset

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
    from miue.files import read_json
    from miue.plan import fingerprint

    parts = zip(bags.ids, parts_of_run(run, bags), strict=True)
    held_out = {name for name, part in parts if part == "validation"}
    marks = read_json(run / "run.json", what="run") if (run / "run.json").exists() else {}
    chosen, name = _chosen(bags, split, held_out)
    found = fingerprint(chosen)
    seen = len(ids_learned_from(run, bags, "train") & set(chosen.ids))
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


def parts_of_run(run: Path, bags: BagDataset) -> list[str]:
    """Return what each bag was to the training of a run, as far as it tells: "train", "validation" or another.

    A bag that the run does not list is the one that it lists under the same name but for endings of files.
    """
    from miue.data.bag_names import key_of

    listed = _listed(run)
    by_key: dict[str, str] = {}
    for wanted in ("validation", "train"):  # where two bags differ in the ending alone, the stronger counts
        by_key |= {key_of(name): wanted for name, (part, _) in listed.items() if part == wanted}
    return [listed[name][0] if name in listed else by_key.get(key_of(name), "") for name in bags.ids]


def ids_learned_from(run: Path, bags: BagDataset, *parts: str) -> set[str]:
    """Return the bags that were in one of these parts of a run, and all others of their patients."""
    from miue.data.splits import patients_of

    own, patients = parts_of_run(run, bags), patients_of(bags)
    learned = {patient for part, patient in _listed(run).values() if part in parts}
    learned |= {patient for part, patient in zip(own, patients, strict=True) if part in parts}
    rows = zip(bags.ids, own, patients, strict=True)
    return {name for name, part, patient in rows if part in parts or patient in learned}


def _listed(run: Path) -> dict[str, tuple[str, str]]:
    from miue.data.splits import read_parts

    path = run / "splits.csv"
    return read_parts(path) if path.exists() else {}


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
