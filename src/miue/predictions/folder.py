"""Predictions: a distribution per bag and per instance beside what is known of them, as plain tables.

bags.csv              bag_id, label, is_ood, ood_set, alpha_0 … (or p_0 …), predicted, measures, score_…,
                      patient and patch_size where known, training_part of bags that the model was trained or
                      validated on (or others of their patients), and where a calibration was applied
                      decision, reason, prediction_set, calibrated_…
instances.csv[.gz]    the same with bag_id, instance
patients.csv          one row per patient, where any has several bags; made of bags.csv and not read back
predictions.json      what made them; not needed to read them

Any tool can write such tables: only bag_id and alpha_0 … or p_0 … (for two classes p_1 is enough) must
be there. Labels are class indices from 0, is_ood is true or false; either is empty, or not there, where unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from pydantic import ValidationError

from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.bags.table_columns import read_classes, read_coords, read_flags, with_named_sets
from miue.common.errors import DataError, lacking, missing_column, not_a_folder, not_readable
from miue.common.files import atomic_folder, check_format, read_json, write_json
from miue.common.result_table import PrintsAsTable, ResultTable
from miue.common.tables import read_columns, write_table
from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution
from miue.distributions.measures import MEASURES, compute_measures
from miue.predictions.decisions import Decisions, calibrated_columns, parse_prediction_sets
from miue.predictions.patients import by_patient
from miue.predictions.provenance import UNKNOWN, Provenance
from miue.predictions.table import SCORE_PREFIX, PredictionTable

FORMAT = "miue-predictions"
VERSION = 1
COMPRESSED_FROM = 20_000  # rows
TEXT = {"bag_id", "patient", "label", "is_ood", "ood_set", "decision", "reason", "prediction_set"}


@dataclass(frozen=True, repr=False)
class Predictions(PrintsAsTable):
    """Predictions of bags and of their instances.

    Attributes:
        bags: one item per bag.
        instances: one item per instance, or None where there are none.
        provenance: what made them.
    """

    bags: PredictionTable
    instances: PredictionTable | None
    provenance: Provenance = UNKNOWN

    def by_patient(self) -> PredictionTable | None:
        """Return one prediction per patient, None where no patient has several bags."""
        return by_patient(self.bags)

    def tables(self) -> Iterator[ResultTable]:
        """Return how many items there are of each level, and what is known of them."""
        levels = {"bags": self.bags, "instances": self.instances, "patients": self.by_patient()}
        rows = [
            (name, table, table.labels.known, table.is_ood.known, table.is_ood.out_of_distribution)
            for name, table in levels.items()
            if table is not None
        ]
        yield ResultTable(
            ("predictions", "items", "labelled", "known in distribution", "out of distribution"),
            tuple(
                (name, *(f"{count:,}" for count in (len(table), known.sum(), (is_known & ~out).sum(), out.sum())))
                for name, table, known, is_known, out in rows
            ),
            (f"{self.bags.distribution.num_classes} classes; each level is a table: predictions.bags.to_frame()",),
        )

    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the tables to the folder ``path``, whole or not at all.

        Raises:
            StorageError: ``path`` is taken, or the disk is full.
        """
        with atomic_folder(Path(path), overwrite=overwrite) as folder:
            _write_csv(folder / "bags.csv", self.bags)
            if self.instances is not None:
                large = len(self.instances) >= COMPRESSED_FROM
                _write_csv(folder / ("instances.csv.gz" if large else "instances.csv"), self.instances)
            of_patients = self.by_patient()
            if of_patients is not None:
                _write_csv(folder / "patients.csv", of_patients, id_column="patient")
            summary = {
                "format": FORMAT,
                "version": VERSION,
                **_sizes(self),
                "columns": {name: measure.describes for name, measure in MEASURES.items()},
                "provenance": self.provenance.to_json(),
            }
            write_json(folder / "predictions.json", summary)


def read_predictions(path: Path | str) -> Predictions:
    """Return the predictions in the folder ``path``.

    Raises:
        StorageError: no predictions there, or a newer format.
        DataError: a table that cannot be used, or of other sizes than predictions.json says.
    """
    folder = Path(path)
    if not (folder / "bags.csv").exists() or (folder / "store.json").exists():
        raise not_a_folder(
            folder,
            "predictions: a folder with bags.csv, or a table",
            "make them with 'miue predict RUN BAGS --out FOLDER'" if folder.is_dir() else "check the path",
        )
    tables = [folder / name for name in ("instances.csv", "instances.csv.gz") if (folder / name).exists()]
    if len(tables) > 1:
        raise DataError(
            item=f"predictions {str(folder)!r}",
            wanted="one table of instances",
            got=" and ".join(table.name for table in tables),
            fix="remove the one that is not of these predictions",
        )
    instances = tables[0] if tables else None
    if not (folder / "predictions.json").exists():
        return read_tables(folder / "bags.csv", instances)
    summary = read_json(folder / "predictions.json", what="predictions")
    item, fix = f"predictions {str(folder)!r}", "put back the tables that were written with it, or predict again"
    again = "update miue, or predict again"
    check_format(summary, item=item, format_name=FORMAT, version=VERSION, fix=again)
    try:
        provenance = Provenance.model_validate(summary.get("provenance"))
    except ValidationError as error:
        wanted = "provenance in predictions.json, as miue writes it"
        raise not_readable(item, wanted, error, "predict again") from error
    if instances is None and summary.get("instances", 0) != 0:
        wanted = f"a table of {summary['instances']} instances, as predictions.json says"
        raise lacking(item, wanted, fix)
    predictions = read_tables(folder / "bags.csv", instances, provenance)
    for key, read in _sizes(predictions).items():
        if summary.get(key) != read:
            wanted = f"{key} {summary.get(key)}, as predictions.json says"
            raise DataError(item=item, wanted=wanted, got=f"{read} in the tables", fix=fix)
    classes, count = provenance.classes, predictions.bags.distribution.num_classes
    if classes and len(classes) != count:
        wanted = f"names of {count} classes, as there are in the tables, under classes in predictions.json"
        raise DataError(item=item, wanted=wanted, got=repr(classes), fix=fix)
    return predictions


