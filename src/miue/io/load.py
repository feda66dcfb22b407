"""Bags from files: found, labelled, split and checked, whether they are a store, a folder or a long table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from miue.bags.dataset import BagDataset
from miue.common.errors import ConfigError, DataError, MiueError, first_few
from miue.common.progress import tracked
from miue.common.tables import PrintsAsTable, ResultTable
from miue.io.folders.bag_folder import open_files
from miue.io.folders.discovery import bag_files
from miue.io.folders.file_instances import FileInstances
from miue.io.labels.join import LeftOut, describe_labels, match, refuse_or_skip, splits_of, with_labels
from miue.io.labels.label_table import LabelTable, read_label_table
from miue.io.splits.draw import make_split
from miue.io.splits.files import read_splits
from miue.io.splits.splits import Splits
from miue.io.store.store import read_store
from miue.io.tables.bag_table import open_table, with_instance_labels
from miue.io.tables.long_table import is_long_table

LONG_TABLE = {"id_column": "bag_id", "label_column": "label", "patient_column": "patient"}
"""What columns of a long table mean, by the argument that names them."""


@dataclass(frozen=True, repr=False)
class LoadedBags(PrintsAsTable):
    """Bags, and what was said or done about them.

    Attributes:
        bags: the dataset.
        left_out: bags that are not in it, and why.
        notes: what to know of the files that they were read from.
        drawn: how the splits came about, where they were drawn here.
        folds: those that the label table tells.
        labels: in one line, which columns told labels and patients; "" of a store, which has its own.
    """

    bags: BagDataset
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: str = ""
    folds: Splits | None = None
    labels: str = ""

    def tables(self) -> Iterator[ResultTable]:
        """Return the bags of each split, and what was said of them."""
        left_out = f"{len(self.left_out):,} bags left out (left_out says why)" if self.left_out else ""
        notes = (self.labels, self.drawn, *self.notes, left_out)
        for table in self.bags.tables():
            yield replace(table, notes=(*table.notes, *filter(None, notes)))

    @property
    def note(self) -> str:
        """How the splits were drawn, and how many of these bags are in each; "" where none were."""
        if not self.drawn or not any(self.bags.splits):
            return self.drawn
        splits = self.bags.splits
        counts = ", ".join(f"{name} {splits.count(name):,}" for name in ("train", "validation", "test"))
        return f"{self.drawn}: {counts} bags"


@dataclass(frozen=True)
class FoundBags:
    """Bags that are there, before they are labelled.

    Attributes:
        path: where they are.
        ids: their names.
        has_labels: whether they have labels of their own.
        read: returns those of the given names, and what else was left out with the bags in the argument.
        label_columns: the columns of their own that hold labels and patients.
    """

    path: Path
    ids: tuple[str, ...]
    has_labels: bool
    read: Callable[[Sequence[str], Sequence[LeftOut]], LoadedBags]
    label_columns: Mapping[str, str] | None = None


def load_bags(
    path: Path | str,
    *,
    labels: Path | str | LabelTable | None = None,
    splits: Path | str | Splits | None = None,
    instance_labels: Path | str | None = None,
    fold: int = 0,
    classes: Sequence[str] = (),
    id_column: str | None = None,
    label_column: str | None = None,
    patient_column: str | None = None,
    slide_table: Path | str | None = None,
    microns_per_pixel: float | None = None,
    instance_shape: tuple[int, ...] | None = None,
    validation_share: float | None = None,
    check_values: bool = False,
    coords_for: str = "",
    skip_bad: bool = False,
    progress: bool = False,
) -> LoadedBags:
    """Return the bags at ``path``: a store, a folder of feature files, or a table with one row per instance.

    Args:
        path: a store; files of CLAM, TRIDENT, STAMP or arrays; or a long table (CSV, Parquet).
        labels: label table of bags that do not have labels of their own.
        splits: splits of CLAM, Patho-Bench, MIREL or ``miue data split``; those of the bags or the label table if
            None.
        instance_labels: table of instances' labels, for evaluation alone.
        fold: which of the splits.
        classes: order of the classes; the first is the negative one. Sorted if not specified.
        id_column: column of the bag's name in the label table, or in the long table; found by name if None.
        label_column: column of the label, likewise.
        patient_column: column of the patient, likewise.
        slide_table: STAMP's table PATIENT, FILENAME, where ``labels`` has one row per patient.
        microns_per_pixel: of level 0, for files whose coords are in µm.
        instance_shape: that a model takes; None for that of most files of a folder.
        validation_share: draw a split by patient and class with this share to validate on, where the bags have
            labels and no split; None draws none.
        check_values: read all features that stay in files once, to find what is not finite.
        coords_for: what needs coords, so that bags without them are refused, where ``skip_bad`` does not let some
            of them pass; "" for nothing.
        skip_bad: leave out what cannot be used; ``left_out`` of the result lists it.
        progress: show a bar.

    Raises:
        DataError, StorageError, ConfigError: bags, labels or splits that cannot be used.
    """
    named = {
        "id_column": id_column,
        "label_column": label_column,
        "patient_column": patient_column,
        "slide_table": None if slide_table is None else Path(slide_table),
    }
    columns: dict[str, Any] = {name: column for name, column in named.items() if column is not None}
    if isinstance(labels, Path | str):
        labels, columns = read_label_table(Path(labels), **columns), {}
    found = _find(
        Path(path),
        classes,
        columns,
        microns_per_pixel=microns_per_pixel,
        instance_shape=instance_shape,
        skip_bad=skip_bad,
        progress=progress,
    )
    labelled = _label(found, labels, classes, skip_bad=skip_bad)
    assigned = _split(labelled, splits, fold, validation_share)
    checks: dict[str, Any] = {"check_values": check_values, "skip_bad": skip_bad, "progress": progress}
    loaded = _check(assigned, coords_for, str(path), **checks)
    if instance_labels is None:
        return loaded
    return replace(loaded, bags=with_instance_labels(loaded.bags, Path(instance_labels)))


def _find(
    path: Path,
    classes: Sequence[str],
    columns: Mapping[str, Any],
    *,
    microns_per_pixel: float | None,
    instance_shape: tuple[int, ...] | None,
    skip_bad: bool,
    progress: bool,
) -> FoundBags:
    """Return which bags are at ``path``; the files of a folder are opened when they are read."""
    _check_columns(path, columns)
    is_folder = path.is_dir() and not (path / "store.json").exists()
    if microns_per_pixel is not None and not is_folder:
        raise ConfigError(
            item="--mpp",
            wanted="a folder of feature files beside it",
            got=f"{str(path)!r}" if path.exists() else f"{str(path)!r}, which is not there",
            fix="leave it out, or give the folder",
        )
    if is_folder:
        files = bag_files(path)
        options: dict[str, Any] = {"microns_per_pixel": microns_per_pixel, "instance_shape": instance_shape}
        read = partial(
            _read_files, partial(open_files, path, files, **options, skip_bad=skip_bad, progress=progress)
        )
        return FoundBags(path, tuple(files.by_id), False, read)
    if is_long_table(path):
        meant = {LONG_TABLE[name]: column for name, column in columns.items()}
        opened = open_table(path, classes=classes, columns=meant, skip_bad=skip_bad)
        read = partial(_read_opened, opened.bags, opened.left_out, skip_bad, path)
        known = {"label": opened.bags.labels.known.any(), "patient": opened.bags.patients is not None}
        own = {name: meant.get(name, name) for name, is_known in known.items() if is_known}
        return FoundBags(path, opened.bags.ids, bool(known["label"]), read, own)
    bags = read_store(path)
    return FoundBags(
        path, bags.ids, bool(bags.labels.known.any()), partial(_read_opened, bags, (), skip_bad, path)
    )


def _read_files(open_named: Callable[..., Any], names: Sequence[str], left_out: Sequence[LeftOut]) -> LoadedBags:
    opened = open_named(names, left_out)
    return LoadedBags(opened.bags, opened.left_out, opened.notes)


def _read_opened(
    bags: BagDataset,
    lost: Sequence[LeftOut],
    skip_bad: bool,
    path: Path,
    names: Sequence[str],
    left_out: Sequence[LeftOut],
) -> LoadedBags:
    """Return the bags of the given names, which are open already."""
    refuse_or_skip(str(path), len(names), left_out, skip_bad=skip_bad)
    row = {name: number for number, name in enumerate(bags.ids)}
    chosen = bags if tuple(names) == bags.ids else bags.subset([row[name] for name in names])
    return LoadedBags(chosen, (*lost, *left_out))


def _label(found: FoundBags, table: LabelTable | None, classes: Sequence[str], *, skip_bad: bool) -> LoadedBags:
    """Return the bags that the table lists, with its classes, patients and first fold; all without a table."""
    if table is None:
        loaded = found.read(found.ids, ())
        columns = found.label_columns
        return loaded if columns is None else replace(loaded, labels=describe_labels(loaded.bags, columns))
    if found.has_labels:
        raise ConfigError(
            item=f"label table {table.source!r}",
            wanted="bags without labels",
            got=f"{str(found.path)!r}, which tells its labels itself",
            fix="leave out --labels, or remove the labels from the bags",
        )
    rows, left_out = match(table, found.ids, str(found.path))
    loaded = found.read(list(rows), left_out)
    bags = with_labels(loaded.bags, table, rows, classes)
    return replace(loaded, bags=bags, folds=splits_of(table), labels=describe_labels(bags, table.columns))


def _split(
    loaded: LoadedBags, splits: Path | str | Splits | None, fold: int, validation_share: float | None
) -> LoadedBags:
    """Return the bags with the splits specified, else their own, else such as are drawn by patient and class."""
    if isinstance(splits, Path | str):
        splits = read_splits(Path(splits))
    chosen = splits if splits is not None or not fold else loaded.folds
    if chosen is not None:
        return replace(loaded, bags=chosen.assign(loaded.bags, fold))
    bags = loaded.bags
    if validation_share is None or any(bags.splits) or not bags.labels.known.any():
        return loaded
    try:
        drawn = make_split(bags, validation=validation_share)
    except DataError as error:
        return replace(loaded, drawn=f"no split was drawn ({error})")
    by = "patient and class" if bags.patients else "class"
    return replace(loaded, bags=drawn.assign(bags), drawn=f"split by {by} with seed 42")


def _check(
    loaded: LoadedBags, coords_for: str, where: str, *, check_values: bool, skip_bad: bool, progress: bool
) -> LoadedBags:
    """Return the bags after what is asked of all of them was looked at.

    Raises:
        DataError: bags without coords that need them, with features that are not finite, or that cannot be read.
    """
    if coords_for:
        _check_located(where, loaded.bags, coords_for, loaded.notes, skip_bad=skip_bad)
    if not check_values or not isinstance(loaded.bags.instances, FileInstances):
        return loaded
    kept, bad = [], []
    for bag, name in enumerate(tracked(loaded.bags.ids, "checking", shown=progress)):
        try:
            loaded.bags.batch([bag])
            kept.append(bag)
        except MiueError as error:
            if not skip_bad:
                raise
            bad.append(LeftOut(name, str(error)))
    return replace(loaded, bags=loaded.bags.subset(kept), left_out=(*loaded.left_out, *bad)) if bad else loaded


def _check_located(where: str, bags: BagDataset, coords_for: str, notes: Sequence[str], *, skip_bad: bool) -> None:
    """Raise where no bag has coords, or not every one has and those without may not be passed over.

    Raises:
        DataError: so.
    """
    bare = bags.without_coords
    if not bare or (skip_bad and len(bare) < len(bags)):
        return
    without = f"{len(bare):,} of {len(bags):,} bags without ({first_few(bare)})"
    alone = " (--skip-bad leaves these bags out of it alone)" if len(bare) < len(bags) else ""
    raise DataError(
        item=repr(where),
        wanted=f"coords, which {coords_for} needs",
        got="; ".join([without, *notes]),
        fix=f"extract them with the features, or leave out {coords_for}{alone}",
    )


def _check_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Raise where columns are named, and there is no table that has them.

    Raises:
        ConfigError: there is none.
    """
    without = [name for name in columns if not (is_long_table(path) and name in LONG_TABLE)]
    if without:
        raise ConfigError(
            item=f"--{without[0].replace('_', '-')}",
            wanted="a label table (--labels) beside it",
            got="none",
            fix="pass the table as --labels, or leave the option out",
        )
