"""What an output may replace: nothing unless asked, and then only a file, or a folder of its own kind."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from miue.common.errors import StorageError, cannot_write
from miue.common.folder_kinds import KEPT, OR_OVERWRITE, FolderKind, kind_of

ANOTHER = "choose another --out"


def refuse_existing(path: Path, kind: FolderKind | None = None, *, overwrite: bool) -> None:
    """Raise unless ``path`` is free, or may be replaced and is what would be written there.

    Args:
        path: of the output.
        kind: of the folder that is to be written; None for a file.
        overwrite: whether what is there may be replaced.

    Raises:
        StorageError: something is there that is not to be replaced, or ``path`` cannot be looked at.
    """
    refuse_taken(path, kind, overwrite=overwrite)
    if not path.exists():
        return
    if kind is None:
        owner = kind_of(path.parent)
        if owner is not None and owner in KEPT and owner.has(path.name):
            raise _refused(path, "a file that belongs to nothing else", f"one of {owner.name}")
        return
    if Path.cwd().is_relative_to(path.resolve()):
        raise _refused(path, "a folder outside of which the command runs", "the one in which it runs")
    for inner in sorted(path.iterdir()):
        found = kind_of(inner) if inner.is_dir() and inner.name not in kind.parts else None
        if found in KEPT:
            raise _refused(path, f"{kind.name} without other results in it", f"{found.name} in {inner.name!r}")


def refuse_taken(path: Path, kind: FolderKind | None = None, *, overwrite: bool) -> None:
    """Raise as ``refuse_existing`` does, but for an output of which other content of the folder is kept.

    Raises:
        StorageError: something is there that is not to be replaced, or ``path`` cannot be looked at.
    """
    try:
        exists = path.exists()
    except OSError as error:
        raise cannot_write(path, error) from error
    if not exists:
        return
    if not (path.is_file() or path.is_dir()):
        raise _refused(path, "a file or folder", "a device or a pipe")
    if kind is None:
        if path.is_dir():
            raise _refused(path, "a file", "a folder")
        if not overwrite:
            raise _refused(path, "a new name", "a file that is there", OR_OVERWRITE)
        return
    if path.is_file():
        raise _refused(path, "a new or empty folder", "a file that is there")
    if not holds_files(path):
        return
    if not overwrite:
        raise _refused(path, "a new or empty folder", "one that already holds files", kind.otherwise)
    if not kind.matches(path):
        found = kind_of(path)
        raise _refused(path, f"{kind.name} to replace", "a folder of other files" if found is None else found.name)


def holds_files(folder: Path, besides: Collection[Path] = ()) -> bool:
    """Return whether there is anything in a folder but locks, and what is there besides."""
    return any(not file.name.endswith(".lock") and file not in besides for file in folder.iterdir())


def _refused(path: Path, wanted: str, got: str, or_else: str = "") -> StorageError:
    return StorageError(item=f"output {str(path)!r}", wanted=wanted, got=got, fix=ANOTHER + or_else)
