"""Which bags a trained run may be calibrated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from miue.common.errors import DataError, first_few
from miue.common.text import plural, say

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset
    from miue.calibration import CalibrationBags
    from miue.model.training_bags import PartsOfRun


HELD_OUT = "held out by training"


def calibration_bags(run: Path, bags: BagDataset, split: str | None) -> tuple[BagDataset, CalibrationBags]:
    """Return the bags to calibrate on, and which these are.

    Bags without splits are in the split in which the run lists them. Without ``split``: the split calibration,
    else validation; where the bags have no splits, those that the run lists as calibration, else as validation;
    where it lists none of them, all.

    Raises:
        DataError: bags or patients that the model was trained on, or no bags that are known not to be.
    """
    from miue.bags.fingerprint import fingerprint
    from miue.calibration import CalibrationBags
    from miue.calibration.calibrate import STOPPED_EARLY
    from miue.common.files import read_json
    from miue.model.training_bags import parts_of_run

    known = parts_of_run(run, bags)
    if split is not None and not any(bags.splits) and split in known.parts:
        bags = replace(bags, splits=known.parts)
    held_out = known.within("validation")
    marks = read_json(run / "run.json", what="run") if (run / "run.json").exists() else {}
    chosen, name = _chosen(
        bags, split, {"calibration of the run": known.within("calibration"), HELD_OUT: held_out}
    )
    mark = fingerprint(chosen)
    seen = len(known.or_of_their_patients("train") & set(chosen.ids))
    if name == "train" or seen or mark == marks.get("training_bags"):
        raise DataError(
            item=f"split {name!r}",
            wanted="bags that took no part in training",
            got=f"{plural(seen or len(chosen), 'bag')} that the model was trained on, or others of their patients",
            fix="keep patients for calibration in a part of their own, and pass --part",
        )
    say_of_unknown_patients(known, chosen)
    validated = mark == marks.get("validation_bags") or held_out & set(chosen.ids)
    return chosen, CalibrationBags(split=name, fingerprint=mark, caveat=STOPPED_EARLY if validated else "")


def say_of_unknown_patients(of_run: PartsOfRun, chosen: BagDataset) -> None:
    """Say which of these bags may be of patients that the model learned from, by their names alone."""
    begun = of_run.perhaps_of_their_patients("train", "validation")
    if named := {name: begun[name] for name in chosen.ids if name in begun}:
        pairs = first_few(f"{name!r} of {patient!r}" for name, patient in named.items())
        say(
            f"note: {plural(len(named), 'bag')} may be of patients that the model learned from, by name alone: "
            f"{pairs}; if so, they are no test of the model: state patients in the table of --labels to be sure",
            err=True,
        )


def _chosen(bags: BagDataset, split: str | None, listed: Mapping[str, set[str]]) -> tuple[BagDataset, str]:
    """Return the bags, and their name; ``listed`` has those that the run lists, by the name to give them."""
    if split == "all":
        return bags, "all bags"
    for name in ("calibration", "validation") if split is None else ():
        if name in bags.splits:
            return bags.split(name), name
    if split is not None or any(bags.splits):
        return bags.split(split or "calibration"), split or "calibration"
    for part, names in listed.items():
        if names:
            return bags.subset([row for row, name in enumerate(bags.ids) if name in names]), part
    return bags, "all bags"
