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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from miue.bags.arrays import check_ids
from miue.bags.names import match_names
from miue.bags.table_columns import are_their_numbers
from miue.common.digests import FILES, check_files, read_sealed, sealed
from miue.common.errors import (
    DataError,
    StorageError,
    first_few,
    lacking,
    missing_column,
    not_a_folder,
    not_readable,
    unknown_name,
    wrong_type,
)
from miue.common.files import atomic_folder, read_json, write_json
from miue.common.folder_kinds import EMPTY_SHARD, PREDICTIONS
from miue.common.tables import read_columns, read_header, write_table
from miue.common.text import PrintsAsTable, ResultTable, bar, plural
from miue.common.values import checked
from miue.distributions.measures import MEASURES
from miue.predictions.part_writer import PartWriter
from miue.predictions.parts import AGAIN, FIX, FOLDER, MAIN, Part, check_folder
from miue.predictions.patients import by_patient
from miue.predictions.provenance import UNKNOWN, Provenance
from miue.predictions.read_table import TEXT, read_table
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


@dataclass(frozen=True, eq=False, repr=False)
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

    checked_apart = True  # by check_predictions

    @property
    def _is_shard(self) -> bool:
        return self.provenance.shard is not None

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
                _write_csv(folder / name, instances, exact_scores=self._is_shard)
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
        _write_csv(folder / BAGS, self.bags, exact_scores=self._is_shard)
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
            FILES: {name: columns_sha256(folder / name, columns) for name, columns in locked.items()},
            **({"parts": [part.model_dump() for part in parts]} if parts else {}),
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


def check_predictions(predictions: object, item: str = "the predictions") -> None:
    """Raise unless ``predictions`` are predictions.

    Raises:
        ConfigError: a model, a path or anything else.
    """
    if isinstance(predictions, Predictions):
        return
    fix = "predict bags with a model: model.predict(bags)"
    if isinstance(predictions, str | Path):
        fix = f"read them: miue.read_predictions({str(predictions)!r})"
    raise wrong_type(item, "Predictions", predictions, fix)


@checked()
def read_predictions(path: Path | str) -> Predictions:
    """Return the predictions in the folder ``path``.

    Raises:
        StorageError: no predictions there, a shard without bags, a file that was changed or belongs to other
            predictions, or a folder that another version of miue wrote.
        DataError: a table of another tool that cannot be used.
    """
    folder = Path(path)
    if (folder / EMPTY_SHARD).exists():
        raise StorageError(
            item=f"predictions {str(folder)!r}",
            wanted="predictions of at least one bag",
            got=f"a shard without bags{_number_of_shard(folder / EMPTY_SHARD)}",
            fix="merge it with the other shards of this prediction: 'miue merge'",
        )
    main, bags, parts = folder / MAIN, folder / BAGS, folder / FOLDER
    if (folder / "store.json").exists() or not (main.exists() or bags.exists()):
        raise not_a_folder(
            folder,
            "predictions: a folder with bags.csv" + ("" if folder.is_file() else ", or a table"),
            _where_predictions_are(folder),
        )
    if not main.exists() and not parts.exists():
        return read_tables(bags, next((folder / name for name in INSTANCES if (folder / name).exists()), None))
    summary = read_sealed(main, what="predictions", format_name=FORMAT, version=VERSION, again=AGAIN)
    for name in (BAGS, *INSTANCES):
        digest = partial(columns_sha256, names=summary[LOCKED].get(name, ()))
        check_files(main, summary[FILES], [name], AGAIN, digest)
    try:
        provenance = Provenance.model_validate(summary["provenance"])
        listed = [Part.model_validate(part) for part in summary.get("parts", ())]
    except ValidationError as error:
        raise not_readable(f"predictions {str(main)!r}", "what miue writes", error, AGAIN) from error
    table = next((folder / name for name in INSTANCES if name in summary[FILES]), None)
    predictions = _read_tables(bags, table, provenance)
    check_folder(parts, listed)
    if not listed:
        return predictions
    return _with_instances(predictions, StoredInstances(parts, listed), str(parts))


def _read_tables(bags: Path, instances: Path | None, provenance: Provenance) -> Predictions:
    """Return predictions as miue writes them: labels are numbers of classes, which can be the names of others."""
    unmistakable = provenance.classes if are_their_numbers(provenance.classes) else ()
    read = _read_both(bags, instances, provenance.model_copy(update={"classes": unmistakable}), None, None)
    return replace(read, provenance=provenance)


def columns_sha256(path: Path, names: Sequence[str]) -> str:
    """Return a digest of columns of a table of predictions, the same in any order of rows and columns.

    Numbers count in single precision, which nine significant digits keep.

    Raises:
        DataError: a column that is not there.
    """
    columns = read_columns(path, TEXT)
    if lost := [name for name in names if name not in columns]:
        raise missing_column(f"table {str(path)!r}", f"the column {lost[0]!r}", columns, FIX)
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


