"""What a layout of bags on disk is: how it is recognized, which bags it lists, and how they are opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from miue.bags import BagDataset
from miue.common.errors import ConfigError
from miue.io.loaded import LeftOut, LoadedBags
from miue.settings import LoadSettings

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

    Raises:
        ConfigError: a setting that bags of this layout do not take.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ()
    has_labels: bool = False
    label_columns: Mapping[str, str] | None = None

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
