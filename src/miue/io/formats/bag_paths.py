"""What the path of a bag is: a file, a folder of images or of a reader, or a table of a SpatialData store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from miue.common.parts import READERS

STORE, TABLES = ".zarr", "tables"


def bag_name(path: Path) -> str:
    """Return the id of the bag in a file or folder: its name without the ending that says which reader opens it.

    >>> bag_name(Path("job/slide-1.h5")), bag_name(Path("job/slide-1.zarr/tables/uni_tiles"))
    ('slide-1', 'slide-1')
    """
    file = _store(path)
    return file.name if file.is_dir() and not takes_folders(ending_of(path)) else file.stem


def bag_file_name(path: Path) -> str:
    """Return what a user calls the file of a bag: of a table in a store, the store.

    >>> bag_file_name(Path("job/slide-1.h5")), bag_file_name(Path("job/slide-1.zarr/tables/uni_tiles"))
    ('slide-1.h5', 'slide-1.zarr')
    """
    return _store(path).name if is_table(path) else path.name


def ending_of(path: Path) -> str:
    """Return the ending that says which reader opens a bag: of a table in a store, that of the store.

    >>> ending_of(Path("job/slide-1.H5")), ending_of(Path("job/slide-1.zarr/tables/uni_tiles"))
    ('.h5', '.zarr')
    """
    return _store(path).suffix.lower()


def takes_folders(ending: str) -> bool:
    """Return whether the reader of an ending takes folders: that of SpatialData stores, and any of other packages.

    >>> takes_folders(".zarr"), takes_folders(".h5"), takes_folders("")
    (True, False, False)
    """
    return ending == STORE or (ending in READERS and READERS.path_of_own(ending) is None)


def is_table(path: Path) -> bool:
    """Return whether a path is that of a table in a SpatialData store."""
    return path.parent.name == TABLES and path.parent.parent.suffix.lower() == STORE


def files_below(folder: Path) -> Iterator[Path]:
    """Return all that lies below a folder and is no folder; links to folders are not followed.

    Raises:
        OSError: a folder that cannot be listed.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path))
        else:
            yield Path(entry.path)


def _store(path: Path) -> Path:
    return path.parent.parent if is_table(path) else path
