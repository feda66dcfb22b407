"""One process at a time writes an output: a lock of the operating system, which ends with its process."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from miue.common.errors import StorageError, cannot_write
from miue.common.user_warnings import warn_user

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
