"""Bags from wherever they lie: a store, a folder of bag files, a long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from miue.bags.dataset import BagDataset
from miue.common.errors import ConfigError, DataError, MiueError, first_few
from miue.common.progress import tracked
from miue.io.folders.bag_folder import open_folder
from miue.io.folders.file_instances import FileInstances
from miue.io.labels.join import LeftOut, describe_labels, label_bags, splits_of
from miue.io.labels.label_table import read_label_table
from miue.io.splits.draw import make_split
from miue.io.splits.splits import Splits
from miue.io.store.store import read_store
from miue.io.tables.bag_table import open_table, with_instance_labels
from miue.io.tables.long_table import is_long_table

LONG_TABLE = {"id_column": "bag_id", "label_column": "label", "patient_column": "patient"}
"""What columns of a long table mean, by the argument that names them."""


@dataclass(frozen=True)
class OpenedBags:
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

    @property
    def note(self) -> str:
        """How the splits were drawn, and how many of these bags are in each; "" where none were."""
        if not self.drawn or not any(self.bags.splits):
            return self.drawn
        splits = self.bags.splits
        counts = ", ".join(f"{name} {splits.count(name):,}" for name in ("train", "validation", "test"))
        return f"{self.drawn}: {counts} bags"

    def with_values_checked(self, *, skip_bad: bool = False, progress: bool = False) -> OpenedBags:
        """Return the bags after all features in files were read once, so that training does not stop on one.

        Args:
            skip_bad: leave out bags that cannot be used, instead of an error for the first.
            progress: show a bar.

        Raises:
            DataError: a bag with features that are not finite, or that cannot be read.
        """
        if not isinstance(self.bags.instances, FileInstances):
            return self
        kept, bad = [], []
        for bag, name in enumerate(tracked(self.bags.ids, "checking", shown=progress)):
            try:
                self.bags.batch([bag])
                kept.append(bag)
            except MiueError as error:
                if not skip_bad:
                    raise
                bad.append(LeftOut(name, str(error)))
        return replace(self, bags=self.bags.subset(kept), left_out=(*self.left_out, *bad)) if bad else self

    def with_default_split(self, validation: float) -> OpenedBags:
        """Return the bags with a split drawn by patient and class, where they have labels and no split.

        Args:
            validation: share of the bags outside the test split to validate on; none if 0.
        """
        bags = self.bags
        if any(bags.splits) or not bags.labels.known.any():
            return self
        try:
            drawn = make_split(bags, validation=validation)
        except DataError as error:
            return replace(self, drawn=f"no split was drawn ({error})")
        by = "patient and class" if bags.patients else "class"
        return replace(self, bags=drawn.assign(bags), drawn=f"split by {by} with seed 42")


def open_source(
    path: Path,
    *,
    labels: Path | None = None,
    columns: Mapping[str, Any] | None = None,
    classes: Sequence[str] = (),
    splits: Splits | None = None,
    fold: int = 0,
    instance_labels: Path | None = None,
    microns_per_pixel: float | None = None,
    instance_shape: tuple[int, ...] | None = None,
    coords_for: str = "",
    skip_bad: bool = False,
    progress: bool = False,
) -> OpenedBags:
    """Return the bags at ``path``.

    Args:
        path: a store, a folder of bag files, or a long table.
        labels: label table of bags that do not tell theirs.
        columns: names of columns of the label table, or of the long table without one: arguments of
            ``read_label_table``.
        classes: order of the classes.
        splits: to assign; those of the label table if None.
        fold: which of them.
        instance_labels: table of instances' labels, for evaluation.
        microns_per_pixel: of level 0, for coords in µm.
        instance_shape: that a model takes; None for that of most files of a folder.
        coords_for: what needs coords, so that bags without them are refused, where ``skip_bad`` does not let some
            of them pass; "" for nothing.
        skip_bad: leave out what cannot be used.
        progress: show a bar.

    Raises:
        DataError, StorageError, ConfigError: bags, labels or splits that cannot be used.
    """
    told = {name: column for name, column in (columns or {}).items() if column is not None}
    table = None if labels is None else read_label_table(labels, **told)
    if table is None:
        _check_told(path, told)
    left_out: Sequence[LeftOut] = ()
    described = ""
    notes: tuple[str, ...] = ()
    if path.is_dir() and not (path / "store.json").exists():
        opened = open_folder(
            path,
            table,
            classes=classes,
            microns_per_pixel=microns_per_pixel,
            instance_shape=instance_shape,
            skip_bad=skip_bad,
            progress=progress,
        )
        bags, left_out, notes = opened.bags, opened.left_out, opened.notes
    else:
        if is_long_table(path):
            meant = {} if table is not None else {LONG_TABLE[name]: column for name, column in told.items()}
            tabled = open_table(path, classes=classes, columns=meant, skip_bad=skip_bad)
            bags, left_out = tabled.bags, tabled.left_out
            described = _describe_long_table(bags, meant)
        else:
            bags = read_store(path)
        if table is not None:
            bags, unlabelled = label_bags(bags, table, str(path), classes=classes, skip_bad=skip_bad)
            left_out = (*left_out, *unlabelled)
    if table is not None:
        described = describe_labels(bags, table.columns)
    if coords_for:
        _check_located(path, bags, coords_for, notes, skip_bad=skip_bad)
    folds = None if table is None else splits_of(table)
    if splits is None and fold:
        splits = folds
    if splits is not None:
        bags = splits.assign(bags, fold)
    if instance_labels is not None:
        bags = with_instance_labels(bags, instance_labels)
    return OpenedBags(bags, tuple(left_out), notes, folds=folds, labels=described)


def _describe_long_table(bags: BagDataset, meant: Mapping[str, str]) -> str:
    """Return which columns of a long table told labels and patients."""
    told = {"label": bags.labels.known.any(), "patient": bags.patients is not None}
    return describe_labels(bags, {name: meant.get(name, name) for name, is_told in told.items() if is_told})


def _check_located(path: Path, bags: BagDataset, coords_for: str, notes: Sequence[str], *, skip_bad: bool) -> None:
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
        item=repr(str(path)),
        wanted=f"coords, which {coords_for} needs",
        got="; ".join([without, *notes]),
        fix=f"extract them with the features, or leave out {coords_for}{alone}",
    )


def _check_told(path: Path, told: Mapping[str, Any]) -> None:
    """Raise where columns are named, and there is no table that has them.

    Raises:
        ConfigError: there is none.
    """
    without = [name for name in told if not (is_long_table(path) and name in LONG_TABLE)]
    if without:
        raise ConfigError(
            item=f"--{without[0].replace('_', '-')}",
            wanted="a label table (--labels) beside it",
            got="none",
            fix="pass the table as --labels, or leave the option out",
        )
