"""What a layout of bags on disk is: how it is recognized, which bags it lists, and how they are opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from miue.bags import BagDataset
from miue.bags.columns import SPLIT_NAMES
from miue.common.errors import ConfigError, DataError, first_few, first_repeated
from miue.common.folder_kinds import KEPT, kind_of
from miue.io.formats.base import takes_folders
from miue.io.loaded import LeftOut, LoadedBags
from miue.settings import LoadSettings

NO_BAGS = (
    *("patches", "masks", "stitches", "thumbnails", "visualization", "contours", "contours_geojson"),
    *("coords", "labels", "patch_labels", "slice_labels", "adj"),  # torchmil's, of which its features are beside
)
OF_SOME = {
    "named_columns": "names of columns",
    "features": "names of features",
    "microns_per_pixel": "a pixel width",
    "feature_key": "a table of features",
}
"""Settings that some layouts take, in words."""


class Layout(ABC):
    """The bags at a path.

    Args:
        path: where they are.
        settings: how they are read.
        progress: show a bar while many files are opened.

    Attributes:
        has_labels: whether the bags have labels of their own, once they are listed.
        label_columns: the columns of their own that hold labels and patients, by what they mean.
        patients: of each bag as a column of their own states it, "" where it does not; None without such a column.

    Raises:
        ConfigError: a setting that bags of this layout do not take.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ()
    has_labels: bool = False
    label_columns: Mapping[str, str] | None = None
    patients: Mapping[str, str] | None = None

    def __init__(self, path: Path, settings: LoadSettings, *, progress: bool = False) -> None:
        self.path, self.settings, self.progress = path, settings, progress
        for setting, words in OF_SOME.items():
            is_of_labels = setting == "named_columns" and settings.labels is not None
            if getattr(settings, setting) and setting not in self.takes and not is_of_labels:
                raise ConfigError(
                    item=setting.removeprefix("named_"),
                    wanted=f"bags that take {words}",
                    got=f"{self.name}, {str(path)!r}",
                    fix="leave it out, or pass other bags",
                )

    @staticmethod
    @abstractmethod
    def matches(path: Path) -> bool:
        """Return whether the bags at a path are of this layout."""

    @abstractmethod
    def list(self) -> tuple[str, ...]:
        """Return the ids of the bags.

        Raises:
            DataError, StorageError: no bags, or such as cannot be used.
        """

    @abstractmethod
    def open(self, names: Sequence[str], left_out: Sequence[LeftOut], classes: Sequence[str]) -> LoadedBags:
        """Return the bags of some of the ids, in their order.

        Args:
            names: of the bags.
            left_out: bags that were left out before.
            classes: order of the classes that labels, of instances too, may be named after; sorted if empty.

        Raises:
            DataError: a bag that cannot be used, or no bag left.
        """


def in_order(bags: BagDataset, names: Sequence[str]) -> BagDataset:
    """Return the bags of these names, in their order."""
    row = {name: number for number, name in enumerate(bags.ids)}
    return bags if tuple(names) == bags.ids else bags.subset([row[name] for name in names])


def folders_in(folder: Path) -> list[Path]:
    """Return the folders directly in a folder in which bags may be."""
    return [one for one in sorted(folder.iterdir()) if one.is_dir() and may_have_bags(one)]


def folders_below(folder: Path) -> list[Path]:
    """Return the folders below a folder, at any depth, in which bags may be."""
    return sorted(deeper for one in folders_in(folder) for deeper in (one, *folders_below(one)))


def may_have_bags(folder: Path) -> bool:
    """Return whether a folder is not hidden, no bag itself, and none that tools write beside bags, as of masks."""
    is_other = folder.name.startswith(".") or folder.name in NO_BAGS
    return not is_other and not takes_folders(folder.suffix.lower())


def read_together(names_in: Mapping[Path, Sequence[str]], root: Path) -> tuple[dict[Path, str], str]:
    """Return the splits that folders are named after, such as train and test, and a note of several folders.

    Args:
        names_in: the names of the bags of each folder, or of their files.
        root: the folder that they are below.

    Raises:
        DataError: a bag in two folders, as those of two encoders have; a folder that miue wrote; or folders of
            which some are named after one split, themselves or by a folder above, and others are not.
    """
    if len(names_in) < 2:
        return {}, ""
    twice = first_repeated(name for names in names_in.values() for name in names)
    named = {one: {SPLIT_NAMES.get(part.lower(), "") for part in one.relative_to(root).parts} for one in names_in}
    splits = {one: sorted(words - {""}) for one, words in named.items()}
    wrong = {
        f", with the same bag {twice!r}": twice is not None,
        ", of which miue wrote one": any(kind_of(one) in KEPT for one in names_in),
        ", of which not each is named like one split": any(splits.values())
        and any(len(words) != 1 for words in splits.values()),
    }
    listed = [f"{one.relative_to(root)} ({len(names):,})" for one, names in names_in.items()]
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise DataError(
                item=repr(str(root)),
                wanted="bags in one folder, or in several that make one set, such as those of classes or splits",
                got=f"{first_few(listed, 10)}{reason}",
                fix="pass one of these folders",
            )
    named_splits = {one: words[0] for one, words in splits.items() if words}
    how = ", which name their splits," if named_splits else ""
    return named_splits, f"bags of {len(names_in):,} folders{how} were read: {first_few(listed)}"
