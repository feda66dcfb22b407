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

from pydantic import BaseModel, ConfigDict, Field, model_validator

from miue.common.errors import DataError, StorageError, first_repeated, not_readable
from miue.common.files import file_sha256

FOLDER = "instances"
MOST_ROWS = 1 << 48
FIX = "put back the file that was written with predictions.json, or predict again"


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

    @model_validator(mode="after")
    def _bags_have_rows(self) -> Part:
        if min(self.bags.values()) < 1:
            raise ValueError(f"{self.file}: a bag without rows")
        if self.rows > MOST_ROWS:
            raise ValueError(f"{self.file}: a bag of more rows than any file has")
        return self

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.bags.values())


def check_part(path: Path, part: Part, listed: Sequence[Part]) -> None:
    """Raise unless a file is the part that predictions.json lists.

    Args:
        path: the file.
        part: as it is listed.
        listed: all parts of these predictions.

    Raises:
        StorageError: it is missing, truncated, a copy of another part, or of other predictions.
    """
    try:
        size = path.stat().st_size
        if size != part.bytes:
            problem = f"{size:,} bytes: it is {'truncated' if size < part.bytes else 'longer'}, or another file"
        else:
            digest = file_sha256(path)
            if digest == part.sha256:
                return
            same = next((other.file for other in listed if other.sha256 == digest), None)
            problem = f"a copy of {same!r}" if same else "other bytes: it is damaged, or of another run"
    except FileNotFoundError:
        problem = "no such file"
    except OSError as error:
        raise not_readable(f"part {str(path)!r}", "to read it", error, FIX) from error
    raise StorageError(
        item=f"part {str(path)!r}",
        wanted=f"the file of {part.bytes:,} bytes and {part.rows:,} rows that predictions.json lists",
        got=problem,
        fix=FIX,
    )


def check_folder(folder: Path, parts: Sequence[Part]) -> None:
    """Raise unless a folder holds the parts that are listed, each with its size, and no other file.

    Raises:
        StorageError: a part that is missing, truncated, listed twice or not listed.
        DataError: a bag in two parts.
    """
    names = [part.file for part in parts]
    unlisted = sorted({path.name for path in folder.iterdir() if path.suffix == ".parquet"} - set(names))
    wrong = unlisted[0] if unlisted else first_repeated(names)
    if wrong is not None:
        raise StorageError(
            item=f"part {str(folder / wrong)!r}",
            wanted=f"the {len(parts):,} parts that predictions.json lists, each once",
            got="a file that it does not list" if unlisted else "a part that it lists twice",
            fix="remove the file if it is a copy or of another run" if unlisted else FIX,
        )
    for part in parts:
        path = folder / part.file
        if not path.is_file() or path.stat().st_size != part.bytes:
            check_part(path, part, parts)
    part_of: dict[str, str] = {}
    for part in parts:
        for bag in part.bags:
            if part_of.setdefault(bag, part.file) != part.file:
                raise DataError(
                    item=f"part {str(folder / part.file)!r}, bag {bag!r}",
                    wanted="each bag in one part",
                    got=f"another in {part_of[bag]!r}",
                    fix=FIX,
                )
