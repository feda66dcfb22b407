"""Writing that is all or nothing: a temporary sibling first, then one rename."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from miue.errors import StorageError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place only when the block succeeds.

    Raises:
        StorageError: the disk is full or the folder cannot be written; nothing half-written stays.
    """
    temporary = _temporary_sibling(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` that takes its place only when the block succeeds.

    Raises:
        StorageError: ``path`` holds something and ``overwrite`` was not asked for, or writing failed;
            in both cases what was at ``path`` before is still there, untouched.
    """
    refuse_existing(path, overwrite=overwrite)
    temporary = _temporary_sibling(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        _replace_folder(temporary, path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise unless ``path`` is free, an empty folder, or may be overwritten."""
    taken = path.is_file() or (path.is_dir() and any(path.iterdir()))
    if taken and not overwrite:
        raise StorageError(
            item=f"output {str(path)!r}",
            wanted="a new name" if path.is_file() else "a new or empty folder",
            got="a file that is there" if path.is_file() else "one that already holds files",
            fix="choose another --out, or pass --overwrite to replace it",
        )


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as readable JSON, atomically; NaN and infinity are refused."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """Read the JSON object at ``path``; ``what`` names it in the error when that fails.

    Raises:
        StorageError: missing, or not a JSON object of text that can be written again.
    """
    try:
        text = path.read_text("utf-8")
        content = json.loads(text)
        if "\\u" in text:  # an escape may spell half a character, which no file and no terminal takes
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except FileNotFoundError as error:
        raise StorageError(
            item=f"{what} {str(path)!r}",
            wanted="an existing file",
            got="no such file",
            fix="check the path, or make it first",
        ) from error
    except (
        OSError,
        ValueError,
        RecursionError,
    ) as error:
        raise StorageError(
            item=f"{what} {str(path)!r}",
            wanted="readable JSON",
            got=str(error),
            fix="the file is damaged or not what it claims to be; make it again",
        ) from error
    if not isinstance(content, dict):
        raise StorageError(
            item=f"{what} {str(path)!r}",
            wanted="a JSON object",
            got=type(content).__name__,
            fix="the file is not what it claims to be; make it again",
        )
    return content


def check_format(content: dict[str, Any], *, item: str, format_name: str, version: int, fix: str) -> None:
    """Raise unless ``content`` says it is of the given format, in a version up to ``version``.

    Raises:
        StorageError: another format, a newer version, or one that is no number.
    """
    found = content.get("version", 0)
    if content.get("format") != format_name or type(found) is not int or not 0 <= found <= version:
        raise StorageError(
            item=item,
            wanted=f"format {format_name!r} up to version {version}",
            got=f"{content.get('format')!r} version {content.get('version')}",
            fix=fix,
        )


def _temporary_sibling(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


def _replace_folder(new: Path, path: Path) -> None:
    """Put ``new`` at ``path``; the old content is moved aside first and removed last."""
    if not path.exists():
        new.replace(path)
        return
    old = _temporary_sibling(path)
    path.replace(old)
    try:
        new.replace(path)
    except OSError:
        old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(
        item=f"{str(path)!r}",
        wanted="to write it whole",
        got=error.strerror or str(error),
        fix="free space or choose another place; nothing half-written was left",
    )
