"""Bags on their way from files to a dataset, with what was left out and what is to be said about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from miue.bags.dataset import BagDataset
from miue.common.errors import DataError
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.io.formats.open import check_pixel_width
from miue.io.labels.describe import describe_labels
from miue.io.splits.splits import Splits


@dataclass(frozen=True)
class LeftOut:
    """A bag that is not in the dataset.

    Attributes:
        bag: its id.
        reason: why.
        is_bad: whether something is wrong with it, unlike a file that the label table does not list.
    """

    bag: str
    reason: str
    is_bad: bool = True


@dataclass(frozen=True, repr=False)
class LoadedBags(PrintsAsTable):
    """Bags, and what was said or done about them.

    Attributes:
        bags: the dataset.
        left_out: bags that are not in it, and why.
        notes: what to know of the files that they were read from.
        drawn: how the splits came about, where they were drawn.
        folds: those of the label table, of the bags that are in the dataset.
        label_columns: the columns that hold labels and patients, by what they mean; None of a store.
    """

    bags: BagDataset
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: str = ""
    folds: Splits | None = None
    label_columns: Mapping[str, str] | None = None

    @property
    def labels(self) -> str:
        """In one line, which columns hold labels and patients, and of how many of these bags; "" of a store."""
        return "" if self.label_columns is None else describe_labels(self.bags, self.label_columns)

    def tables(self) -> Iterator[ResultTable]:
        """Return the bags of each split, and what was said of them."""
        left_out = f"{plural(len(self.left_out), 'bag')} left out (left_out says why)" if self.left_out else ""
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
class ReadOptions:
    """How the files of a folder are read, as ``load_bags`` takes it.

    Attributes:
        microns_per_pixel: of level 0, for coords in µm.
        instance_shape: that a model takes; None for that of most files.
        skip_bad: leave out files that cannot be used, slides without tissue and bags without a file.
        progress: show a bar while many files are opened.
        feature_key: which table of features of SpatialData stores is read, where they have several.

    Raises:
        ConfigError: a pixel width that is none.
    """

    microns_per_pixel: float | None = None
    instance_shape: tuple[int, ...] | None = None
    skip_bad: bool = False
    progress: bool = False
    feature_key: str = ""

    def __post_init__(self) -> None:
        check_pixel_width(self.microns_per_pixel)


@dataclass(frozen=True)
class FoundBags:
    """Bags that are there, before they are labeled.

    Attributes:
        path: where they are.
        ids: their names.
        has_labels: whether they have labels of their own.
        read: returns those of some names, with what else was left out before in the second argument; the third
            are the classes that their instances may be named after, in order.
        label_columns: the columns of their own that hold labels and patients.
    """

    path: str
    ids: tuple[str, ...]
    has_labels: bool
    read: Callable[[Sequence[str], Sequence[LeftOut], Sequence[str]], LoadedBags]
    label_columns: Mapping[str, str] | None = None


def refuse_or_skip(where: str, count: int, left_out: Sequence[LeftOut], *, skip_bad: bool) -> None:
    """Raise unless there are bags and, where bad ones may not be skipped, none that is bad.

    Raises:
        DataError: which bags cannot be used and why, at most three of them.
    """
    bad = [entry for entry in left_out if entry.is_bad]
    if bad and not skip_bad:
        shown = "; ".join(f"{entry.bag}: {entry.reason}" for entry in bad[:3])
        raise DataError(
            item=repr(where),
            wanted="bags that can all be used",
            got=f"{len(bad)} that cannot ({shown}{'; …' if bad[3:] else ''})",
            fix="mend them, or pass --skip-bad, in Python skip_bad=True, to go on without "
            "them; 'miue inspect FOLDER' lists all",
        )
    if not count:
        first = next(iter([*bad, *left_out]), None)
        reason = f"{first.bag}: {first.reason}" if first else "the folder is empty"
        raise DataError(
            item=repr(where),
            wanted="at least one bag",
            got=f"none of {len(bad or left_out)} ({reason})",
            fix="check the folder and the ids of the label table",
        )
