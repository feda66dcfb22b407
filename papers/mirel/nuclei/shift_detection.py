"""Are shifted nuclei-bags noticed, one by one and all together, by models that were calibrated as users do it?

A repetition is a seed: of the 98 bags 30 are tested, 20 calibrate, 10 stop the training and choose its epoch. The
test bags and each of their shifted copies are then decided on as if they were new.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from miue.bags.dataset import BagDataset
from miue.bags.ood_flags import OodFlags
from miue.calibration import FalseAlarmGoal, calibrate, decide
from miue.calibration.dataset_shift import shift_of
from miue.common.errors import unknown_name
from miue.common.files import atomic_file
from miue.datasets.image_shifts import shifted_copies
from miue.pathology.stain_shifts import ALL_SHIFTS
from papers.mirel.nuclei.experiment import CONTENDERS, ENCODER, NETWORK, OPTIONS, SETTINGS

TEST_BAGS, CALIBRATION_BAGS, VALIDATION_BAGS = 30, 20, 10
FALSE_ALARMS = 0.1
UNSHIFTED = "none"


@dataclass(frozen=True)
class Noticed:
    """What came of one set of test bags.

    Attributes:
        shift: its name.
        called_out: share of the bags that were called out of distribution, one by one.
        noticed: whether all together were found different from the calibration bags.
        differ: the uncertainties by which they were.
    """

    shift: str
    called_out: float
    noticed: bool
    differ: str


def parts_of(bags: BagDataset, seed: int) -> dict[str, BagDataset]:
    """Return the bags of each part, stratified by label: train, validation, calibration, test."""
    rest, parts = np.arange(len(bags)), {}
    for name, count in (
        ("test", TEST_BAGS),
        ("calibration", CALIBRATION_BAGS),
        ("validation", VALIDATION_BAGS),
    ):
        rest, chosen = train_test_split(
            rest, test_size=count, stratify=bags.labels.values[rest], random_state=seed
        )
        parts[name] = bags.subset(np.sort(chosen))
    return {**parts, "train": bags.subset(np.sort(rest))}


def noticed_shifts(bags: BagDataset, method: str, seed: int, device: str = "auto") -> list[Noticed]:
    """Train and calibrate once; return what came of the test bags and of each of their shifted copies.

    Raises:
        ConfigError: a method that takes no part.
    """
    from miue.training.train import train

    if method not in CONTENDERS:
        raise unknown_name("method", method, CONTENDERS)
    parts = parts_of(bags, seed)
    model = train(
        parts["train"],
        validation=parts["validation"],
        network=NETWORK,
        method=method,
        encoder=ENCODER,
        options={**OPTIONS, **CONTENDERS[method].options},
        settings={**SETTINGS, "seed": seed},
        progress=False,
        device=device,
    )
    goal = FalseAlarmGoal(FALSE_ALARMS)
    held_out = model.predict(parts["calibration"], device=device)
    made = calibrate(held_out, scaling=False, referral=None, label_sets=None, false_alarms=goal)
    predictions = model.predict(shifted_copies(parts["test"], seed=seed, shifts=ALL_SHIFTS), device=device)
    found = []
    for shift in ("", *ALL_SHIFTS):
        table = predictions.bags.subset(np.flatnonzero(predictions.bags.ood_sets == shift))
        as_new = replace(table, is_ood=OodFlags.unknown(len(table)))
        decided = decide(replace(predictions, bags=as_new), made)
        together, decisions = shift_of(decided), decided.bags.decisions
        assert together is not None
        assert decisions is not None
        differ = " ".join((*together.higher, *together.lower))
        found.append(Noticed(shift or UNSHIFTED, float(decisions.flagged.mean()), bool(together), differ))
    return found


def noticed_file(results: Path, method: str, seed: int) -> Path:
    """Return the file of one method and seed."""
    return results / "nuclei" / "noticed-shifts" / f"{method}-{seed}.csv"


def write_noticed(path: Path, found: Sequence[Noticed]) -> None:
    """Write a line for each shift, whole or not at all."""
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Noticed)])
        writer.writerows((one.shift, f"{one.called_out:.4f}", one.noticed, one.differ) for one in found)


def read_noticed(path: Path) -> list[Noticed]:
    """Return what ``write_noticed`` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [Noticed(r["shift"], float(r["called_out"]), r["noticed"] == "True", r["differ"]) for r in rows]
