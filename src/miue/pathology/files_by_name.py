"""Files that are named after slides: each found by the slide's name as it is written, else without endings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from miue.bags.names import strip_endings
from miue.common.errors import not_a_folder, not_stated


@dataclass(frozen=True)
class FilesByName:
    """The files in a folder, by the names that a slide may have.

    Attributes:
        folder: that they are in.
        by_name: the files by their names, by these without a suffix, and by what ``strip_endings`` leaves of that.
    """

    folder: Path
    by_name: tuple[Mapping[str, Sequence[Path]], ...]

    @classmethod
    def index(cls, folder: Path, files: Iterable[Path]) -> Self:
        """Return these files of a folder by their names; those of one name stay in their order."""
        by_name: tuple[dict[str, list[Path]], ...] = ({}, {}, {})
        for file in files:
            for named, name in zip(by_name, (file.name, file.stem, strip_endings(file.stem)), strict=True):
                named.setdefault(name, []).append(file)
        return cls(folder, by_name)

    def named(self, slide: str) -> Sequence[Path]:
        """Return the files of a slide: of its name, else of its name as bags are joined by names."""
        names = (slide, slide, strip_endings(slide))
        found = (files.get(name, ()) for files, name in zip(self.by_name, names, strict=True))
        return next(filter(None, found), ())


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
