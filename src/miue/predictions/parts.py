"""Instances as parts: Parquet files of whole bags, one written while the next is computed, and read one by one.

A part holds, row after row in the order of its bags, ``bag_id``, ``instance``, the parameters of the distribution
(alpha_0 …, or p_0 …, of draws also expected_entropy) and score_…; x, y, label, is_ood and ood_set, where known;
and ``flagged``, true or false, where a calibration of instances was applied.
Numbers are float32 where that loses nothing, as of all that a network computes in float32, else float64: what is
read equals what was written. ``predictions.json`` lists the parts: size, SHA-256, and the rows of each bag.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from miue.common.digests import check_files

FOLDER, MAIN = "instances", "predictions.json"
AGAIN = "predict again"
FIX = f"put back the file that was written with {MAIN}, or {AGAIN}"


class Part(BaseModel):
    """A file of instances, as predictions.json lists it.

    Attributes:
        file: its name.
        bytes: its size.
        sha256: of its content.
        bags: the rows of each bag, in order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(pattern=r"^part-\d{5,9}\.parquet$")
    bytes: int = Field(ge=1)
    sha256: str
    bags: dict[str, int] = Field(min_length=1)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.bags.values())


def check_part(path: Path, part: Part) -> None:
    """Raise unless a file is the part that predictions.json lists.

    Raises:
        StorageError: it is missing, truncated, or another file.
    """
    name = f"{path.parent.name}/{path.name}"
    check_files(path.parent.with_name(MAIN), {name: part.sha256}, [name], AGAIN)


def check_folder(folder: Path, parts: Sequence[Part]) -> None:
    """Raise unless a folder holds the parts that are listed, each with its size, and no other file of instances.

    Raises:
        StorageError: a part that is missing, truncated or not listed.
    """
    listed = {part.file for part in parts}
    unlisted = [f"{folder.name}/{path.name}" for path in folder.glob("*.parquet") if path.name not in listed]
    check_files(folder.with_name(MAIN), {}, unlisted, AGAIN)
    for part in parts:
        path = folder / part.file
        if not path.is_file() or path.stat().st_size != part.bytes:
            check_part(path, part)
