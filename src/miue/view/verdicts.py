"""Verdicts as they are written: each at once, at the end of a table to which several people may write."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from miue.common.errors import DataError, cannot_write
from miue.common.outputs import locked, refuse_taken
from miue.common.tables import read_text_columns
from miue.common.text import escape_formula
from miue.io import VERDICTS, is_of_verdicts, last_verdicts

Verdict = Mapping[str, str]
"""The label of a bag, a note, who said so and when."""


@dataclass
class VerdictFile:
    """A table of verdicts, which is made with the first one.

    Attributes:
        path: of the CSV file.
        person: whose verdicts are written.
    """

    path: Path
    person: str
    _writing: Lock = field(default_factory=Lock, repr=False)

    def check(self) -> None:
        """Raise where verdicts could not be written later.

        Raises:
            StorageError: a folder or a device, or a file that cannot be read.
            DataError: a table of something else.
        """
        refuse_taken(self.path, overwrite=True)
        self.read()

    def read(self) -> dict[str, Verdict]:
        """Return the last verdict of each bag by its id; an empty label is that of one that was taken back.

        Raises:
            StorageError: a file that cannot be read.
            DataError: a table of something else.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return {}
        columns = read_text_columns(self.path)
        if not is_of_verdicts(list(columns)):
            raise DataError(
                item=f"table {str(self.path)!r}",
                wanted=f"verdicts, with the columns {', '.join(VERDICTS)}",
                got=f"the columns {', '.join(columns)}",
                fix="name another file for the verdicts",
            )
        last = last_verdicts(columns)
        rows = zip(*(last[name] for name in VERDICTS), strict=True)
        return {bag: dict(zip(VERDICTS[1:], others, strict=True)) for bag, *others in rows}

    def append(self, bag: str, label: str, note: str) -> Verdict:
        """Write a verdict and return it, once it is on the disk.

        Raises:
            WriteError: it cannot be written; nothing half-written is left.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        verdict = {
            "label": label,
            "note": escape_formula(note),
            "person": escape_formula(self.person),
            "time": now,
        }
        with self._writing, locked(self.path, wait=True):
            try:
                _append_row(self.path, [bag, *verdict.values()])
            except OSError as error:
                raise cannot_write(self.path, error) from error
        return verdict


def _append_row(path: Path, row: list[str]) -> None:
    """Write a row at the end of a table, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            writer.writerow(VERDICTS)
        else:
            file.seek(-1, os.SEEK_END)
            text.write("" if file.read() == b"\n" else "\n")
        writer.writerow(row)
        try:
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, size)
            raise
