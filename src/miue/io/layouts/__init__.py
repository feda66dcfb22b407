"""Layouts of bags on disk: a store, feature files, folders of images, tables of instances."""

from __future__ import annotations

from pathlib import Path

from miue.bags.names import ANNDATA, HOW_TO_READ_ANNDATA, how_to_pass
from miue.common.errors import DataError, not_a_folder
from miue.common.folder_kinds import KEPT, STORE, kind_of
from miue.io.layouts.encoders import EncodersLayout
from miue.io.layouts.files import FilesLayout
from miue.io.layouts.images import ImagesLayout
from miue.io.layouts.layout import Layout
from miue.io.layouts.stored import StoreLayout
from miue.io.layouts.table import TableLayout
from miue.settings import LoadSettings

LAYOUTS: tuple[type[Layout], ...] = (StoreLayout, FilesLayout, ImagesLayout, TableLayout)
"""In the order in which they are looked for: the first that matches is that of the bags."""

__all__ = ["LAYOUTS", "FilesLayout", "Layout", "StoreLayout", "TableLayout", "find_layout"]


def find_layout(path: Path, settings: LoadSettings, *, progress: bool = False) -> Layout:
    """Return the bags at a path, with those of further encoders where settings name their places.

    Raises:
        DataError, StorageError, ConfigError: as ``_find_one`` does, or a place twice.
    """
    if not settings.more_features:
        return _find_one(path, settings, progress)
    alone = settings.model_copy(update={"more_features": (), "instance_shape": None})
    layouts = [_find_one(one, alone, progress) for one in (path, *settings.more_features)]
    return EncodersLayout(layouts, settings)


def _find_one(path: Path, settings: LoadSettings, progress: bool) -> Layout:
    """Return the bags at a path in the first layout that matches.

    Raises:
        DataError, StorageError: none does, or the path is something else.
        ConfigError: a setting that bags of this layout do not take.
    """
    wanted = f"bags: {' or '.join(layout.name for layout in LAYOUTS)}"
    kind = kind_of(path)
    if kind is not STORE and kind in KEPT:
        raise not_a_folder(path, wanted, "pass the bags")
    for layout in LAYOUTS:
        if layout.matches(path):
            return layout(path, settings, progress=progress)
    if not path.is_dir():
        raise not_a_folder(path, wanted, how_to_pass(path))
    endings = sorted({one.suffix.lower() for one in path.rglob("*") if one.suffix})
    raise DataError(
        item=repr(str(path)),
        wanted=wanted,
        got=f"files ending in {', '.join(endings[:5])}" if endings else "none",
        fix=HOW_TO_READ_ANNDATA if ANNDATA in endings else "check the path; docs/data.md lists what is read",
    )
