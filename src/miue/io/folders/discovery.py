"""Which files of a folder are its bags: those of CLAM, TRIDENT, STAMP or anyone's, found by looking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from miue.bags.names import ANNDATA, HOW_TO_READ_ANNDATA, TABLES
from miue.common.errors import ConfigError, DataError, first_few, not_a_folder
from miue.common.files import refuse_undecodable_name
from miue.common.folder_kinds import kind_of
from miue.common.text import plural
from miue.io.folders.several import describe_several, several_folders, splits_by_folder
from miue.io.formats.base import READERS, STORE, bag_name, ending_of, takes_folders
from miue.io.formats.beside import holds_positions
from miue.io.formats.images import has_images
from miue.io.formats.spatial_data import is_spatial_data, table_asked_for

NO_BAGS = (
    *("patches", "masks", "stitches", "thumbnails", "visualization", "contours", "contours_geojson"),
    *("coords", "labels", "patch_labels", "slice_labels", "adj"),  # torchmil's, of which its features are beside
)
ABOUT_BAGS = (
    ".csv",
    ".tsv",
    ".xlsx",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".txt",
    ".md",
    ".log",
    ".xml",
    ".geojson",
)
"""Endings of what tools write beside bag files."""


@dataclass(frozen=True)
class BagFiles:
    """The bag files of a folder, sorted by name.

    Attributes:
        folder: where they were looked for.
        by_id: the file of each bag; several where two kinds of file have one name.
        not_read: what lies beside and is not read, "" for nothing.
        splits: the split of each bag whose folder is named after one; of all bags or of none.
    """

    folder: str
    by_id: Mapping[str, tuple[Path, ...]]
    not_read: str = ""
    splits: Mapping[str, str] = field(default_factory=dict)


def bag_files(folder: Path, feature_key: str = "") -> BagFiles:
    """Return the bag files of ``folder``, or the one bag of a SpatialData store or of another reader's folder.

    They are in the folder itself, or in those below it, such as one for each class or hospital, if no bag is in
    two of these; folders named train, validation, calibration and test name the splits of their bags. Of CLAM's
    ``h5_files`` and ``pt_files``, which hold the same features, the first is taken, since it has the coords. Where
    there is no such file, the folders of images are the bags. Of a SpatialData store, the bag is a table of its
    features.

    Args:
        folder: where they are.
        feature_key: which table of features of SpatialData stores is read, where they have several.

    Raises:
        StorageError: no such folder.
        DataError: no bag files, several folders with the same bags or of which some are named like splits, or a
            store with several tables and none asked for.
        ConfigError: a table is asked for where no bag is a SpatialData store.
    """
    if not folder.is_dir():
        raise not_a_folder(folder, "a folder of bag files")
    files = [folder] if _is_bag_folder(folder) else _files_in(folder)
    if (folder / "config.json").exists() and (folder / "model.safetensors").exists():
        raise not_a_folder(
            folder, "bags: a bag store or a folder of feature files", "name the bags, then --out RUN"
        )
    if files:
        below = [one for one in _folders_directly_below(folder) if _files_in(one)]
        inner = f"bag files in folders of {folder.name!r} were not read: {_names(below)}" if below else ""
        beside = "" if files == [folder] else _others(folder)
        return BagFiles(str(folder), _by_id(files, feature_key), _sentences(beside, inner))
    below = _folders_below(folder)
    with_files = _without_twins([one for one in below if _files_in(one)])
    if with_files:
        in_folders = {one: _files_in(one) for one in with_files}
        splits = _splits_of_parts(in_folders, folder)
        found = sorted(chain.from_iterable(in_folders.values()), key=lambda file: file.name)
        not_read = _sentences(
            describe_several({one: len(own) for one, own in in_folders.items()}, folder, splits),
            _others(*with_files),
            *map(_not_read, with_files),
        )
        by_id = _by_id(found, feature_key)
        return BagFiles(str(folder), by_id, not_read, _splits_of_bags(by_id, splits))
    with_images = [one for one in below if has_images(one)]
    images = [one for one in with_images if one not in {other.parent for other in with_images}]
    parents, splits = _image_parents(images, folder)
    said = [
        f"images in {str(one)!r} itself were not read: they are in no bag's folder"
        for one in parents
        if has_images(one)
    ]
    empty = [
        one
        for parent in parents
        for one in _folders_directly_below(parent)
        if one not in images and not _folders_directly_below(one)
    ]
    without = f"folders without an image, which are no bags: {_names(empty)}" if empty else ""
    counted = {parent: sum(one.parent == parent for one in images) for parent in parents}
    images.sort(key=lambda one: one.name)
    by_id = _by_id(images, feature_key)
    notes = _sentences(describe_several(counted, folder, splits), *said, without)
    return BagFiles(str(folder), by_id, notes, _splits_of_bags(by_id, splits))


def _splits_of_bags(by_id: Mapping[str, tuple[Path, ...]], splits: Mapping[Path, str]) -> dict[str, str]:
    """Return the split of each bag, by that of a folder which its file is in; nothing where folders have none."""
    if not splits:
        return {}
    return {
        name: next(split for folder, split in splits.items() if path.is_relative_to(folder))
        for name, (path, *_) in by_id.items()
    }


def _image_parents(images: list[Path], folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """Return the folders that have the folders of images: one, or several such as those of classes; and splits.

    Raises:
        DataError: none; or several that are not parts of one set of bags, lie at several depths, or have images of
            their own.
    """
    parents = list(dict.fromkeys(one.parent for one in images))
    if len(parents) < 2:
        return [_only(parents, folder)], {}
    if len({len(one.parts) for one in parents}) > 1 or any(map(has_images, parents)):
        raise _several_folders(
            parents, folder, ", at several depths or with images of their own", "pass one of these folders"
        )
    bags = {one: [image for image in images if image.parent == one] for one in parents}
    return parents, _splits_of_parts(bags, folder)


def has_bag_files(folder: Path) -> bool:
    """Return whether a folder, or one below it, has bag files or images, as ``bag_files`` looks for them."""
    return next(bag_files_below(folder), None) is not None or any(map(has_images, _folders_below(folder)))


def bag_files_below(folder: Path) -> Iterator[Path]:
    """Yield the bag files of a folder, the folder itself if it is one, or those of the folders below it."""
    here = [folder] if _is_bag_folder(folder) else _files_in(folder)
    yield from here or chain.from_iterable(map(_files_in, _folders_below(folder)))


def _by_id(files: list[Path], feature_key: str = "") -> dict[str, tuple[Path, ...]]:
    """Return files by the name of the bag; of SpatialData stores, the tables of features.

    Raises:
        DataError: a store with several tables of features, of which none was asked for.
        ConfigError: a table is asked for, and there is no store.
        StorageError: a name that is no text.
    """
    if feature_key and not any(map(is_spatial_data, files)):
        raise ConfigError(
            item="--feature-key",
            wanted="SpatialData stores (<slide>.zarr)",
            got=f"files such as {files[0].name!r}",
            fix="leave it out, or pass the folder of the stores",
        )
    by_id: dict[str, tuple[Path, ...]] = {}
    for found in files:
        refuse_undecodable_name(found)
        path = table_asked_for(found, feature_key) if is_spatial_data(found) else found
        name = bag_name(path)
        by_id[name] = (*by_id.get(name, ()), path)
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
    """Return all that is called as a bag file; what is none, such as a link to nothing, its reader refuses."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in READERS and not path.name.startswith(".")
        if not path.is_dir() or _is_bag_folder(path)
        if not holds_positions(path)
    )