def _sizes(predictions: Predictions) -> dict[str, Any]:
    """Return what predictions.json says of the tables, so that a table that lost rows or columns is known."""
    return {
        "bags": len(predictions.bags),
        "instances": 0 if predictions.instances is None else len(predictions.instances),
        "distribution": type(predictions.bags.distribution).__name__.lower(),
    }


def read_tables(
    bags: Path | str,
    instances: Path | str | None = None,
    provenance: Provenance = UNKNOWN,
    *,
    names: Mapping[str, str] | None = None,
    instance_names: Mapping[str, str] | None = None,
) -> Predictions:
    """Read predictions from their tables, from this or any other tool (CSV, plain or gzipped).

    Args:
        bags: one row per bag.
        instances: one row per instance.
        provenance: what made them; labels may be the names of its classes.
        names: columns of ``bags`` that have other names, by ours.
        instance_names: likewise, of ``instances``.

    Raises:
        StorageError: missing or unreadable.
        DataError: a table that cannot be used, a bag twice, or an instance of a bag that is not there.
    """
    of_bags = read_table(bags, provenance.classes, names)
    ids, counts = np.unique(of_bags.bag_ids.astype(str), return_counts=True)
    if counts.max() > 1:
        raise DataError(
            item=f"table {str(bags)!r}, bag {str(ids[counts.argmax()])!r}",
            wanted="one row per bag",
            got=f"{counts.max()} rows",
            fix="keep one of them",
        )
    if instances is None:
        return Predictions(of_bags, None, provenance)
    of_instances = read_table(instances, provenance.classes, instance_names)
    unlisted = np.setdiff1d(of_instances.bag_ids.astype(str), ids)
    if len(unlisted):
        raise DataError(
            item=f"table {str(instances)!r}, bag {str(unlisted[0])!r}",
            wanted=f"a bag that {str(bags)!r} lists",
            got=f"{len(unlisted)} bags that it does not",
            fix="add these bags, or drop their instances",
        )
    return Predictions(of_bags, of_instances, provenance)


def read_table(
    path: Path | str, classes: Sequence[str] = (), names: Mapping[str, str] | None = None
) -> PredictionTable:
    """Read one table of predictions, from this or any other tool (CSV, plain or gzipped).

    Args:
        path: the table.
        classes: names that labels may have.
        names: columns that have other names, by ours.

    Raises:
        StorageError: missing or unreadable.
        DataError: columns that are missing or hold something else.
    """
    ours = {column: name for name, column in (names or {}).items()}
    read = read_columns(Path(path), TEXT | {column for column, name in ours.items() if name in TEXT})
    columns = {ours.get(column, column): values for column, values in read.items()}
    if "bag_id" not in columns:
        raise missing_column(f"table {str(path)!r}", "a column 'bag_id'", columns, "name the id column bag_id")
    return _table_from_columns(columns, str(path), classes)


def _table_from_columns(
    columns: Mapping[str, np.ndarray], name: str, classes: Sequence[str] = ()
) -> PredictionTable:
    count = len(columns["bag_id"])
    distribution = _distribution(columns, name)
    labels = Labels.unknown(count)
    if "label" in columns:
        labels = read_classes(columns["label"], name, "label", classes, num_classes=distribution.num_classes)
    flags = read_flags(columns["is_ood"], name) if "is_ood" in columns else OodFlags.unknown(count)
    is_ood, ood_sets = with_named_sets(flags, columns.get("ood_set", np.array([""] * count, object)), name)
    computed = compute_measures(distribution)
    scores: dict[str, np.ndarray] = {}
    for column, values in columns.items():
        if column.startswith(SCORE_PREFIX):
            scores[column.removeprefix(SCORE_PREFIX)] = _numbers(values, column, name)
        elif column in MEASURES and column not in computed:
            scores[column] = _numbers(values, column, name)
    instance = _numbers(columns["instance"], "instance", name).astype(np.int64) if "instance" in columns else None
    coords = None
    if instance is not None and {"x", "y"} <= set(columns):
        x, y = (_numbers_or_nan(columns[axis], axis, name) for axis in "xy")
        coords = read_coords(x, y, name)
    return PredictionTable(
        distribution=distribution,
        bag_ids=columns["bag_id"],
        labels=labels,
        is_ood=is_ood,
        ood_sets=ood_sets,
        instance=instance,
        scores=scores,
        coords=coords,
        decisions=_decisions(columns, name, distribution.num_classes),
        patients=columns.get("patient"),
        training_parts=columns.get("training_part"),
        patch_sizes=_numbers(columns["patch_size"], "patch_size", name).astype(np.int64)
        if "patch_size" in columns
        else None,
    )


