"""A monitor's folder: the bags so far, the course over them, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from miue.calibration.calibration import Calibration
from miue.calibration.monitoring.batch import Batch
from miue.calibration.monitoring.course import Course, monitor
from miue.calibration.monitoring.page import render_monitor
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.files import atomic_file, make_folder, remove_temporaries, write_json
from miue.common.outputs import holds_files, locked, temporaries
from miue.common.records import json_sha256, read_sealed, sealed
from miue.common.tables import read_columns, write_table
from miue.predictions import numbers_or_nan

FORMAT = "miue-monitor"
VERSION = 3
BAGS, COURSE, PAGE, STATE = "bags.csv", "course.csv", "monitor.html", "monitor.json"
TEXT_COLUMNS = ("batch", "bag_id", "patient")
OWN_COLUMNS = (*TEXT_COLUMNS, "predicted")
BEGIN_ANOTHER = "begin another monitor in a new folder"
SAME_WITHIN = 0.05
"""Of the largest value of a batch: the same bags predicted again in bf16-mixed deviated by up to 0.013 of it."""


def add_batches(
    folder: Path | str, calibration: Calibration, new: Sequence[Batch], scores: Sequence[str], *, chance: float
) -> Course:
    """Add batches to the monitor in ``folder``, which begins with the first, and write its course and page.

    A batch that is there already, with the same bags and predictions, is not added again. The bags are written
    first: after a kill, the next call writes the rest.

    Args:
        folder: of the monitor.
        calibration: of the deployed model; the same each time.
        new: batches in the order in which they came, after those that are there.
        scores: what is watched; the same each time.
        chance: of a false alarm ever; the same each time.

    Raises:
        ConfigError: another calibration, or other scores or another chance than the monitor began with.
        DataError: a bag that is there already, or a batch of the same name with other bags or predictions.
        StorageError: a damaged folder, one whose bags were changed, or one that cannot be written.
    """
    folder = Path(folder)
    with locked(folder):
        if not (folder / STATE).exists():
            first = _with_new([], new)
            monitor(calibration, first, scores=scores, chance=chance)  # raises before anything is written
        _check_state(folder, calibration, scores, chance)
        remove_temporaries(folder)
        batches = _with_new(_read_bags(folder / BAGS, scores, len(calibration.class_names)), new)
        course = monitor(calibration, batches, scores=scores, chance=chance)
        _check_course(folder, course)
        _write_bags(folder / BAGS, batches, scores)
        write_table(folder / COURSE, _course_columns(course))
        with atomic_file(folder / PAGE) as temporary:
            temporary.write_bytes(render_monitor(course))
    return course


def batch_names(folder: Path | str) -> list[str]:
    """Return the batches that the monitor in ``folder`` has, in their order; none where there is no monitor.

    Raises:
        StorageError: a table that cannot be read.
    """
    path = Path(folder) / BAGS
    columns = read_columns(path, text=TEXT_COLUMNS) if path.exists() else {}
    return list(dict.fromkeys(map(str, columns.get("batch", ()))))


def _with_new(batches: Sequence[Batch], new: Sequence[Batch]) -> list[Batch]:
    """Return the batches, then the new ones with a bag that are not among them, each once.

    One of which all bags were left out has no row in the file: counted now and forgotten by the next call, it
    would change the order within those after it.
    """
    together, by_name = list(batches), {batch.name: batch for batch in batches}
    for batch in new:
        if batch.name not in by_name and batch.ids:
            together.append(batch)
        before = by_name.setdefault(batch.name, batch)
        if others := sorted(set(before.ids) ^ set(batch.ids)):
            which = "without" if others[0] in before.ids else "with"
            raise DataError(
                item=f"the batch {batch.name!r}",
                wanted=f"the {len(before.ids):,} bags that this monitor has of it",
                got=f"{len(batch.ids):,}, {which} bag {others[0]!r}",
                fix="give a new batch a name of its own, that of its folder or file",
            )
        _refuse_other_values(before, batch)
    return together


def _refuse_other_values(before: Batch, again: Batch) -> None:
    """Raise where a batch of the same bags has other patients or values: it is another batch, or a corrected one.

    A patient that is stated no more is let pass, and so are values within `SAME_WITHIN`.
    """
    row_of = {bag: row for row, bag in enumerate(before.ids)}
    rows = [row_of[bag] for bag in again.ids]
    for bag, row, patient in zip(again.ids, rows, again.patients, strict=True):
        if patient not in ("", before.patients[row]):
            known = repr(before.patients[row]) if before.patients[row] else "unknown"
            raise _not_as_before(again.name, bag, "patient", known, repr(patient))
    for score in (name for name in before.values if name in again.values):
        kept, new = before.values[score][rows], again.values[score]
        largest = np.abs(kept[np.isfinite(kept)]).max(initial=0.0)
        if len(others := np.flatnonzero(~np.isclose(new, kept, rtol=0, atol=SAME_WITHIN * largest))):
            row = others[0]
            raise _not_as_before(again.name, again.ids[row], score, f"{kept[row]:.4g}", f"{new[row]:.4g}")


def _not_as_before(batch: str, bag: str, what: str, kept: str, new: str) -> DataError:
    return DataError(
        item=f"bag {bag!r} of the batch {batch!r}",
        wanted=f"the {what} that this monitor has of it: {kept}",
        got=new,
        fix="give another batch a name of its own, that of its folder or file, and its bags ids of their own; "
        f"after a correction, {BEGIN_ANOTHER} with all batches",
    )


def _check_state(folder: Path, calibration: Calibration, scores: Sequence[str], chance: float) -> None:
    """Raise unless the monitor began with these; begin it where there is none."""
    kept = calibration.model_dump(mode="json", include={"usual", "class_mix"})
    state = {"calibration_sha256": json_sha256(kept), "scores": list(scores), "chance": chance}
    path = folder / STATE
    if not path.exists():
        if folder.exists() and holds_files(folder, besides=temporaries(folder, STATE)):
            wanted, got = "an empty folder, or that of a monitor", f"{len(list(folder.iterdir()))} other files"
            raise StorageError(item=f"folder {str(folder)!r}", wanted=wanted, got=got, fix="name another folder")
        make_folder(folder)
        write_json(path, sealed({"format": FORMAT, "version": VERSION, **state}))
        return
    stored = read_sealed(path, what="monitor", format_name=FORMAT, version=VERSION, again=BEGIN_ANOTHER)
    for name, what in (("calibration_sha256", "calibration"), ("scores", "uncertainties"), ("chance", "chance")):
        if stored.get(name) != state[name]:
            wanted = f"the {what} that it began with: {stored.get(name)}"
            item, got = f"monitor {str(folder)!r}", str(state[name])
            raise ConfigError(item=item, wanted=wanted, got=got, fix=BEGIN_ANOTHER)


def _check_course(folder: Path, course: Course) -> None:
    """Raise unless the course begins with the one that was written: bags that are kept lead to it again.

    Raises:
        StorageError: bags were lost, added or changed since, or the course was.
    """
    path = folder / COURSE
    if not path.exists():  # as of a first call that was killed
        return
    try:
        columns = read_columns(path, text=("batch", "bag_id"))
    except (DataError, StorageError):
        columns = {}
    new = _course_columns(course)
    kept = len(columns.get("bag_id", ()))
    is_same = set(columns) == set(new) and kept <= len(course.ids)
    for name in new if is_same else ():
        ours, before = np.asarray(new[name])[:kept], columns[name]
        if name in ("batch", "bag_id"):
            is_same = is_same and list(map(str, ours)) == list(map(str, before))
        else:
            is_same = is_same and before.dtype.kind in "iuf" and np.allclose(ours, before, 1e-6, 1e-6, True)
    if not is_same:
        raise StorageError(
            item=f"monitor {str(folder)!r}",
            wanted=f"the bags in {BAGS} that {COURSE} was computed of",
            got="others: one of the two files was changed, or is damaged",
            fix=f"put back the file that was written; if {BAGS} is right, remove {COURSE}, which is computed "
            f"again, else {BEGIN_ANOTHER}",
        )


def _read_bags(path: Path, scores: Sequence[str], classes: int) -> list[Batch]:
    if not path.exists():
        return []
    columns = read_columns(path, text=TEXT_COLUMNS)
    if missing := [name for name in (*OWN_COLUMNS, *scores) if name not in columns]:
        raise _damaged(path, missing[0], "a column of that name", "none")
    if not np.isin(columns["predicted"], np.arange(classes)).all():
        raise _damaged(path, "predicted", f"a class of 0 to {classes - 1} for each bag", "something else")
    of_score = {}
    for score in scores:  # an uncertainty beyond float32 is infinite
        try:
            of_score[score] = numbers_or_nan(columns[score], score, str(path))
        except DataError as error:
            raise _damaged(path, score, error.wanted, error.got) from error
        if np.isnan(of_score[score]).any():
            raise _damaged(path, score, "a number for each bag", "a bag without one")
    names = columns["batch"].astype(str)
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    batches = []
    for rows in np.split(np.arange(len(names)), starts[1:]):
        patients = ("" if p is None else str(p) for p in columns["patient"][rows])
        values = {score: of_score[score][rows] for score in scores}
        ids = tuple(map(str, columns["bag_id"][rows]))
        predicted = columns["predicted"][rows].astype(np.int64)
        batches.append(Batch(str(names[rows[0]]), ids, tuple(patients), values, predicted))
    return batches


def _damaged(path: Path, column: str, wanted: str, got: str) -> StorageError:
    item = f"monitor {str(path)!r}, column {column!r}"
    return StorageError(item=item, wanted=wanted, got=got, fix=BEGIN_ANOTHER)


def _write_bags(path: Path, batches: Sequence[Batch], scores: Sequence[str]) -> None:
    columns = {
        "batch": [batch.name for batch in batches for _ in batch.ids],
        "bag_id": [name for batch in batches for name in batch.ids],
        "patient": [patient for batch in batches for patient in batch.patients],
        "predicted": np.concatenate([batch.predicted for batch in batches]),
    }
    values = {score: np.concatenate([batch.values[score] for batch in batches]) for score in scores}
    write_table(path, {**columns, **values})


def _course_columns(course: Course) -> dict[str, Any]:
    names = [course.batches[position].name for position in course.batch_of]
    evidence = {f"log10_evidence_{score}": course.log10_evidence[:, k] for k, score in enumerate(course.scores)}
    return {"batch": names, "bag_id": list(course.ids), **evidence}
