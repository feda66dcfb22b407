"""Which files of a folder are its bags: those of CLAM, TRIDENT, STAMP or anyone's, found by looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from miue.common.errors import DataError, first_few, lacking, not_a_folder
from miue.io.formats.registry import READERS

NO_BAGS = ("patches", "masks", "stitches", "thumbnails", "visualization", "contours", "contours_geojson")


@dataclass(frozen=True)
class BagFiles:
    """The bag files of a folder, sorted by name.

    Attributes:
        folder: where they were looked for.
        by_id: the file of each bag; several where two kinds of file have one name.
        not_read: which folder beside holds bags that these are not, "" for none.
    """

    folder: str
    by_id: Mapping[str, tuple[Path, ...]]
    not_read: str = ""


def bag_files(folder: Path) -> BagFiles:
    """Return the bag files of ``folder``.

    They are in the folder itself, or in the only folder below it that has any. Of CLAM's ``h5_files`` and
    ``pt_files``, which hold the same features, the first is taken, since it has the coords.

    Raises:
        StorageError: no such folder.
        DataError: no bag files, or several folders of them.
    """
    if not folder.is_dir():
        raise not_a_folder(folder, "a folder of bag files")
    files = _files_in(folder)
    if (folder / "config.json").exists() and (folder / "model.safetensors").exists():
        raise not_a_folder(
            folder, "bags: a bag store or a folder of feature files", "name the bags, then --out RUN"
        )
    if files:
        return BagFiles(str(folder), _by_id(files))
    below = _only_folder_below(folder)
    return BagFiles(str(folder), _by_id(_files_in(below)), _not_read(below))


def _by_id(files: list[Path]) -> dict[str, tuple[Path, ...]]:
    by_id: dict[str, tuple[Path, ...]] = {}
    for path in files:
        by_id[path.stem] = (*by_id.get(path.stem, ()), path)
    return by_id


def _not_read(folder: Path) -> str:
    """Return which bags of ``pt_files`` the folder ``h5_files``, read in its place, does not hold."""
    beside = folder.parent / "pt_files"
    if folder.name != "h5_files" or not beside.is_dir():
        return ""
    only = sorted(_by_id(_files_in(beside)).keys() - _by_id(_files_in(folder)).keys())
    if not only:
        return ""
    return f"{beside.name!r} was not read; {len(only):,} of its bags are not in {folder.name!r}: {first_few(only)}"


def _files_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in READERS and not path.name.startswith(".") and path.is_file()
    )


def _only_folder_below(folder: Path) -> Path:
    folders = [
        below
        for below in sorted(folder.rglob("*"))
        if below.is_dir() and not set(below.relative_to(folder).parts) & set(NO_BAGS) and _files_in(below)
    ]
    with_coords = {below.parent for below in folders if below.name == "h5_files"}
    folders = [below for below in folders if not (below.name == "pt_files" and below.parent in with_coords)]
    if len(folders) == 1:
        return folders[0]
    item, wanted = repr(str(folder)), f"bag files ending in {', '.join(READERS)}, in it or in one folder below it"
    if not folders:
        raise lacking(item, wanted, "check the path; features come from CLAM, TRIDENT or STAMP")
    got = f"several such folders: {', '.join(str(below.relative_to(folder)) for below in folders)}"
    raise DataError(item=item, wanted=wanted, got=got, fix="pass one of these folders")
