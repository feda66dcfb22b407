"""The layout of feature files: those of CLAM, TRIDENT, STAMP, lazyslide, torchmil or anyone's, a bag each.

Features stay in their files until they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np

from miue.bags import BagDataset, Coords
from miue.common.errors import ConfigError, DataError, MiueError, first_few, not_a_folder
from miue.common.files import refuse_undecodable_name
from miue.common.text import tracked
from miue.io.formats.base import READERS, Contents, bag_error, bag_file_name, bag_name, ending_of, takes_folders
from miue.io.formats.base import STORE as ZARR
from miue.io.formats.beside import holds_positions
from miue.io.formats.child import contents_of
from miue.io.formats.spatial_data import is_spatial_data, table_asked_for
from miue.io.instances import FileInstances
from miue.io.layouts.layout import Layout, folders_below, folders_in, read_together
from miue.io.loaded import LeftOut, LoadedBags, refuse_or_skip
from miue.settings import LoadSettings

ABOUT_BAGS = (
    *(".csv", ".tsv", ".xlsx", ".json", ".yaml", ".yml", ".toml"),
    *(".txt", ".md", ".log", ".xml", ".geojson"),
)
"""Endings of what tools write beside bag files."""
H5, PT = "h5_files", "pt_files"
"""CLAM's folders of the same features, of which the first has the coords."""


@dataclass(frozen=True)
class BagFiles:
    """The bag files of a folder, sorted by name.

    Attributes:
        folder: where they were looked for.
        by_id: the file of each bag; several where two kinds of file have one name.
        notes: which folders they are in, and what lies beside and is not read.
        splits: the split of each bag whose folder is named after one; of all bags or of none.
    """

    folder: str
    by_id: Mapping[str, tuple[Path, ...]]
    notes: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, paths_in: Mapping[Path, Sequence[Path]], notes: Sequence[str] = ()) -> BagFiles:
        """Return the bags in several folders below a root.

        Raises:
            DataError: folders that make no single set of bags.
            StorageError: a name that is no text.
        """
        names_in = {folder: sorted(set(map(bag_name, paths))) for folder, paths in paths_in.items()}
        split_of, said = read_together(names_in, root)
        by_id: dict[str, tuple[Path, ...]] = {}
        splits = {}
        pairs = [(path, folder) for folder, paths in paths_in.items() for path in paths]
        for path, folder in sorted(pairs, key=lambda pair: bag_file_name(pair[0])):
            refuse_undecodable_name(path)
            name = bag_name(path)
            by_id[name] = (*by_id.get(name, ()), path)
            splits[name] = split_of.get(folder, "")
        return cls(str(root), by_id, tuple(filter(None, (said, *notes))), splits if split_of else {})


class FilesLayout(Layout):
    """Files of features, or the one bag of a SpatialData store or of another reader's folder.

    They are in the folder itself, or in those below it, such as one for each class or hospital, if no bag is in
    two of these; folders named train, validation, calibration and test name the splits of their bags. Of a
    SpatialData store, the bag is a table of its features.
    """

    name = "a folder of feature files"
    takes: ClassVar[tuple[str, ...]] = ("microns_per_pixel", "feature_key")
    files: BagFiles

    @staticmethod
    def matches(path: Path) -> bool:
        """Return whether a folder, or one below it, has feature files."""
        return path.is_dir() and next(_folders_of_files(path), None) is not None

    def list(self) -> tuple[str, ...]:
        """Return the names of the files, without their endings."""
        self.files = self.find()
        return tuple(self.files.by_id)

    def find(self) -> BagFiles:
        """Return the files.

        Raises:
            DataError: folders that make no single set of bags, or a SpatialData store with several tables of
                features and none asked for.
            ConfigError: a table is asked for where no bag is a SpatialData store.
        """
        found = {folder: files for folder, files in _folders_of_files(self.path) if not _is_twin(folder)}
        if self.settings.feature_key and not any(map(is_spatial_data, chain.from_iterable(found.values()))):
            raise ConfigError(
                item="feature_key",
                wanted="SpatialData stores (<slide>.zarr)",
                got=f"other files in {str(self.path)!r}",
                fix="leave it out, or pass the folder of the stores",
            )
        beside = [] if _is_bag_folder(self.path) else [_beside(found, self.path), *map(_only_in_twin, found)]
        paths = {
            folder: [
                table_asked_for(one, self.settings.feature_key) if is_spatial_data(one) else one for one in files
            ]
            for folder, files in found.items()
        }
        return BagFiles.of(self.path, paths, beside)

    def open(self, names: Sequence[str], left_out: Sequence[LeftOut], classes: Sequence[str]) -> LoadedBags:
        """Return the bags of the files of some names, without labels; with the splits of folders."""
        contents, bad = read_contents(self.files, names, self.settings, progress=self.progress)
        refuse_or_skip(str(self.path), len(contents), [*left_out, *bad], skip_bad=self.settings.skip_bad)
        bags = make_dataset(contents)
        bags = replace(bags, splits=tuple(self.files.splits.get(name, "") for name in bags.ids))
        return LoadedBags(bags, (*left_out, *bad), (*self.files.notes, *_notes(contents)))


