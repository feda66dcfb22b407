"""Do models that were calibrated as users do it detect shifted nuclei-bags, one by one and all together?

A repetition is a seed: of the 98 bags 30 are tested, 20 calibrate, 10 stop the training and choose its epoch. The
test bags and each of their shifted copies are then decided on as if they were new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset, OodFlags, hold_out
from miue.calibration import FalseAlarmGoal, calibrate, decide
from miue.common.errors import unknown_name
from miue.common.tables import read_rows, write_rows
from miue.datasets.image_shifts import shifted_copies
from papers.mirel.nuclei.experiment import METHOD_SETUPS, train_setup
from papers.mirel.nuclei.shifts import NUCLEI_SHIFTS

TEST_BAGS, CALIBRATION_BAGS, VALIDATION_BAGS = 30, 20, 10
FALSE_ALARMS = 0.1
UNSHIFTED = "none"


COLUMNS = ("shift", "flagged_share", "detected", "differing")
"""Of the stored files, in the order of the attributes."""


@dataclass(frozen=True)
class ShiftDetection:
    """How a set of test bags was judged.

    Attributes:
        shift: its name.
        flagged_share: share of the bags that were flagged as out of distribution, one by one.
        detected: whether all together differ from the calibration bags.
        differing: the uncertainties in which they differ.
    """

    shift: str
    flagged_share: float
    detected: bool
    differing: str


def parts_of(bags: BagDataset, seed: int) -> dict[str, BagDataset]:
    """Return the bags of each part, stratified by label: train, validation, calibration, test."""
    rest, parts = np.arange(len(bags)), {}
    for name, count in (("test", TEST_BAGS), ("calibration", CALIBRATION_BAGS), ("validation", VALIDATION_BAGS)):
        kept, chosen = hold_out(bags.labels.values[rest], count, seed)
        parts[name] = bags.subset(np.sort(rest[chosen]))
        rest = rest[kept]
    return {**parts, "train": bags.subset(np.sort(rest))}


def detect_shifts(bags: BagDataset, method: str, seed: int, device: str = "auto") -> list[ShiftDetection]:
    """Train and calibrate once; return how the test bags and each set of their shifted copies were judged.

    Raises:
        ConfigError: a method that takes no part.
    """
    if method not in METHOD_SETUPS:
        raise unknown_name("method", method, METHOD_SETUPS)
    parts = parts_of(bags, seed)
    model = train_setup(method, parts["train"], parts["validation"], seed, device)
    goal = FalseAlarmGoal(FALSE_ALARMS)
    held_out = model.predict(parts["calibration"], device=device)
    calibration = calibrate(held_out, scaling=False, deferral=None, prediction_sets=None, false_alarms=goal)
    predictions = model.predict(shifted_copies(parts["test"], seed=seed, shifts=NUCLEI_SHIFTS), device=device)
    detections = []
    for shift in ("", *NUCLEI_SHIFTS):
        table = predictions.bags.subset(np.flatnonzero(predictions.bags.ood_sets == shift))
        as_new = replace(table, is_ood=OodFlags.unknown(len(table)))
        decided = decide(replace(predictions, bags=as_new), calibration)
        together, decisions = decided.provenance.dataset_shift, decided.bags.decisions
        assert together is not None
        assert decisions is not None
        differing = " ".join((*together.higher, *together.lower))
        flagged_share = float(decisions.flagged.mean())
        detections.append(ShiftDetection(shift or UNSHIFTED, flagged_share, bool(together), differing))
    return detections


def detections_path(results: Path, method: str, seed: int) -> Path:
    """Return the file of one method and seed."""
    return results / "nuclei" / "detected-shifts" / f"{method}-{seed}.csv"


def write_detections(path: Path, detections: Sequence[ShiftDetection]) -> None:
    """Write a line for each shift, whole or not at all."""
    rows = [(d.shift, f"{d.flagged_share:.4f}", str(d.detected), d.differing) for d in detections]
    write_rows(path, COLUMNS, rows)


def read_detections(path: Path) -> list[ShiftDetection]:
    """Return what ``write_detections`` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    rows = read_rows(path)
    return [
        ShiftDetection(row["shift"], float(row["flagged_share"]), row["detected"] == "True", row["differing"])
        for row in rows
    ]
