"""Which files of a folder are its bags: those of CLAM, TRIDENT, STAMP or anyone's, found by looking."""

from __future__ import annotations

from pathlib import Path

from miue.errors import DataError
from miue.readers.formats import READERS

NO_BAGS = ("patches", "masks", "stitches", "thumbnails", "visualization", "contours", "contours_geojson")


def bag_files(folder: Path) -> list[Path]:
    """Return the bag files of ``folder``, sorted by name.

    They lie in the folder itself, or in the only folder below it that has any. Of CLAM's ``h5_files`` and
    ``pt_files``, which hold the same features, the first is taken, since it has the coords.

    Raises:
        DataError: no such folder, no bag files, several folders of them, or one id twice.
    """
    if not folder.is_dir():
        raise DataError(
            item=f"{str(folder)!r}",
            wanted="a folder of bag files",
            got="a file" if folder.exists() else "no such folder",
            fix="check the path",
        )
    files = _files_in(folder) or _files_in(_only_folder_below(folder))
    by_id: dict[str, Path] = {}
    for path in files:
        if path.stem in by_id:
            raise DataError(
                item=f"bag {path.stem!r}",
                wanted="one file of this name",
                got=f"{by_id[path.stem].name} and {path.name}",
                fix="keep one of them, or give each kind a folder of its own",
            )
        by_id[path.stem] = path
    return files


def _files_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in READERS and not path.name.startswith(".") and path.is_file()
    )


def _only_folder_below(folder: Path) -> Path:
    found = [
        below
        for below in sorted(folder.rglob("*"))
        if below.is_dir() and not set(below.relative_to(folder).parts) & set(NO_BAGS) and _files_in(below)
    ]
    with_coords = {below.parent for below in found if below.name == "h5_files"}
    found = [below for below in found if not (below.name == "pt_files" and below.parent in with_coords)]
    if len(found) == 1:
        return found[0]
    raise DataError(
        item=f"{str(folder)!r}",
        wanted=f"bag files ending in {', '.join(READERS)}, in it or in one folder below it",
        got=f"several such folders: {', '.join(str(f.relative_to(folder)) for f in found)}" if found else "none",
        fix="give one of these folders" if found else "check the path; features come from CLAM, TRIDENT or STAMP",
    )
