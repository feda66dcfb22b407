"""Writing that is all or nothing: a temporary sibling first, then one rename."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from miue.common.errors import (
    NO_ROOM,
    StorageError,
    WriteError,
    cannot_write,
    first_repeated,
    is_denied,
    may_not_read,
    no_such_file,
    not_a_folder,
    not_readable,
    not_stated,
)
from miue.common.folder_kinds import FolderKind
from miue.common.locks import held_if_free, locked
from miue.common.outputs import refuse_existing, refuse_taken

LOCK = ".lock"  # ending of the file that is locked while a temporary file is written
TEMPORARY = r"\.[0-9a-f]{8}\.tmp"  # pattern of the ending of a temporary file or folder


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place only when the block succeeds.

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
    in_temporary_folder = any(re.fullmatch(rf"\..+{TEMPORARY}", folder.name) for folder in path.absolute().parents)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with nullcontext() if in_temporary_folder else _seen_to_live(path, temporary):
            yield temporary
            _sync(temporary)
            temporary.replace(path)
    except OSError as error:
        raise _failed(path, temporary, error) from error
    finally:
        _remove(temporary)


@contextmanager
def atomic_folder(path: Path, kind: FolderKind, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` that takes its place only when the block succeeds.

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
        for left in temporaries(path.parent, path.name):  # of a process that was killed, since the lock is ours
            _remove(left)
        temporary = _temporary_sibling(path)
        try:
            temporary.mkdir(parents=True)
            with _not_removed(temporary):
                yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            if path.exists():
                path.replace(_moved_aside(path))
            temporary.replace(path)
            _remove(_moved_aside(path))
        except OSError as error:
            raise _failed(path, temporary, error) from error
        except WriteError as error:  # of a file within, which has no such place
            raise error.replaced(item=error.item.replace(str(temporary), str(path))) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
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
        raise StorageError(
            item=f"{str(path)!r}",
            wanted="to remove it",
            got=os.strerror(error.errno) if error.errno else str(error),
            fix="choose another place, or see who may write there",
        ) from error


def files_with_endings(folder: Path, endings: Collection[str], wanted: str, fix: str) -> list[Path]:
    """Return the files of a folder with one of ``endings``, in lower case, whatever the case of theirs; sorted.

    Raises:
        StorageError: no such folder, or one that may not be read; ``wanted`` and ``fix`` are for its message.
    """
    try:
        if not folder.is_dir():
            raise not_a_folder(folder, wanted, fix)
        return sorted(file for file in folder.iterdir() if file.suffix.lower() in endings and file.is_file())
    except OSError as error:
        raise not_stated(error.filename or folder, error) from error


def temporaries(folder: Path, name: str = "") -> list[Path]:
    """Return what writing ``name``, or anything, left in ``folder`` when it was killed, or is writing just now.

    Only who holds the lock of the output may remove them. Nothing where the folder cannot be listed.
    """
    pattern = re.compile(rf"\.{re.escape(name) if name else '.+'}{TEMPORARY}({re.escape(LOCK)})?")
    with suppress(OSError), os.scandir(folder) as entries:
        return [folder / entry.name for entry in entries if pattern.fullmatch(entry.name)]
    return []


def remove_temporaries(*folders: Path) -> None:
    """Remove what processes that were killed left in ``folders``, whose lock the caller holds."""
    for folder in folders:
        for left in temporaries(folder):
            _remove(left)


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as readable JSON, atomically; NaN and infinity are refused."""
    with atomic_file(path) as temporary:
        temporary.write_text(json_text(content), "utf-8")


def json_text(content: Any) -> str:
    """Return ``content`` as readable JSON; NaN and infinity are refused."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def json_sha256(content: Any) -> str:
    """Return the SHA-256 of content of a JSON file, the same however it is written, with keys in any order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def has_own_sha256(content: Mapping[str, Any], key: str) -> bool:
    """Return whether what a JSON file has under ``key`` has the ``sha256`` beside it; true where there is none."""
    return "sha256" not in content or content["sha256"] == json_sha256(content[key])


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """Read the JSON object at ``path``; ``what`` names it in the error when that fails.

    Raises:
        StorageError: missing, or not a JSON object of text that can be written again, each key once.
    """
    item, fix = f"{what} {str(path)!r}", "the file is damaged or not what it claims to be; make it again"
    refuse_special(item, path)
    try:
        text = path.read_text("utf-8")
        content = json.loads(text, object_pairs_hook=_each_key_once)
        if "\\u" in text:  # an escape may spell half a character, which no file and no terminal takes
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except FileNotFoundError as error:
        raise no_such_file(item, "check the path, or make it first") from error
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