def list_bag_files(folder: Path, feature_key: str = "") -> BagFiles:
    """Return the bag files of a folder; errors as for ``FilesLayout.find``."""
    if not FilesLayout.matches(folder):
        raise not_a_folder(folder, f"a folder of files ending in {', '.join(READERS)}")
    return FilesLayout(folder, LoadSettings(feature_key=feature_key)).find()


def _folders_of_files(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the folders that have bag files, with these: the root if it has or is one, else those below it."""
    if here := [root] if _is_bag_folder(root) else _files_in(root):
        yield root, here
        return
    yield from ((one, files) for one in folders_below(root) if (files := _files_in(one)))


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
    return is_spatial_data(folder) if ending == ZARR else folder.is_dir() and takes_folders(ending)


def _is_twin(folder: Path) -> bool:
    """Return whether a folder is CLAM's ``pt_files`` beside ``h5_files``, which are read in its place."""
    beside = folder.parent / H5
    return folder.name == PT and beside.is_dir() and bool(_files_in(beside))


def _only_in_twin(folder: Path) -> str:
    """Return which bags of ``pt_files`` the folder ``h5_files``, read in its place, does not hold."""
    beside = folder.parent / PT
    if folder.name != H5 or not beside.is_dir():
        return ""
    only = sorted({*map(bag_name, _files_in(beside))} - {*map(bag_name, _files_in(folder))})
    return f"{PT!r} was not read; {len(only):,} of its bags are not in {H5!r}: {first_few(only)}" if only else ""


def _beside(found: Mapping[Path, Sequence[Path]], root: Path) -> str:
    """Return what lies beside the bags and is not read: files of other kinds, and folders with bag files."""
    known = (*READERS, *ABOUT_BAGS)
    others = [
        path.name
        for folder in found
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and path.suffix.lower() not in known and not path.is_dir()
    ]
    if root in found:
        others += [one.name for one in folders_in(root) if one not in found[root] and _files_in(one)]
    return f"not read: {len(others):,} ({first_few(others)})" if others else ""


def read_contents(
    files: BagFiles, names: Sequence[str], settings: LoadSettings, *, progress: bool = False
) -> tuple[list[Contents], list[LeftOut]]:
    """Return what the files of some names hold, as far as they are alike and can be used, and the other bags.

    Raises:
        ConfigError: a reader of another package that does not return what a reader does.
    """
    contents, bad = [], []
    for name in tracked(names, "opening", shown=progress):
        try:
            contents.append(_usable(name, files.by_id[name], settings.microns_per_pixel))
        except ConfigError:  # of a reader, not of this file
            raise
        except MiueError as error:
            bad.append(LeftOut(name, str(error)))
    return _alike(contents, settings.instance_shape, bad), bad


def _usable(name: str, paths: tuple[Path, ...], microns_per_pixel: float | None) -> Contents:
    if len(paths) > 1:
        raise DataError(
            item=f"bag {name!r}",
            wanted="one file of this name",
            got=" and ".join(map(bag_file_name, paths)),
            fix="keep one of them, or give each kind a folder of its own",
        )
    contents = contents_of(paths[0], microns_per_pixel)
    if not contents.size:
        got = "none (a slide without tissue, a video without a clip?)"
        raise bag_error(paths[0], "at least one instance", got, "leave it out (skip_bad=True)")
    return contents


def _alike(contents: list[Contents], shape: tuple[int, ...] | None, bad: list[LeftOut]) -> list[Contents]:
    """Return the files with the features of most of them, of ``shape`` where specified; add others to ``bad``."""
    kinds = Counter((one.instance_shape, one.extractor) for one in contents if shape in (None, one.instance_shape))
    if len({(one.instance_shape, one.extractor) for one in contents}) < 2 and shape is None:
        return contents
    usual, count = kinds.most_common(1)[0] if kinds else ((shape or (), ""), 0)
    why = "as the model takes them" if shape else f"as in {count:,} of {len(contents):,} files"
    for one in contents:
        if (one.instance_shape, one.extractor) != usual:
            fix = "extract all features with one encoder"
            if shape is not None and one.instance_shape != shape:
                from miue.bags import advise_on_shape

                fix = advise_on_shape(shape, one.instance_shape)
            elif one.format == "images":
                fix = "give all images one size, and save all in color or all in gray"
            kind = _kind(one.instance_shape, one.extractor)
            wanted = f"features of shape {_kind(*usual)}, {why}"
            bad.append(LeftOut(one.id, str(bag_error(one.path, wanted, kind, fix))))
    return [one for one in contents if (one.instance_shape, one.extractor) == usual]


def _kind(shape: tuple[int, ...], extractor: str) -> str:
    return f"{shape}" + (f" of {extractor!r}" if extractor else "")


def _notes(contents: Sequence[Contents]) -> Iterator[str]:
    """Yield what to know of the files, each once, with the number of bags it is true of."""
    of = f"of {len(contents):,} bags"
    for text, count in Counter(text for file in contents for text in file.notes).items():
        yield f"{text} ({count:,} {of})"
    bare = [file.id for file in contents if file.coords is None]
    if 0 < len(bare) < len(contents):
        yield f"{len(bare):,} {of} without coords ({first_few(bare)}): their instances have no position on a slide"
    scales = Counter(file.patch_scale for file in contents if file.patch_scale)
    if len(scales) > 1:
        most = scales.most_common(1)[0][0]
        others = [file for file in contents if file.patch_scale not in ("", most)]
        shown = first_few(f"{file.id}: {file.patch_scale}" for file in others)
        yield f"{len(others):,} {of} have patches of another scale than {most} ({shown})"
    widths = Counter(file.statistics for file in contents if file.statistics)
    common = max(widths, key=widths.__getitem__, default=0)
    if without := [file.id for file in contents if file.statistics != common]:
        yield f"{len(without):,} {of} without the image statistics of others ({first_few(without)}): none are used"


def make_dataset(contents: Sequence[Contents]) -> BagDataset:
    """Return the bags of files that are alike, one each, without labels; features stay in the files."""
    sizes = np.array([file.size for file in contents], np.int64)
    dtypes = {file.dtype for file in contents}
    dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float32)
    known = [file.coords is not None for file in contents]
    coords = None
    if any(known):
        unknown = (np.zeros((file.size, 2), np.int64) if file.coords is None else file.coords for file in contents)
        coords = Coords(np.concatenate(list(unknown)), np.repeat(known, sizes))
    paths = [file.path for file in contents]
    widths = {file.statistics for file in contents}
    statistics = None
    if len(widths) == 1 and (width := widths.pop()):
        statistics = FileInstances(paths, sizes, (width,), np.dtype(np.float32), statistics=True)
    return BagDataset.packed(
        FileInstances(paths, sizes, contents[0].instance_shape, dtype),
        sizes,
        [file.id for file in contents],
        coords=coords,
        statistics=statistics,
        extractor=contents[0].extractor if len({file.extractor for file in contents}) == 1 else "",
        patch_scales=tuple(sorted({file.patch_scale for file in contents} - {""})),
        patch_sizes=None if coords is None else np.array([file.patch_size or 0 for file in contents], np.int64),
    )
