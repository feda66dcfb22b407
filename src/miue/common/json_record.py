"""One pydantic record as a JSON file that says its format and version, and has its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from miue.common.errors import StorageError, not_readable
from miue.common.files import check_format, has_own_sha256, json_sha256, read_json, write_json

Record = TypeVar("Record", bound=BaseModel)


@dataclass(frozen=True)
class JsonFormat:
    """A kind of JSON file that holds one record.

    Attributes:
        name: of the format, under the key ``format``.
        version: the highest that is read, and the one that is written.
        key: under which the record is.
        what: what the record is called in messages, "error model".
        again: how one of a newer format is made anew, "train again".
        damaged: what to do about a damaged one.
    """

    name: str
    version: int
    key: str
    what: str
    again: str
    damaged: str

    def write(self, path: Path, record: BaseModel) -> None:
        """Write a record to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        content = {"format": self.name, "version": self.version, "miue": version("miue")}
        stored = record.model_dump(mode="json")
        write_json(path, {**content, self.key: stored, "sha256": json_sha256(stored)})

    def read(self, path: Path, kind: type[Record]) -> Record:
        """Return the record of some kind in the file ``path``.

        Raises:
            StorageError: none there, a damaged or changed one, or a newer format.
        """
        content, item = read_json(path, what=self.what), f"{self.what} {str(path)!r}"
        fix = f"update miue, or {self.again}"
        check_format(content, item=item, format_name=self.name, version=self.version, fix=fix)
        try:
            record = kind.model_validate(content.get(self.key))
        except ValidationError as error:
            raise not_readable(item, "the parts that miue writes", error, self.damaged) from error
        if not has_own_sha256(content, self.key):  # files of development versions before have none
            raise StorageError(
                item=item,
                wanted="what miue wrote, by its checksum (sha256)",
                got="another content: it is damaged, or was changed",
                fix=f"put back the file that was written, or {self.damaged}",
            )
        return record
