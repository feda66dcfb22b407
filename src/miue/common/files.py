"""Writing that is all or nothing: a temporary sibling first, then one rename."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from miue.common.errors import (
    NO_ROOM,
    StorageError,
    WriteError,
    cannot_write,
    first_repeated,
    no_such_file,
    not_readable,
    not_stated,
)
from miue.common.folder_kinds import FolderKind
from miue.common.outputs import discard, locked, refuse_existing, refuse_taken, temporaries


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place, and its mode, only when the block succeeds.

    What writes it writes to that path itself, not through a temporary file of its own that a kill would leave.
    Where ``path`` is a link, the file to which it leads is written. Of several who write it at once,
    the last to end is kept.

    Raises:
        StorageError: the disk is full, the folder cannot be written, or ``path`` is no file; nothing half-written
            stays.
    """
    path = _followed(path)
    refuse_taken(path, overwrite=True)
    temporary = _temporary_sibling(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            temporary.touch(0o600)
        yield temporary
        _finish(temporary, path)
        temporary.replace(path)
    except OSError as error:
        raise _failed(path, temporary, error) from error
    finally:
        discard(temporary)


@contextmanager
def atomic_folder(path: Path, kind: FolderKind, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` that takes its place only when the block succeeds.

    The folder, and each file in it, keeps the mode of what it replaces.

    Args:
        path: of the folder; where it is a link, that to which it leads.
        kind: of the folder; one of another kind is not replaced.
        overwrite: replace what is there.

    Raises:
        StorageError: ``path`` holds something and ``overwrite`` was not asked for, or something of another kind,
            another process writes it, or writing failed; in all cases what was at ``path`` before is still there,
            untouched.
    """
    path = _followed(path)
    with locked(path):
        _put_back(path)
        refuse_existing(path, kind, overwrite=overwrite)
        temporary = _temporary_sibling(path)
        try:
            temporary.mkdir(0o700 if path.exists() else 0o777, parents=True)
            yield temporary
            for file in temporary.rglob("*"):
                _finish(file, path / file.relative_to(temporary))
            _finish(temporary, path)
            if path.exists():
                path.replace(_moved_aside(path))
            temporary.replace(path)
            discard(_moved_aside(path))
        except OSError as error:
            raise _failed(path, temporary, error) from error
        except WriteError as error:  # of a file within, which has no such place
            raise error.replaced(item=error.item.replace(str(temporary), str(path))) from error
        finally:
            discard(temporary)
            _put_back(path)


def make_folder(path: Path) -> None:
    """Make the folder ``path``, or that to which it leads as a link, where there is none.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        _followed(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, where there is one.

    Raises:
        StorageError: it cannot be removed.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error).replaced(wanted="to remove it") from error


def remove_temporaries(*folders: Path) -> None:
    """Remove what processes that were killed left in ``folders``, whose lock the caller holds."""
    for folder in folders:
        for left in temporaries(folder):
            discard(left)


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as readable JSON, atomically; NaN and infinity are refused."""
    with atomic_file(path) as temporary:
        temporary.write_text(json_text(content), "utf-8")


def json_text(content: Any) -> str:
    """Return ``content`` as readable JSON; NaN and infinity are refused."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """Read the JSON object at ``path``; ``what`` names it in the error when that fails.

    Raises:
        StorageError: missing, or not a JSON object of text that can be written again, each key once.
    """
    item, fix = f"{what} {str(path)!r}", "the file is damaged or not what it claims to be; make it again"
    with open_file(path, item) as file:
        try:
            text = file.read().decode("utf-8-sig")
            content = json.loads(text, object_pairs_hook=_each_key_once)
            if "\\u" in text:  # an escape may spell half a character, which no file and no terminal takes
                json.dumps(content, ensure_ascii=False).encode("utf-8")
        except (OSError, ValueError, RecursionError) as error:
            raise not_readable(item, "readable JSON", error, fix) from error
    if not isinstance(content, dict):
        raise StorageError(item=item, wanted="a JSON object", got=type(content).__name__, fix=fix)
    return content


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values.

    Raises:
        ValueError: a key twice, of which Python's own reader takes the last unasked.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key {first_repeated(key for key, _ in pairs)!r} twice in one object")
    return found


def open_file(path: Path, item: str = "") -> BufferedReader:
    """Open a file for reading, as all readers do before a library takes its path.

    Args:
        path: of the file.
        item: names it in errors.

    Raises:
        StorageError: missing, may not be read, or no file: a folder, or a pipe or a device, which may never end.
    """
    item = item or f"file {str(path)!r}"
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except FileNotFoundError as error:
        raise no_such_file(item) from error
    except (OSError, ValueError) as error:
        raise not_readable(item, "a file that can be read", error, "check the path") from error
    got = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
    raise StorageError(item=item, wanted="a file", got=got, fix="pass the path of a file")


def name_of(path: Path) -> str:
    """Return the name of a file or folder, also where its path is ``.`` or ends in ``..``."""
    return Path(os.path.abspath(path)).name  # noqa: PTH100  # a link keeps its own name


def refuse_undecodable_name(path: Path) -> None:
    """Raise where the name of a file is not in UTF-8, so that no table can hold it.

    Raises:
        StorageError: it is not.
    """
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        wanted, got = "a name in UTF-8", "another encoding, such as Latin-1"
        raise StorageError(item=f"file {str(path)!r}", wanted=wanted, got=got, fix="rename it") from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, which is read piece by piece.

    Raises:
        StorageError: missing, or it cannot be read.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _followed(path: Path) -> Path:
    """Return where a link leads, which need not be there; a path that is no link as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _finish(written: Path, replaced: Path) -> None:
    """Give what was written the mode of what it replaces, and see that it is on the disk."""
    if replaced.exists():
        shutil.copymode(replaced, written)
    if written.is_file():
        _sync(written)


def _failed(path: Path, temporary: Path, error: OSError) -> StorageError:
    """Return the error for ``path`` that was not written, or for another file that was to be read meanwhile."""
    at_fault = Path(os.fsdecode(error.filename or path)).absolute()
    of_output = (path, temporary, _moved_aside(path))
    if error.errno in NO_ROOM or at_fault in path.parents or any(map(at_fault.is_relative_to, of_output)):
        return cannot_write(path, error)
    return not_stated(at_fault, error)


def _temporary_sibling(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


def _put_back(path: Path) -> None:
    """Remove what was moved aside, or put it back in its place where the new is not there."""
    old = _moved_aside(path)
    if old.exists() and not path.exists():
        old.replace(path)
    discard(old)


def _moved_aside(path: Path) -> Path:
    return path.parent / f".{path.name}.old"


def _sync(path: Path) -> None:
    with path.open("r+b" if os.name == "nt" else "rb") as file:  # Windows wants a file that may be written
        os.fsync(file.fileno())