def refuse_special(item: str, path: Path) -> None:
    """Raise where ``path`` is a pipe or a device, of which reading waits for ever, or finds no end.

    Raises:
        StorageError: it is.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # what is not there is for the reader to say
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        fix = "write what comes out of it into a file, and pass that"
        raise StorageError(item=item, wanted="a file", got="a pipe, a socket or a device", fix=fix)


def refuse_unreadable(item: str, path: Path) -> None:
    """Raise where the user may not read ``path``, of which some libraries say that it is not there, or damaged.

    Raises:
        StorageError: they may not.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        if is_denied(error):
            raise may_not_read(item) from error


def name_of(path: Path) -> str:
    """Return the name of a file or folder, also where its path is ``.`` or ends in ``..``."""
    return Path(os.path.abspath(path)).name  # noqa: PTH100  # a link keeps its own name


def refuse_undecodable_name(path: Path) -> None:
    """Raise where the name of a file is not in the encoding of the system, so that no table can hold it.

    Raises:
        StorageError: it is not.
    """
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        wanted, got = f"a name in {sys.getfilesystemencoding().upper()}", "another encoding, such as Latin-1"
        fix = "rename it; 'convmv -f latin1 -t utf8 --notest FOLDER/*' renames many"
        raise StorageError(item=f"file {str(path)!r}", wanted=wanted, got=got, fix=fix) from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, which is read piece by piece.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_format(content: dict[str, Any], *, item: str, format_name: str, version: int, fix: str) -> None:
    """Raise unless ``content`` says it is of the given format, in a version up to ``version``.

    Raises:
        StorageError: another format, a newer version, or one that is no number; only with these does ``fix`` help.
    """
    stored = content.get("version", 0)
    if content.get("format") != format_name:
        got = f"format {content['format']!r}" if "format" in content else "a file that states no format"
        fix = "choose another: miue did not write this one, or wrote it for something else"
        raise StorageError(item=item, wanted=f"format {format_name!r}", got=got, fix=fix)
    if type(stored) is not int or not 0 <= stored <= version:
        raise StorageError(
            item=item,
            wanted=f"format {format_name!r} up to version {version}",
            got=f"{content.get('format')!r} version {content.get('version')}",
            fix=fix,
        )


def _followed(path: Path) -> Path:
    """Return where a link leads, which need not be there; a path that is no link as it is.

    Raises:
        StorageError: links that lead to each other, which ``resolve`` leaves as they are from Python 3.13 on.
    """
    if not path.is_symlink():
        return path
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise not_stated(path, error) from error
    return path.resolve()


def _failed(path: Path, temporary: Path, error: OSError) -> StorageError:
    """Return the error for ``path`` that was not written, or for another file that was to be read meanwhile."""
    if error.filename is None or error.errno in NO_ROOM:
        return cannot_write(path, error)
    output, at_fault = path.absolute(), Path(os.fsdecode(error.filename)).absolute()
    of_output = (output, temporary.absolute(), _moved_aside(output))
    if at_fault in output.parents or any(at_fault.is_relative_to(place) for place in of_output):
        return cannot_write(path, error)
    return not_stated(error.filename, error)


def _temporary_sibling(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


@contextmanager
def _seen_to_live(path: Path, temporary: Path) -> Iterator[None]:
    """Remove what killed writers of ``path`` left, and hold a lock beside ``temporary`` while the block runs."""
    _remove_abandoned(path)
    lock = temporary.with_name(temporary.name + LOCK)
    with suppress(OSError):  # what keeps it from being made keeps the file from it as well
        lock.touch()
    try:
        with held_if_free(lock):
            yield
            _remove(lock)
    finally:
        _remove(lock)


@contextmanager
def _not_removed(folder: Path) -> Iterator[None]:
    """Raise where ``folder`` was removed during the block, even if what wrote into it after made it again.

    Raises:
        FileNotFoundError: it was, as far as the system says.
    """
    if os.name == "nt":  # opens no folders
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        links = os.fstat(descriptor).st_nlink
        yield
        if links and not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    finally:
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed left of the file ``path``, and nothing that one writes just now.

    A writer that finds its lock held here goes on without; what it writes was not there when its lock was seen.
    """
    left = set(temporaries(path.parent, path.name))
    for lock in (file for file in left if file.suffix == LOCK):
        with held_if_free(lock) as is_held:
            if is_held:
                for file in left & {lock.with_suffix(""), lock}:
                    _remove(file)


def _put_back(path: Path) -> None:
    """Remove what was moved aside, or put it back in its place where the new is not there."""
    old = _moved_aside(path)
    if old.exists() and not path.exists():
        old.replace(path)
    _remove(old)


def _moved_aside(path: Path) -> Path:
    return path.parent / f".{path.name}.old"


def _remove(path: Path) -> None:
    """Remove a file or folder, if that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with path.open("r+b" if os.name == "nt" else "rb") as file:  # Windows wants a file that may be written
        os.fsync(file.fileno())
