"""Which bags are at a path: those of a store, of the files of a folder, or of a long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from miue.bags.cells import known_text
from miue.bags.classes import known_labels
from miue.bags.column_names import BAG, NAMES
from miue.common.errors import ConfigError, DataError, first_few
from miue.common.folder_kinds import kind_of
from miue.common.text import plural
from miue.io.folders.bag_folder import open_files
from miue.io.folders.discovery import bag_files, bag_files_below, has_bag_files
from miue.io.loaded import FoundBags, LeftOut, LoadedBags, ReadOptions, refuse_or_skip
from miue.io.raw_bags import RawBags, to_dataset
from miue.io.store.store import read_raw_store
from miue.io.tables.columns import find_column
from miue.io.tables.long_table import read_long_table
from miue.io.tables.table_files import (
    TableFiles,
    find_tables,
    is_table_file,
    may_have_features,
    most_alike,
    tables_in,
)


def find_bags(
    path: Path,
    columns: Mapping[str, str],
    classes: Sequence[str] = (),
    options: ReadOptions = ReadOptions(),  # noqa: B008  (frozen)
    features: Sequence[str] = (),
) -> FoundBags:
    """Return which bags are at ``path``; the files of a folder are opened when they are read.

    Args:
        path: a store, a folder of bag files, a long table or a folder of tables.
        columns: names of columns of a long table, by what they mean.
        classes: order of the classes of a long table.
        options: how the files of a folder are read.
        features: names or patterns of the columns of a long table that are features; all without a meaning if
            empty.

    Raises:
        DataError, StorageError: no bags there, or such as cannot be used.
        ConfigError: an option that fits only another kind of bags.
    """
    is_table = is_long_table(path)
    check_options_fit(path, columns, options, features, is_table=is_table)
    if is_folder(path) and not is_table:
        files = bag_files(path, options.feature_key)
        return FoundBags(
            str(path),
            tuple(files.by_id),
            False,
            lambda names, left_out, _: open_files(files, names, left_out, options=options),
        )
    raw = read_long_table(path, columns=columns, features=features) if is_table else read_raw_store(path)
    labels = known_labels(raw.of_bags.get("label", ()), raw.source, raw.class_names or classes)
    has = {"label": any(labels), "patient": any(map(known_text, raw.of_bags.get("patient", ())))}
    own = {meaning: name for meaning, name in raw.columns.items() if has.get(meaning)}
    ids = [name for name in raw.ids if name not in raw.bad]
    read = partial(_choose, str(path), raw, options.skip_bad)
    return FoundBags(str(path), (*ids, *raw.bad), has["label"], read, own if is_table else None)


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at ``path`` that is no store."""
    return path.is_dir() and not (path / "store.json").exists()


def is_long_table(path: Path) -> bool:
    """Return whether there is a table of instances at ``path``, or a folder of them and of no other bag files.

    Raises:
        DataError: a folder of tables of instances in which there are a few other bag files.
    """
    if not is_folder(path):
        return is_table_file(path)
    if kind_of(path) is not None:
        return False
    if has_bag_files(path):
        _refuse_files_among_tables(path)
        return False
    return any(map(may_have_features, find_tables(path)))


def _refuse_files_among_tables(folder: Path) -> None:
    """Raise where more tables of a folder are alike than it has bag files, so that either may be the bags."""
    tables = tables_in(folder)
    files = list(bag_files_below(folder)) if len(tables) > 1 else []
    if not 0 < len(files) < len(tables):
        return
    alike = most_alike(tables)
    if len(alike) <= len(files):
        return
    raise DataError(
        item=repr(str(folder)),
        wanted="bags of one kind: tables of instances, or other bag files",
        got=f"{plural(len(alike), 'table')} ({first_few(file.name for file in alike)}) and "
        f"{plural(len(files), 'other file')} ({first_few(str(file.relative_to(folder)) for file in files)})",
        fix="put those that are no bags, or of another kind, elsewhere",
    )


def features_of_model(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a model was trained on, where ``path`` is a table that has them all; else none.

    Raises:
        StorageError: a table that cannot be read.
        DataError: a folder of tables with different columns.
    """
    if not names or not is_long_table(path):
        return ()
    return tuple(names) if set(names) <= set(TableFiles.at(path, {}).header) else ()


def named_id_column(path: Path, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the column of ids that is named beside a label table, if the table of instances needs it, too.

    That is where ``path`` is a table of instances that has such a column, and none that is called as one of ids.

    Raises:
        StorageError: a table that cannot be read.
        DataError: a folder of tables with different columns.
    """
    name = columns.get(BAG)
    if name is None or not is_long_table(path):
        return {}
    header = TableFiles.at(path, {}).header
    return {BAG: name} if name in header and find_column(header, NAMES[BAG], str(path)) is None else {}


def check_options_fit(
    path: Path, columns: Mapping[str, str], options: ReadOptions, features: Sequence[str], *, is_table: bool
) -> None:
    """Raise where an option fits only another kind of bags than there are at ``path``; see ``find_bags``.

    Args:
        path: of the bags.
        columns: as for ``find_bags``.
        options: how the files of a folder are read.
        features: as for ``find_bags``.
        is_table: what ``is_long_table`` says of the path, which looks into all folders there.

    Raises:
        ConfigError: the option, and what it fits.
    """
    of_files = is_folder(path) and not is_table
    if columns and not is_table:
        raise ConfigError(
            item=f"--{next(iter(columns)).replace('bag_id', 'id')}-column (in Python columns)",
            wanted="a table of instances, or --labels (labels) with a table of bags",
            got=repr(str(path)),
            fix="pass the labels, or leave the columns out",
        )
    if features and not is_table:
        raise ConfigError(
            item="--features (in Python features)",
            wanted="a table with one row per instance (CSV, Parquet) or a folder of them, whose columns it names",
            got=repr(str(path)) if path.exists() else f"{str(path)!r}, which is not there",
            fix="leave it out; the features of a folder or a store are all used",
        )
    if options.microns_per_pixel is not None and not of_files:
        raise ConfigError(
            item="--mpp (in Python microns_per_pixel)",
            wanted="a folder of feature files beside it",
            got=f"{str(path)!r}" if path.exists() else f"{str(path)!r}, which is not there",
            fix="leave it out, or pass the folder",
        )
    if options.feature_key and not of_files:
        raise ConfigError(
            item="--feature-key (in Python feature_key)",
            wanted="a folder of SpatialData stores (<slide>.zarr) beside it",
            got=f"{str(path)!r}",
            fix="leave it out, or pass the folder",
        )


def _choose(
    path: str,
    raw: RawBags,
    skip_bad: bool,
    names: Sequence[str],
    left_out: Sequence[LeftOut],
    classes: Sequence[str],
) -> LoadedBags:
    """Return the bags of some names, of these classes; those that are bad are left out."""
    usable = [name for name in names if name not in raw.bad]
    left_out = [*left_out, *(LeftOut(name, raw.bad[name]) for name in names if name in raw.bad)]
    refuse_or_skip(path, len(usable), left_out, skip_bad=skip_bad)
    bags = to_dataset(raw, classes)
    row = {name: number for number, name in enumerate(bags.ids)}
    chosen = bags if tuple(usable) == bags.ids else bags.subset([row[name] for name in usable])
    return LoadedBags(chosen, tuple(left_out), raw.notes)
