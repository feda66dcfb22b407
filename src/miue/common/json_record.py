"""One pydantic record as a JSON file that says its format and version, and has its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from miue.common.digests import read_sealed, sealed
from miue.common.errors import not_readable
from miue.common.files import write_json

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
