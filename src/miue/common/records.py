"""JSON records with their checksum, and digests of the files beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from miue.common.errors import StorageError, not_readable
from miue.common.files import file_sha256, read_json, write_json

FILES = "files"
"""Key under which the main file of a folder, such as config.json, lists the SHA-256 of the others by name."""
MODEL_FORMAT = "miue-model"


def json_sha256(content: Any) -> str:
    """Return the SHA-256 of JSON values, the same however they are written, with keys in any order."""
    as_read = json.loads(json.dumps(content))  # whose keys are text
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object for a JSON file with the SHA-256 of all else in it, under ``sha256``."""
    others = {key: value for key, value in content.items() if key != "sha256"}
    return {**others, "sha256": json_sha256(others)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Return whether an object of a JSON file is as it was sealed."""
    return sealed(content) == content


def read_sealed(path: Path, *, what: str, format_name: str, version: int, again: str) -> dict[str, Any]:
    """Return the object of a JSON file that was sealed.

    Args:
        path: the file.
        what: it is called in messages, "calibration".
        format_name: that it must state under ``format``.
        version: of the format, likewise.
        again: how it is made anew, "calibrate again".

    Raises:
        StorageError: missing, damaged or changed, of another format, or written by another version of miue.
    """
    content, item = read_json(path, what=what), f"{what} {str(path)!r}"
    wanted, stored = f"format {format_name!r} version {version}", content.get("version")
    if content.get("format") != format_name:
        got = f"format {content['format']!r}" if "format" in content else "a file that states no format"
        fix = "choose another: miue did not write this one, or wrote it for something else"
        raise StorageError(item=item, wanted=wanted, got=got, fix=fix)
    if type(stored) is not int or stored != version:
        fix = f"another version of miue wrote it: {again}"
        raise StorageError(item=item, wanted=wanted, got=f"version {stored}", fix=fix)
    if not is_sealed(content):
        got, fix = "content that was changed, or is damaged", f"put back what was written, or {again}"
        raise StorageError(item=item, wanted="content with the SHA-256 that it states", got=got, fix=fix)
    return content


def list_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each of these files that is in ``folder``, for its main file."""
    return {name: file_sha256(folder / name) for name in names if (folder / name).exists()}


def list_in_model(path: Path) -> None:
    """List a file that was written into a folder after its config.json, where that is of a model.

    Raises:
        StorageError: config.json cannot be written.
    """
    config = path.with_name("config.json")
    try:
        content = read_json(config, what="model config")
    except StorageError:  # none, or that of another tool
        return
    if content.get("format") == MODEL_FORMAT and is_sealed(content):
        content[FILES][path.name] = file_sha256(path)
        write_json(config, sealed(content))


def check_files(
    main: Path,
    listed: Mapping[str, str],
    names: Iterable[str],
    again: str,
    digest: Callable[[Path], str] = file_sha256,
) -> None:
    """Raise unless files are those that the main file of their folder lists; others may not be there.

    Args:
        main: the main file.
        listed: what it has under ``FILES``.
        names: of the files that are to be read.
        again: how all are made anew, "train again".
        digest: of a file's content.

    Raises:
        StorageError: a file is missing, not listed, or another one than was written.
    """
    for name in names:
        path, fix = main.parent / name, f"put back what {main.name} lists"
        if not path.exists():
            got = "none" if name in listed else ""
        elif name not in listed:
            got, fix = "one that it does not list", "remove it"
        else:
            got = "" if digest(path) == listed[name] else "another: it was changed, or is of another folder"
        if got:
            wanted = f"a file that {main.name} lists"
            raise StorageError(item=repr(str(path)), wanted=wanted, got=got, fix=f"{fix}, or {again}")


Record = TypeVar("Record", bound=BaseModel)


@dataclass(frozen=True)
class JsonFormat:
    """A kind of JSON file that holds one record.

    Attributes:
        name: of the format, under the key ``format``.
        version: of the format.
        key: under which the record is.
        what: what the record is called in messages, "error model".
        again: how it is made anew, "train again".
    """

    name: str
    version: int
    key: str
    what: str
    again: str

    def write(self, path: Path, record: BaseModel) -> None:
        """Write a record to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        content = {"format": self.name, "version": self.version, "miue": version("miue")}
        write_json(path, sealed({**content, self.key: record.model_dump(mode="json")}))

    def read(self, path: Path, kind: type[Record]) -> Record:
        """Return the record of some kind in the file ``path``.

        Raises:
            StorageError: none there, a damaged or changed one, or one of another version.
        """
        content = read_sealed(path, what=self.what, format_name=self.name, version=self.version, again=self.again)
        try:
            return kind.model_validate(content.get(self.key))
        except ValidationError as error:
            raise not_readable(
                f"{self.what} {str(path)!r}", "the parts that miue writes", error, self.again
            ) from error
