"""One process at a time writes an output: a lock that says who holds it and ends with its process."""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout, lock_descriptor

from miue.common.errors import StorageError, cannot_write
from miue.common.user_warnings import warn_user

UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)


@contextmanager
def locked(output: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from writing ``output`` while the block runs; the same thread may lock it again.

    The lock is the operating system's, so that it ends with the process, however that ends. Its file,
    ``.<name>.lock`` beside the output, holds who has it for others to read; where the folder above cannot be
    written, it is ``.lock`` inside the output. A folder that was not there before, the output or one above it,
    is removed where it is empty in the end, as after a failure; not with ``wait``, where others may want it.

    Args:
        output: file or folder to be written.
        wait: until another process is done; else that is an error.

    Raises:
        StorageError: another process writes it, or no file can be written there.
    """
    missing = [] if wait else _missing_folders(output.resolve())
    lock = _lock(output.resolve())
    held_already = lock.is_locked
    try:
        with _removed_if_empty(missing), _acquired(lock, output, wait=wait):
            try:
                if not held_already:
                    _write_holder(Path(lock.lock_file))
                yield
            finally:
                if not held_already:
                    with suppress(OSError):
                        Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout as error:
        if not Path(lock.lock_file).exists():  # filelock takes a folder without files, such as /proc, for a lock
            raise cannot_write(output, PermissionError(errno.EACCES, os.strerror(errno.EACCES))) from error
        raise StorageError(
            item=f"output {str(output)!r}",
            wanted="no other process that writes it",
            got=holder(Path(lock.lock_file)),
            fix="wait until it has ended, end it, or choose another --out",
        ) from error


@contextmanager
def _acquired(lock: BaseFileLock, output: Path, *, wait: bool) -> Iterator[None]:
    """Hold ``lock``; where the file system knows no locks, warn and go on without."""
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        raise
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise cannot_write(output, error) from error
        warn_user(
            f"{str(output)!r} is on a file system without locks ({error.strerror}): "
            "let no other process write there meanwhile",
        )
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _missing_folders(output: Path) -> list[Path]:
    """Return which of ``output`` and the folders above it are not there, the deepest first."""
    return [path for path in (output, *output.parents) if not path.exists()]


@contextmanager
def _removed_if_empty(folders: Sequence[Path]) -> Iterator[None]:
    """Remove those of ``folders``, the deepest first, that are empty after the block."""
    try:
        yield
    finally:
        for folder in folders:
            with suppress(OSError):  # not there, a file, or not empty
                folder.rmdir()


@contextmanager
def held_if_free(lock_file: Path) -> Iterator[bool]:
    """Hold the lock in ``lock_file`` while the block runs.

    Yields:
        whether it is held: not where another process holds it, or the file is not there or cannot be locked.
    """
    try:
        descriptor = os.open(lock_file, os.O_RDWR)
    except OSError:
        yield False
        return
    try:
        yield _is_locked(descriptor)
    finally:
        os.close(descriptor)


def remove_left_lock(output: Path) -> None:
    """Remove the file of the lock of ``output`` that a killed process left; none that a process holds."""
    lock_file = _beside(output.resolve())
    with held_if_free(lock_file) as is_held:
        if is_held:
            with suppress(OSError):
                lock_file.unlink()


def holder(path: Path) -> str:
    """Return who holds the lock in the file ``path``, as a phrase."""
    try:
        content = json.loads(path.read_text("utf-8"))
        process, host, command, since = (content[key] for key in ("process", "host", "command", "since"))
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return f"process {process} on {host}, since {since}: {command}"


def _lock(output: Path) -> BaseFileLock:
    """Return the one lock of ``output`` in this process."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(output, error) from error
    within = output.is_dir() and not os.access(output.parent, os.W_OK)
    return FileLock(output / ".lock" if within else _beside(output), is_singleton=True, fallback_to_soft=False)


def _beside(output: Path) -> Path:
    return output.parent / f".{output.name}.lock"


def _is_locked(descriptor: int) -> bool:
    """Lock an open file, and return whether that went well: not if it was removed before."""
    try:
        return lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink > 0
    except OSError:
        return False


def _write_holder(path: Path) -> None:
    command = shlex.join([*_program(), *sys.argv[1:]])
    content = {
        "host": platform.node(),
        "process": os.getpid(),
        "command": command,
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    with suppress(OSError):  # a full disk: the lock holds all the same
        path.write_text(json.dumps(content) + "\n", "utf-8")


def _program() -> list[str]:
    """Return how this process was started: ``miue``, ``python -m papers.mirel``, or ``python``."""
    name = Path(sys.argv[0]).name
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if name == "__main__.py" and spec is not None and spec.parent:
        return ["python", "-m", spec.parent]
    return [name or "python"]
