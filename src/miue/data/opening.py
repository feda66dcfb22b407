"""Bags from wherever they lie: a store, a folder of bag files, a long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from miue.bags import BagDataset
from miue.data.bag_folder import open_folder
from miue.data.bag_table import open_table, with_instance_labels
from miue.data.file_instances import FileInstances
from miue.data.label_table import read_label_table
from miue.data.labelling import LeftOut, label_bags, splits_of
from miue.data.splits import Splits, make_split
from miue.data.store import read_store
from miue.errors import DataError, MiueError
from miue.progress import tracked
from miue.readers.long_table import is_long_table


@dataclass(frozen=True)
class OpenedBags:
    """Bags, and what was said or done about them.

    Attributes:
        bags: the dataset.
        left_out: bags that are not in it, and why.
        notes: what to know of the files that they were read from.
        drawn: how the splits came about, where they were drawn here.
    """

    bags: BagDataset
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: str = ""

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

    def with_default_split(self) -> OpenedBags:
        """Return the bags with a split drawn by patient and class, where they have labels and no split."""
        bags = self.bags
        if any(bags.splits) or not bags.labels.known.any():
            return self
        try:
            drawn = make_split(bags)
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
        columns: arguments of ``read_label_table``.
        classes: order of the classes.
        splits: to assign; those of the label table if None.
        fold: which of them.
        instance_labels: table of instances' labels, for evaluation.
        microns_per_pixel: of level 0, for coords in µm.
        instance_shape: that a model takes; None for that of most files of a folder.
        coords_for: what needs coords, so that bags without them cannot be used; "" for nothing.
        skip_bad: leave out what cannot be used.
        progress: show a bar.

    Raises:
        DataError, StorageError, ConfigError: bags, labels or splits that cannot be used.
    """
    table = None if labels is None else read_label_table(labels, **(columns or {}))
    left_out: Sequence[LeftOut] = ()
    notes: tuple[str, ...] = ()
    if path.is_dir() and not (path / "store.json").exists():
        opened = open_folder(
            path,
            table,
            classes=classes,
            microns_per_pixel=microns_per_pixel,
            instance_shape=instance_shape,
            coords_for=coords_for,
            skip_bad=skip_bad,
            progress=progress,
        )
        bags, left_out, notes = opened.bags, opened.left_out, opened.notes
    else:
        bags = open_table(path, classes=classes) if is_long_table(path) else read_store(path)
        if table is not None:
            bags, left_out = label_bags(bags, table, str(path), classes=classes, skip_bad=skip_bad)
    if coords_for and bags.coords is None:
        raise DataError(
            item=repr(str(path)),
            wanted=f"coords, which {coords_for} needs",
            got="bags without",
            fix=f"leave out {coords_for}, or make it again from bags that have them",
        )
    if splits is None and table is not None and fold:
        splits = splits_of(table)
    if splits is not None:
        bags = splits.assign(bags, fold)
    if instance_labels is not None:
        bags = with_instance_labels(bags, instance_labels)
    return OpenedBags(bags, tuple(left_out), notes)