def read_tables(
    bags: Path | str,
    instances: Path | str | None = None,
    provenance: Provenance = UNKNOWN,
    *,
    names: Mapping[str, str] | None = None,
    instance_names: Mapping[str, str] | None = None,
) -> Predictions:
    """Read predictions from their tables, from this or any other tool (CSV, plain or gzipped, or Parquet).

    Args:
        bags: one row per bag.
        instances: one row per instance.
        provenance: what made them; labels may be the names of its classes.
        names: columns of ``bags`` that have other names, by ours.
        instance_names: likewise, of ``instances``.

    Raises:
        StorageError: missing or unreadable.
        DataError: a table that cannot be used, a bag or an instance twice, instances with other classes than
            the bags, or of a bag that is not there.
    """
    predictions = _read_both(bags, instances, provenance, names, instance_names)
    _check_each_instance_once(predictions.instances, str(instances))
    return replace(predictions, instances=_with_ood_of_bags(predictions))


def _read_both(
    bags: Path | str,
    instances: Path | str | None,
    provenance: Provenance,
    names: Mapping[str, str] | None,
    instance_names: Mapping[str, str] | None,
) -> Predictions:
    """Return what ``read_tables`` does, perhaps with instances that are there twice."""
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
    _check_number_of_classes(of_bags, of_instances, str(instances))
    return _with_instances(Predictions(of_bags, None, provenance), of_instances, str(instances))


def _check_number_of_classes(bags: PredictionTable, instances: PredictionTable, name: str) -> None:
    """Raise a ``DataError`` if instances have more or fewer classes than their bags."""
    wanted, got = bags.distribution.num_classes, instances.distribution.num_classes
    if got != wanted:
        raise DataError(
            item=f"table {name!r}",
            wanted=f"{wanted} classes, as the table of bags has",
            got=str(got),
            fix="write one column for each class into both tables",
        )


def _check_each_instance_once(instances: PredictionTable | None, name: str) -> None:
    """Raise a ``DataError`` if two rows are of one position in one bag."""
    if instances is None or instances.instance is None:
        return
    bags = instances.rows_of_bags()
    order = np.lexsort((instances.instance, bags.bag))
    bag, position = bags.bag[order], instances.instance[order]
    repeated = np.flatnonzero((np.diff(bag) == 0) & (np.diff(position) == 0))
    if len(repeated):
        first = repeated[0]
        raise DataError(
            item=f"table {name!r}, bag {bags.names[bag[first]]!r}, instance {position[first]}",
            wanted="one row per instance",
            got="another row of it",
            fix=f"number the instances of each bag, or drop {plural(len(repeated), 'repeated row')}",
        )


def _with_instances(predictions: Predictions, instances: PredictionTable, name: str) -> Predictions:
    """Return the predictions with these instances, each of which belongs to a listed bag."""
    listed = set(predictions.bags.bag_ids.astype(str).tolist())
    unlisted = [bag for bag in instances.bag_sizes() if bag not in listed]
    if unlisted:
        raise DataError(
            item=f"table {name!r}, bag {unlisted[0]!r}",
            wanted="a bag that the table of bags lists",
            got=f"{plural(len(unlisted), 'bag')} that it does not",
            fix="add these bags, or drop their instances",
        )
    return replace(predictions, instances=instances)


def _with_ood_of_bags(predictions: Predictions) -> PredictionTable | None:
    """Return the instances, each out of distribution as its bag is where the table of instances says nothing."""
    bags, instances = predictions.bags, predictions.instances
    if instances is None or instances.is_ood.known.any():
        return instances
    rows = instances.rows_of_bags().places({str(name): row for row, name in enumerate(bags.bag_ids)})
    return replace(instances, is_ood=bags.is_ood[rows], ood_sets=bags.ood_sets[rows])


def _write_csv(
    path: Path, table: PredictionTable, id_column: str = "bag_id", *, exact_scores: bool = False
) -> None:
    """Write a table; a shard has scores to their last digit, of which others are made."""
    written = table.to_arrow()
    for name, values in table.scores.items() if exact_scores else ():
        column = uncertainty_column(name)
        written = written.set_column(written.column_names.index(column), column, [values])
    write_table(path, written.rename_columns([id_column, *written.column_names[1:]]))


def _number_of_shard(path: Path) -> str:
    """Return " (3/64)" of the record of a shard without bags, "" where it does not say."""
    shard = read_json(path, what="an empty shard").get("shard")
    if not isinstance(shard, dict) or not {"number", "count"} <= set(shard):
        return ""
    return f" ({shard['number']}/{shard['count']})"


def _where_predictions_are(folder: Path) -> str:
    """Return what to do where a path has no predictions, but perhaps folders in it have, such as all shards.

    Those of a cross-validation have the predictions of each run.
    """
    depths = ("*", "fold_*/seed_*/predictions")
    files = (f"{depth}/{name}" for depth in depths for name in ("bags.csv", EMPTY_SHARD))
    inside = sorted(found.parent for file in files for found in folder.glob(file))
    if inside and not any((one / "store.json").exists() for one in inside):
        return f"name those in it: {first_few(str(one) for one in inside)}"
    if folder.is_dir():
        return "make them with 'miue predict RUN BAGS --out FOLDER'"
    return "pass the folder (in Python, read_tables reads a table)" if folder.is_file() else "check the path"
