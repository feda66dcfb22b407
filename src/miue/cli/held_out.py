"""Which bags a trained run may be calibrated on."""

from __future__ import annotations

from collections.abc import Sequence
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

    parts = dict(zip(bags.ids, parts_of_run(run, bags.ids), strict=True))
    learned, held_out = ({name for name in parts if parts[name] == of} for of in ("train", "validation"))
    marks = read_json(run / "run.json", what="run") if (run / "run.json").exists() else {}
    chosen, name = _chosen(bags, split, held_out)
    found = fingerprint(chosen)
    seen = len(learned & set(chosen.ids))
    if name == "train" or seen or found == marks.get("training_bags"):
        raise DataError(
            item=f"split {name!r}",
            wanted="bags that took no part in training",
            got=f"{seen or len(chosen)} bags that the model was trained on",
            fix="keep bags for calibration in a split of their own, and pass --split; rename bags that are others",
        )
    _refuse_known_patients(bags, chosen, learned)
    about: dict[str, Any] = {"split": name, "fingerprint": found}
    if found == marks.get("validation_bags") or held_out & set(chosen.ids):
        about["caveat"] = STOPPED_EARLY
    return chosen, about


def parts_of_run(run: Path, names: Sequence[str]) -> list[str]:
    """Return what each bag was to the training of a run: "train", "validation", or "" as far as the run tells.

    A bag that the run does not list is the one that it lists under the same name but for endings of files.
    """
    from miue.data.bag_names import key_of
    from miue.data.splits import read_parts

    if not (run / "splits.csv").exists():
        return [""] * len(names)
    listed = read_parts(run / "splits.csv")
    by_key: dict[str, str] = {}
    for part in ("validation", "train"):  # where two bags differ in the ending alone, the stronger counts
        by_key |= {key_of(name): part for name in listed if listed[name] == part}
    return [listed[name] if name in listed else by_key.get(key_of(name), "") for name in names]


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


def _refuse_known_patients(bags: BagDataset, chosen: BagDataset, learned: set[str]) -> None:
    if bags.patients is None or chosen.patients is None:
        return
    known = {patient for patient, name in zip(bags.patients, bags.ids, strict=True) if name in learned}
    both = sorted((known & set(chosen.patients)) - {""})
    if both:
        raise DataError(
            item=f"patient {both[0]!r}",
            wanted="calibration bags of patients that took no part in training",
            got=f"{len(both)} patients with bags in both",
            fix="split by patient: miue data split, then train again with --splits",
        )
