"""Output folders: whether they may be written, and the locks on them."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from miue.common.errors import StorageError, cannot_write
from miue.common.folder_kinds import KEPT, OR_OVERWRITE, FolderKind, kind_of
from miue.common.text import warn_user

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


UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)
TEMPORARY = r"\.[0-9a-f]{8}\.tmp"  # pattern of the ending of a temporary file or folder


@contextmanager
def locked(output: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from writing ``output`` while the block runs; the same thread may lock it again.

    The lock is ``.<name>.lock`` beside the output; where the folder above cannot be written, it is ``.lock``
    inside the output. What a process that was killed left half-written of the output is removed. A folder that was
    not there before, the output or one above it, is removed where it is empty in the end, as after a failure; not
    with ``wait``, where others may want it.

    Args:
        output: file or folder to be written.
        wait: until another process is done; else that is an error.

    Raises:
        StorageError: another process writes it, or no file can be written there.
    """
    from filelock import FileLock, Timeout  # the process that reads files of others locks nothing

    place = Path(os.path.realpath(output))
    missing = [] if wait else [path for path in (place, *place.parents) if not path.exists()]
    with ExitStack() as stack:
        for folder in reversed(missing):
            stack.callback(_remove_if_empty, folder)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(_lock_file(place), is_singleton=True, fallback_to_soft=False)
            is_first = not lock.is_locked
            lock.acquire(blocking=wait)
            stack.callback(lock.release)
        except Timeout as error:
            raise StorageError(
                item=f"output {str(output)!r}",
                wanted="no other process that writes it",
                got=f"one that holds {lock.lock_file!r}, or a place that takes no files",
                fix="wait until it has ended, end it, or choose another --out",
            ) from error
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise cannot_write(output, error) from error
            is_first = False
            warn_user(
                f"{str(output)!r} is on a file system without locks ({error.strerror}): "
                "let no other process write there meanwhile",
            )
        if is_first:
            stack.callback(discard, Path(lock.lock_file))
            for left in temporaries(place.parent, place.name):
                discard(left)
        yield


def remove_left_lock(output: Path) -> None:
    """Remove the file of the lock of ``output`` that a killed process left; none that a process holds."""
    if _lock_file(Path(os.path.realpath(output))).exists():
        with suppress(StorageError), locked(output):
            pass


def temporaries(folder: Path, name: str = "") -> list[Path]:
    """Return what writing ``name``, or anything, left in ``folder`` when it was killed, or is writing just now.

    Only who holds the lock of the output may remove them. Nothing where the folder cannot be listed.
    """
    pattern = re.compile(rf"\.{re.escape(name) if name else '.+'}{TEMPORARY}")
    with suppress(OSError), os.scandir(folder) as entries:
        return [folder / entry.name for entry in entries if pattern.fullmatch(entry.name)]
    return []


def discard(path: Path) -> None:
    """Remove a file or folder, if that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _lock_file(place: Path) -> Path:
    within = place.is_dir() and not os.access(place.parent, os.W_OK)
    return place / ".lock" if within else place.parent / f".{place.name}.lock"


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # not there, a file, or not empty
        folder.rmdir()