def _is_bag_folder(folder: Path) -> bool:
    """Return whether a folder is a bag by its ending, of which a Zarr folder has tables or shapes."""
    ending = ending_of(folder)
    return is_spatial_data(folder) if ending == STORE else folder.is_dir() and takes_folders(ending)


def _others(*folders: Path) -> str:
    """Return which files of folders are neither bag files nor tables or notes about them, "" for none."""
    known = (*READERS, *ABOUT_BAGS)
    others = [
        path
        for folder in folders
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and path.suffix.lower() not in known and not path.is_dir()
    ]
    return f"files of other kinds were not read: {_names(others)}" if others else ""


def _kinds_of_others(folder: Path) -> Counter[str]:
    """Return how many files in a folder, or below it, have each ending of none that is read."""
    return Counter(
        path.suffix.lower()
        for path in folder.rglob("*")
        if path.suffix and not path.is_dir() and not _is_beside(path.relative_to(folder))
    )


def _names(paths: Sequence[Path]) -> str:
    return f"{len(paths):,} ({first_few(path.name for path in paths)})"


def _sentences(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _folders_directly_below(folder: Path) -> list[Path]:
    return [
        below for below in sorted(folder.iterdir()) if below.is_dir() and not _is_beside(below.relative_to(folder))
    ]


def _folders_below(folder: Path) -> list[Path]:
    """Return the folders below in which bags may be."""
    return [
        below
        for below in sorted(folder.rglob("*"))
        if below.is_dir() and not _is_beside(below.relative_to(folder))
    ]


def _is_beside(below: Path) -> bool:
    parts = below.parts
    return bool(set(parts) & set(NO_BAGS)) or any(
        one.startswith(".") or takes_folders(Path(one).suffix.lower()) for one in parts
    )


def _without_twins(folders: list[Path]) -> list[Path]:
    """Return the folders without CLAM's ``pt_files`` beside ``h5_files``."""
    with_coords = {below.parent for below in folders if below.name == "h5_files"}
    return [below for below in folders if not (below.name == "pt_files" and below.parent in with_coords)]


def _splits_of_parts(bags: Mapping[Path, Sequence[Path]], folder: Path) -> dict[Path, str]:
    """Return the splits of several folders that are parts of one set of bags, as far as they are named after some.

    Raises:
        DataError: folders of the same bags, as those of two encoders are, of which not each is named like a split
            though some are, or of something else that miue wrote, such as a run.
    """
    folders = list(bags)
    if len(folders) == 1:
        return {}
    counts = Counter(name for own in bags.values() for name in set(map(bag_name, own)))
    if same := sorted(name for name, count in counts.items() if count > 1):
        of = f", with the same bags ({first_few(same)})"
        raise _several_folders(
            folders, folder, of, "pass one of these folders, or give each bag a name of its own"
        )
    if any(kind_of(one) is not None for one in folders):
        raise _several_folders(folders, folder, "", "pass one of these folders")
    return splits_by_folder(folders, folder, wanted=_wanted())


def _wanted() -> str:
    return f"bag files ending in {', '.join(READERS)}, in it or in folders below it, or folders of images"


def _several_folders(folders: list[Path], folder: Path, what_they_are: str, fix: str) -> DataError:
    """Return the error where several folders have bag files and are not read together."""
    return several_folders(folders, folder, wanted=_wanted(), what_they_are=what_they_are, fix=fix)


def _only(folders: list[Path], folder: Path) -> Path:
    """Return the one folder that has bags.

    Raises:
        DataError: none or several.
    """
    if len(folders) == 1:
        return folders[0]
    item = repr(str(folder))
    if not folders:
        fix = "check the path; features of slides come from 'miue data tile', CLAM, TRIDENT or STAMP"
        if has_images(folder):
            fix = "put the images of each bag into a folder of its own; slides are cut with 'miue data tile'"
        kinds = _kinds_of_others(folder)
        if any(ending in kinds for ending in TABLES):
            fix = "pass the folder of the tables; a table of instances has a column for each feature, in numbers"
        if ANNDATA in kinds:
            fix = HOW_TO_READ_ANNDATA
        others = [f"{plural(count, 'file')} ending in {ending}" for ending, count in kinds.most_common(3)]
        if stores := sum(path.is_dir() and path.suffix.lower() == STORE for path in folder.iterdir()):
            others.append(f"{plural(stores, 'folder')} ending in {STORE} without tables or shapes")
            fix = f"write each slide as SpatialData, with tables/ and shapes/ in its {STORE}, as lazyslide does"
        got = ", ".join(others)
        raise DataError(item=item, wanted=_wanted(), got=f"none; {got}" if got else "none", fix=fix)
    raise _several_folders(folders, folder, "", "pass one of these folders")
