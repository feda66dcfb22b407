"""Predictions: a distribution per bag and per instance beside what is known of them, in a folder.

bags.csv              bag_id, label, is_ood, ood_set, alpha_0 … (or p_0 …), predicted, measures, score_…,
                      patient and patch_size where known, training_part of bags that the model was trained or
                      validated on (or others of their patients), and where a calibration was applied
                      decision, reason, prediction_set, calibrated_…; flagged (of instances)
instances/            parts of the instances as Parquet files, see parts.py; or, in the format csv,
instances.csv[.gz]    the same columns as bags.csv with bag_id, instance
patients.csv          one row per patient, where any has several bags; made of bags.csv and not read back
predictions.json      what made them, and the list of the parts; not needed to read tables of CSV

Any tool can write such tables: only bag_id and alpha_0 … or p_0 … (for two classes p_1 is enough) must
be there. Labels are class indices from 0, is_ood is true or false; either is empty, or not there, where unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from miue.bags.arrays import check_ids
from miue.bags.names import match_names
from miue.common.errors import (
    ConfigError,
    DataError,
    first_few,
    lacking,
    missing_column,
    unknown_name,
)
from miue.common.files import atomic_folder, write_json
from miue.common.folder_kinds import PREDICTIONS
from miue.common.records import FILES, sealed
from miue.common.tables import read_columns, read_header, write_table
from miue.common.text import PrintsAsTable, ResultTable, bar
from miue.common.values import checked
from miue.distributions import MEASURES
from miue.predictions.decode import TEXT
from miue.predictions.parts import FIX, FOLDER, MAIN, Part, PartWriter
from miue.predictions.patients import by_patient
from miue.predictions.provenance import UNKNOWN, Provenance
from miue.predictions.stored_instances import StoredInstances
from miue.predictions.table import PredictionTable, uncertainty_column

FORMAT = "miue-predictions"
VERSION = 2
BAGS, INSTANCES = "bags.csv", ("instances.csv", "instances.csv.gz")
COMPRESSED_FROM = 20_000  # rows of a CSV table
FORMATS = ("parquet", "csv")
EDITABLE = ("label", "is_ood", "ood_set", "patient")
"""Columns of CSV tables that a person may correct, beside columns of their own; the digest is of the others."""
LOCKED = "locked_columns"
TABLES_JOINED = 64


class Summary(BaseModel):
    """What predictions.json says, as far as it is read back.

    Attributes:
        provenance: what made the predictions.
        files: digests of the tables of CSV by name, those of ``columns_sha256``.
        locked_columns: of each table, those that no one may change.
        parts: of the instances.
    """

    provenance: Provenance
    files: dict[str, str]
    locked_columns: dict[str, tuple[str, ...]]
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(PrintsAsTable):
    """Predictions of bags and of their instances.

    Attributes:
        bags: one item per bag.
        instances: one item per instance, or None where there are none.
        provenance: what made them.
        columns_read: which columns of tables of another tool were recognized and which were not read, in words.
    """

    bags: PredictionTable
    instances: PredictionTable | None
    provenance: Provenance = UNKNOWN
    columns_read: str = ""

    made_by: ClassVar[str] = "predict bags: model.predict(bags), or read them: miue.read_predictions(path)"

    def by_patient(self) -> PredictionTable | None:
        """Return one prediction per patient, None where no patient has several bags."""
        return by_patient(self.bags)

    def of_bags(self, ids: Sequence[str]) -> Predictions:
        """Return the predictions of some bags and of their instances.

        Args:
            ids: of the bags, as they are written or with the ending of a file.

        Raises:
            DataError: an id of no bag.
        """
        wanted, names = list(dict.fromkeys(ids)), self.bags.bag_ids.astype(str).tolist()
        rows = match_names(wanted, names, "ids")
        if unknown := [repr(name) for name, row in zip(wanted, rows, strict=True) if row is None]:
            got, fix = f"none called {first_few(unknown)}", "choose ids of bags that were predicted"
            raise DataError(item="ids", wanted="a bag of each id", got=got, fix=fix)
        chosen = {names[row] for row in rows if row is not None}
        instances = None if self.instances is None else self.instances.of_bags(chosen)
        return replace(self, bags=self.bags.of_bags(chosen), instances=instances)

    def per_slide(self) -> Predictions:
        """Return the predictions of slides: the instances of each, and for it what was predicted of its bag.

        Those of bags that do not hold several slides stay as they are.

        Raises:
            DataError: a slide of two bags.
        """
        held = {} if self.instances is None else self.instances.slides_of_bags()
        if not held or self.instances is None:
            return self
        names = self.bags.bag_ids.astype(str).tolist()
        pairs = [(row, slide or name) for row, name in enumerate(names) for slide in held.get(name, [name])]
        check_ids([slide for _, slide in pairs])
        bags = self.bags.subset(np.array([row for row, _ in pairs], np.int64))
        bags = replace(bags, bag_ids=np.array([slide for _, slide in pairs], object))
        return replace(self, bags=bags, instances=self.instances.per_slide())

    def tempered(self, temperature: float) -> Predictions:
        """Return the predictions at a temperature above 0; decisions, and instances by attention, stay."""
        instances = self.instances
        if instances is not None and self.provenance.estimator != "attention":  # no probabilities of classes
            instances = instances.tempered(temperature)
        return replace(self, bags=self.bags.tempered(temperature), instances=instances)

    def levels(self) -> dict[str, PredictionTable]:
        """Return the tables that there are of "bags", "instances" and "patients"."""
        tables = {"bags": self.bags, "instances": self.instances, "patients": self.by_patient()}
        return {name: table for name, table in tables.items() if table is not None}

    def tables(self) -> Iterator[ResultTable]:
        """Return how many items there are of each level, and what is known of them."""
        rows = [(name, count_known(table)) for name, table in self.levels().items()]
        yield ResultTable(
            ("predictions", "items", "labeled", "known in distribution", "out of distribution"),
            tuple((name, *(f"{count:,}" for count in counts)) for name, counts in rows),
            (f"{self.bags.distribution.num_classes} classes; each level is a table: predictions.bags.to_frame()",),
        )

    @checked()
    def save(
        self, path: Path | str, *, overwrite: bool = False, table_format: str = "parquet", progress: bool = False
    ) -> None:
        """Write the predictions to the folder ``path``, whole or not at all; no table of instances without any.

        Args:
            path: the folder.
            overwrite: replace what is there.
            table_format: of the instances: "parquet", in parts that are read one at a time, or "csv", one table.
            progress: show a bar with the time left while instances are written as Parquet.

        Raises:
            DataError: there is no bag, or one twice.
            StorageError: ``path`` is taken, or the disk is full.
            ConfigError: no such format.
        """
        check_table_format(table_format)
        check_not_empty(self)
        check_ids(self.bags.bag_ids.tolist())
        with atomic_folder(Path(path), PREDICTIONS, overwrite=overwrite) as folder:
            parts: list[Part] = []
            instances = self.instances or None  # a table without rows could not be read back
            if instances is not None and table_format == "csv":
                large = len(instances) >= COMPRESSED_FROM
                name = INSTANCES[large]
                _write_csv(folder / name, instances, exact_scores=self.provenance.shard is not None)
            elif instances is not None:
                ordered = instances.in_order(self.bags.bag_ids.astype(str).tolist())
                tables = ordered.parts() if isinstance(ordered, StoredInstances) else [ordered]
                with (
                    PartWriter(folder / FOLDER) as writer,
                    bar("instances", shown=progress, kept=False) as shown,
                ):
                    task = shown.add_task("writing", total=len(ordered))
                    for table in tables:
                        writer.add(table)
                        shown.advance(task, len(table))
                parts = writer.parts
            self.write_bags(folder, parts)

    def write_bags(self, folder: Path | str, parts: Sequence[Part]) -> None:
        """Write all but the instances into a folder that has these parts of them."""
        folder = Path(folder)
        _write_csv(folder / BAGS, self.bags, exact_scores=self.provenance.shard is not None)
        of_patients = self.by_patient()
        if of_patients is not None:
            _write_csv(folder / "patients.csv", of_patients, id_column="patient")
        headers = {name: read_header(folder / name) for name in (BAGS, *INSTANCES) if (folder / name).exists()}
        locked = {name: [column for column in of if column not in EDITABLE] for name, of in headers.items()}
        summary = {
            "format": FORMAT,
            "version": VERSION,
            "bags": len(self.bags),
            "instances": sum(part.rows for part in parts) if parts else len(self.instances or ()),
            "columns": {name: measure.describes for name, measure in MEASURES.items()},
            "provenance": self.provenance.to_json(),
            LOCKED: locked,
            FILES: {
                name: columns_sha256(read_columns(folder / name, TEXT), columns, str(folder / name))
                for name, columns in locked.items()
            },
            **({"parts": [part.model_dump(exclude_defaults=True) for part in parts]} if parts else {}),
        }
        write_json(folder / MAIN, sealed(summary))


def count_known(table: PredictionTable) -> tuple[int, int, int, int]:
    """Return the numbers of items, of labeled ones, and of those known to be in and out of distribution."""
    counts = np.zeros(4, np.int64)
    for part in table.known_parts():
        known = (part.labels.known, part.is_ood.in_distribution, part.is_ood.out_of_distribution)
        counts += [len(part), *(int(one.sum()) for one in known)]
    items, labeled, inside, outside = counts.tolist()
    return items, labeled, inside, outside


def check_table_format(name: str) -> None:
    """Raise unless instances can be written so.

    Raises:
        ConfigError: no such format.
    """
    if name not in FORMATS:
        raise unknown_name("format of tables", name, FORMATS)


def check_not_empty(predictions: Predictions) -> None:
    """Raise unless there are predictions of a bag, without which a table could not be read back.

    Raises:
        DataError: there are none.
    """
    if not len(predictions.bags):
        raise lacking("the predictions", "at least one bag", "predict bags, or choose others of the predictions")


@dataclass
class PredictionStream:
    """Predictions of some whole bags after another; they can be taken once.

    Attributes:
        batches: of some bags and of all their instances.
        provenance: what makes them.
        complete: adds what needs all bags, such as decisions; the predictions that it takes have no instances.
        taken: whether they were, also where that ended in an error.
    """

    batches: Iterator[tuple[PredictionTable, PredictionTable]]
    provenance: Provenance
    complete: Callable[[Predictions], Predictions]
    taken: bool = field(default=False, init=False)

    def collect(self) -> Predictions:
        """Return all of them, in memory.

        Raises:
            ConfigError: they were taken before.
        """
        bags, instances = zip(*self._take(), strict=True)
        return replace(self._of_bags(list(bags)), instances=PredictionTable.concatenate(list(instances)))

    def collect_bags(self) -> Predictions:
        """Return those of bags alone, in memory; those of instances are dropped as they come.

        Raises:
            ConfigError: they were taken before.
        """
        return self._of_bags(_joined(of_bags for of_bags, _ in self._take()))

    def save(self, path: Path | str, *, overwrite: bool = False, table_format: str = "parquet") -> Predictions:
        """Write them to the folder ``path``, whole or not at all, and return them as they are read from there.

        Parts of the instances are written while the next bags are computed, so that memory does not grow with the
        number of bags; as CSV they are collected first.

        Args:
            path: the folder.
            overwrite: replace what is there.
            table_format: of the instances, "parquet" or "csv".

        Raises:
            DataError: a bag is there twice.
            StorageError: ``path`` is taken, or the disk is full.
            ConfigError: no such format, or they were taken before.
        """
        check_table_format(table_format)
        if table_format == "csv":
            predictions = self.collect()
            predictions.save(path, overwrite=overwrite, table_format=table_format)
            return predictions
        with atomic_folder(Path(path), PREDICTIONS, overwrite=overwrite) as folder:
            with PartWriter(folder / FOLDER) as writer:
                bags = _joined(self._write_instances(writer))
            predictions = self._of_bags(bags)
            predictions.write_bags(folder, writer.parts)
        return replace(
            predictions,
            instances=StoredInstances(Path(path) / FOLDER, writer.parts, target=predictions.bags.target),
        )

    def _write_instances(self, writer: PartWriter) -> Iterator[PredictionTable]:
        """Write the instances, and yield the bags as they come.

        Raises:
            DataError: a bag is there twice.
        """
        seen: set[str] = set()
        for of_bags, of_instances in self._take():
            ids = of_bags.bag_ids.tolist()
            check_ids([*seen.intersection(ids), *ids])
            seen.update(ids)
            writer.add(of_instances)
            yield of_bags

    def _take(self) -> Iterator[tuple[PredictionTable, PredictionTable]]:
        """Return the batches.

        Raises:
            ConfigError: they were taken before: those that are left are not all.
        """
        if self.taken:
            raise ConfigError(
                item="the stream of predictions",
                wanted="one whose predictions were not taken yet",
                got="one that was collected or saved, or began to be",
                fix="make another with model.stream(bags), or read what was saved: miue.read_predictions(folder)",
            )
        self.taken = True
        return self.batches

    def _of_bags(self, tables: list[PredictionTable]) -> Predictions:
        return self.complete(Predictions(PredictionTable.concatenate(tables), None, self.provenance))


def _joined(tables: Iterable[PredictionTable]) -> list[PredictionTable]:
    """Return the same rows in fewer tables.

    A table of one bag has a dozen small arrays. Among the large arrays of instances, they keep the C library from
    using the memory between them again: a process grew by 60 kB for each slide of 12,000 instances.
    """
    rest = iter(tables)
    return [PredictionTable.concatenate(some) for some in iter(lambda: list(islice(rest, TABLES_JOINED)), [])]


def columns_sha256(columns: Mapping[str, np.ndarray], names: Sequence[str], table: str) -> str:
    """Return a digest of columns of a table of predictions, the same in any order of rows and columns.

    Numbers count in single precision, which nine significant digits keep.

    Args:
        columns: of the table, as they are read.
        names: of those that count.
        table: its name, for messages.

    Raises:
        DataError: a column that is not there.
    """
    if lost := [name for name in names if name not in columns]:
        raise missing_column(f"table {table!r}", f"the column {lost[0]!r}", columns, FIX)
    positions = [columns[name] for name in ("instance",) if name in names and columns[name].dtype.kind in "iuf"]
    order = np.lexsort([*positions, columns["bag_id"].astype(str)])
    digest = hashlib.sha256()
    for name in sorted(names):
        cells = columns[name][order]
        is_text = cells.dtype.kind not in "biuf"
        with np.errstate(over="ignore"):
            content = "\0".join(map(str, cells)).encode() if is_text else (cells.astype(np.float32) + 0).tobytes()
        digest.update(f"\0{name}\0".encode() + content)
    return digest.hexdigest()


def _write_csv(
    path: Path, table: PredictionTable, id_column: str = "bag_id", *, exact_scores: bool = False
) -> None:
    """Write a table; a shard has scores to their last digit, of which others are made."""
    written = table.to_arrow()
    for name, values in table.scores.items() if exact_scores else ():
        column = uncertainty_column(name)
        written = written.set_column(written.column_names.index(column), column, [values])
    write_table(path, written.rename_columns([id_column, *written.column_names[1:]]))
