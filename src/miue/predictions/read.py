"""The one reader of predictions: a folder that miue wrote, or tables of any tool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from miue.bags.arrays import check_ids
from miue.bags.cells import one_form, row_name
from miue.bags.classes import check_names_given, quoted_order
from miue.bags.columns import are_their_numbers
from miue.common.errors import (
    ConfigError,
    DataError,
    StorageError,
    first_few,
    lacking,
    missing_column,
    not_a_folder,
    not_readable,
    one_of_two,
)
from miue.common.folder_kinds import EMPTY_SHARD
from miue.common.records import check_files, read_sealed
from miue.common.tables import read_columns, read_header
from miue.common.text import plural
from miue.common.values import checked
from miue.predictions.columns import classes_of_labels, recognize_columns, unread_columns
from miue.predictions.decode import TEXT, decode
from miue.predictions.folder import (
    BAGS,
    FORMAT,
    INSTANCES,
    VERSION,
    Predictions,
    Summary,
    columns_sha256,
)
from miue.predictions.parts import AGAIN, FOLDER, MAIN, check_folder
from miue.predictions.provenance import Provenance
from miue.predictions.stored_instances import StoredInstances
from miue.predictions.table import PredictionTable


@checked()
def read_predictions(
    path: Path | str,
    instances: Path | str | None = None,
    *,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    instance_columns: Mapping[str, str] | None = None,
) -> Predictions:
    """Return the predictions in a folder, or in the tables of any tool (CSV, plain or gzipped, or Parquet).

    Args:
        path: a folder of predictions, or a table with one row per bag.
        instances: a table with one row per instance, beside one of bags.
        classes: names in order, of predictions that have none of their own.
        columns: names of columns of the table of bags by what they are, such as {"bag_id": "slide"}; others are
            recognized by their names, see ``Predictions.columns_read``.
        instance_columns: likewise, of ``instances``.

    Raises:
        StorageError: no predictions there, a shard without bags, a file that was changed or belongs to other
            predictions, or a folder that another version of miue wrote.
        DataError: a table that cannot be used, a bag or an instance twice, instances with other classes than
            the bags, or of a bag that is not there.
        ConfigError: names of other classes, or of another number of them.
    """
    path, classes = Path(path), tuple(map(one_form, classes))
    check_names_given(classes, max(2, len(set(classes))), repr(str(path)))
    if path.exists() and not path.is_dir():
        table = None if instances is None else Path(instances)
        return _read_tables(path, table, classes, columns or {}, instance_columns or {})
    if instances is not None or columns or instance_columns:
        fix = "pass the bag table instead of the folder"
        raise one_of_two("a folder of predictions with instances or columns", fix=fix)
    if (path / EMPTY_SHARD).exists():
        raise StorageError(
            item=f"predictions {str(path)!r}",
            wanted="predictions of at least one bag",
            got="a shard without bags",
            fix="merge it with the other shards of this prediction",
        )
    if (path / "store.json").exists() or not ((path / MAIN).exists() or (path / BAGS).exists()):
        wanted = "predictions: a folder with bags.csv, or a table"
        of_labels = (table.parent for table in path.glob(f"*/{BAGS}"))
        within = sorted(map(str, (*path.glob("*/*/predictions"), *of_labels)))
        fix = "predict bags with a model" if path.is_dir() else "check the path"
        fix = f"name those in it: {first_few(within)}" if within else fix
        raise not_a_folder(path, wanted, fix)
    if not (path / MAIN).exists() and not (path / FOLDER).exists():
        table = next((path / name for name in INSTANCES if (path / name).exists()), None)
        return _read_tables(path / BAGS, table, classes, {}, {})
    return _with_classes(_read_folder(path), classes, path)


def _read_folder(folder: Path) -> Predictions:
    """Return predictions as miue wrote them, of which every file is checked.

    Labels are numbers of classes, which can be the names of others.
    """
    main, parts = folder / MAIN, folder / FOLDER
    read: dict[str, dict[str, np.ndarray]] = {}

    def digest(path: Path) -> str:
        read[path.name] = read_columns(path, TEXT)
        return columns_sha256(read[path.name], summary.locked_columns.get(path.name, ()), str(path))

    try:
        summary = Summary.model_validate(
            read_sealed(main, what="predictions", format_name=FORMAT, version=VERSION, again=AGAIN)
        )
    except ValidationError as error:
        raise not_readable(f"predictions {str(main)!r}", "what miue writes", error, AGAIN) from error
    check_files(main, {BAGS: "", **summary.files}, (BAGS, *INSTANCES), AGAIN, digest)
    names = summary.provenance.classes if are_their_numbers(summary.provenance.classes) else ()
    target = summary.provenance.target
    tables = {
        name: replace(decode(columns, str(folder / name), names), target=target) for name, columns in read.items()
    }
    bags = tables.pop(BAGS)
    check_folder(parts, summary.parts)
    instances = (
        StoredInstances(parts, summary.parts, target=target)
        if summary.parts
        else next(iter(tables.values()), None)
    )
    return _joined(bags, instances, summary.provenance, str(parts))


def _with_classes(predictions: Predictions, classes: Sequence[str], path: Path) -> Predictions:
    """Return predictions with names of their classes, where they have none of their own.

    Raises:
        ConfigError: they have others, in another order, or another number of them.
    """
    own = predictions.provenance.classes
    if not classes or list(map(one_form, own)) == list(classes):
        return predictions
    if own:
        raise ConfigError(
            item=quoted_order(classes),
            wanted=f"the classes that {str(path)!r} has, in their order: {quoted_order(own)}",
            got="others",
            fix="leave classes out; they are named where tables are read first",
        )
    check_names_given(classes, predictions.bags.distribution.num_classes, repr(str(path)))
    named = predictions.provenance.model_copy(update={"classes": tuple(classes)})
    return replace(predictions, provenance=named)


def _read_tables(
    bags: Path,
    instances: Path | None,
    classes: tuple[str, ...],
    columns: Mapping[str, str],
    instance_columns: Mapping[str, str],
) -> Predictions:
    """Return predictions from tables of any tool."""
    names, words, renamed, unread = _recognize(bags, classes, columns)
    if renamed or words:
        words = words or classes_of_labels(bags, names.get("label"))
    named = f"classes {', '.join(words)} (name them for another order)" if words and not classes else ""
    about: dict[str, Sequence[str]] = {bags.name: (renamed, named, unread)}
    of_bags, of_instances = read_table(bags, words, names), None
    check_ids(of_bags.bag_ids.astype(str).tolist())
    check_names_given(words, of_bags.distribution.num_classes, repr(str(bags)))
    if instances is not None:
        names, _, renamed, unread = _recognize(instances, words, instance_columns)
        about[instances.name] = (renamed, "", unread)
        of_instances = read_table(instances, words, names)
        _check_instances(of_instances, of_bags.distribution.num_classes, str(instances))
    read = _joined(of_bags, of_instances, Provenance(classes=words), str(instances))
    said = "; ".join(f"{name}: {'; '.join(filter(None, texts))}" for name, texts in about.items() if any(texts))
    return replace(read, instances=_with_ood_of_bags(read), columns_read=said)


def _recognize(
    path: Path, classes: tuple[str, ...], columns: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...], str, str]:
    """Return the column of each of our names in a table, the classes that its columns name, and both in words."""
    header, ours = read_header(path), {column: meaning for meaning, column in columns.items()}
    called = {ours.get(column, column): column for column in header if column in ours or column not in columns}
    found, words = recognize_columns(list(called), path, classes)
    names = {meaning: called[column] for meaning, column in found.items()} | dict(columns)
    renamed = ", ".join(f"{meaning} = {column!r}" for meaning, column in names.items() if column != meaning)
    return names, words, renamed, unread_columns(header, names.values())


def read_table(
    path: Path | str, classes: Sequence[str] = (), names: Mapping[str, str] | None = None
) -> PredictionTable:
    """Return the predictions in one table, whose columns are called as ours or as ``names`` says.

    Args:
        path: the table.
        classes: names that labels may have.
        names: columns that have other names, by ours.

    Raises:
        StorageError: missing or unreadable.
        DataError: columns that are missing or hold something else.
    """
    names = names or {}
    ours = {column: name for name, column in names.items()}
    read = read_columns(Path(path), TEXT | {column for name, column in names.items() if name in TEXT})
    columns = {ours.get(name, name): cells for name, cells in read.items() if name in ours or name not in names}
    if "bag_id" not in columns:
        raise missing_column(f"table {str(path)!r}", "a column 'bag_id'", columns, "name the id column bag_id")
    nameless = np.flatnonzero([not name.strip() for name in columns["bag_id"]])
    if len(nameless):
        item = f"table {str(path)!r}, {row_name(str(path), nameless[0])}, column 'bag_id'"
        raise lacking(item, "the name of a bag", "fill the cell, or drop the row")
    try:
        return decode(columns, str(path), classes)
    except DataError as error:  # which names columns as ours
        called = {f"column {ours[column]!r}": f"column {column!r}" for column in read if column in ours}
        item = re.sub(r"column '\w+'", lambda match: called.get(match[0], match[0]), error.item)
        raise error.replaced(item=item) from error


def _joined(
    bags: PredictionTable, instances: PredictionTable | None, provenance: Provenance, name: str
) -> Predictions:
    """Return predictions of bags and of their instances.

    Raises:
        DataError: an instance of a bag that is not listed.
    """
    listed = set(bags.bag_ids.astype(str).tolist())
    if unlisted := [bag for bag in (instances.bag_sizes() if instances is not None else ()) if bag not in listed]:
        raise DataError(
            item=f"table {name!r}, bag {unlisted[0]!r}",
            wanted="a bag that the table of bags lists",
            got=f"{plural(len(unlisted), 'bag')} that it does not",
            fix="add these bags, or drop their instances",
        )
    return Predictions(bags, instances, provenance)


def _check_instances(instances: PredictionTable, classes: int, name: str) -> None:
    """Raise a ``DataError`` where a table has other classes than its bags, or a position of a bag twice."""
    if instances.distribution.num_classes != classes:
        raise DataError(
            item=f"table {name!r}",
            wanted=f"{classes} classes, as the table of bags has",
            got=str(instances.distribution.num_classes),
            fix="write one column for each class into both tables",
        )
    if instances.instance is None:
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


def _with_ood_of_bags(predictions: Predictions) -> PredictionTable | None:
    """Return the instances, each out of distribution as its bag is where the table of instances says nothing."""
    bags, instances = predictions.bags, predictions.instances
    if instances is None or instances.is_ood.known.any():
        return instances
    rows = instances.rows_of_bags().places({str(name): row for row, name in enumerate(bags.bag_ids)})
    return replace(instances, is_ood=bags.is_ood[rows], ood_sets=bags.ood_sets[rows])