def _decisions(columns: Mapping[str, np.ndarray], name: str, num_classes: int) -> Decisions | None:
    if "decision" not in columns:
        return None
    calibrated = calibrated_columns(columns)
    sets = (
        parse_prediction_sets(columns["prediction_set"], num_classes, name)
        if "prediction_set" in columns
        else None
    )
    return Decisions(
        decision=columns["decision"],
        reason=columns.get("reason", np.full(len(columns["decision"]), "", object)),
        prediction_sets=sets,
        calibrated=_distribution(calibrated, name) if calibrated else None,
    )


def _distribution(columns: Mapping[str, np.ndarray], name: str) -> PredictiveDistribution:
    """Return the Dirichlet of alpha_0 …, or the Categorical of p_0 … (or p_1 alone)."""
    _check_class_columns(columns, name)
    for prefix, kind in (("alpha_", Dirichlet), ("p_", Categorical)):
        present = [f"{prefix}{c}" for c in range(len(columns)) if f"{prefix}{c}" in columns]
        if len(present) == 1 and present == ["p_1"]:
            positive = _numbers(columns["p_1"], "p_1", name)
            return Categorical(torch.from_numpy(np.stack([1 - positive, positive], 1)))
        if len(present) >= 2 and present[-1] == f"{prefix}{len(present) - 1}":
            values = np.stack([_numbers(columns[column], column, name) for column in present], 1)
            try:
                if kind is Categorical and "expected_entropy" in columns:
                    expected = _numbers(columns["expected_entropy"], "expected_entropy", name)
                    return Draws(torch.from_numpy(values), torch.from_numpy(expected))
                return kind(torch.from_numpy(values))
            except DataError as error:
                raise DataError(
                    item=f"table {name!r}, {_as_line(error.item)}",
                    wanted=error.wanted,
                    got=error.got,
                    fix=error.fix,
                ) from error
    raise DataError(
        item=f"table {name!r}",
        wanted="columns alpha_0, alpha_1, … or p_0, p_1, … (p_1 alone for two classes)",
        got=", ".join(columns),
        fix="name the columns so",
    )


def _as_line(item: str) -> str:
    """Return the item of an error with the line of a file, after its header, for a row that counts from 0.

    >>> _as_line("row 0 of alpha")
    'line 2 of alpha'
    """
    return re.sub(r"^row (\d+)", lambda match: f"line {int(match[1]) + 2}", item)


def _check_class_columns(columns: Mapping[str, np.ndarray], name: str) -> None:
    """Raise unless alpha_0, … and p_0, … are whole, where there are any, and of the same classes."""
    numbers = {
        prefix: sorted(
            int(match[1]) for column in columns if (match := re.fullmatch(rf"{prefix}(\d{{1,9}})", column))
        )
        for prefix in ("alpha_", "p_")
    }
    alone = [1] if not numbers["alpha_"] and numbers["p_"] == [1] else None
    classes = 1 + max((number for known in numbers.values() for number in known), default=0)
    for prefix, known in numbers.items():
        missing = [number for number in range(classes) if number not in known]
        if known and (missing or classes < 2) and known != alone:
            raise DataError(
                item=f"table {name!r}",
                wanted=f"a column {prefix}{missing[0] if missing else 1} beside {prefix}{known[0]}",
                got=", ".join(columns),
                fix="put the column back, or predict again",
            )


def _numbers(values: np.ndarray, column: str, name: str) -> Float64[np.ndarray, "n"]:
    numbers = _numbers_or_nan(values, column, name)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(
            item=f"table {name!r}, line {bad[0] + 2}, column {column!r}",
            wanted="a finite number",
            got="none" if np.isnan(numbers[bad[0]]) else str(numbers[bad[0]]),
            fix=f"fill or drop the {len(bad)} rows without one",
        )
    return numbers


def _numbers_or_nan(values: np.ndarray, column: str, name: str) -> Float64[np.ndarray, "n"]:
    """Return a column of numbers, NaN where a cell is empty."""
    if values.dtype.kind not in "iufb":
        values = np.where(values.astype(str) == "", "nan", values.astype(str))
    try:
        numbers: np.ndarray = values.astype(np.float64)
    except ValueError as error:
        raise DataError(
            item=f"table {name!r}, column {column!r}", wanted="numbers", got=str(error), fix="correct the column"
        ) from error
    return numbers


def _write_csv(path: Path, table: PredictionTable, id_column: str = "bag_id") -> None:
    written = table.to_arrow()
    write_table(path, written.rename_columns([id_column, *written.column_names[1:]]))
