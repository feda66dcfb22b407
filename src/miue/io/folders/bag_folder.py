"""A folder of bag files becomes a dataset; features stay in their files until they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from miue.bags.coords import Coords
from miue.bags.dataset import BagDataset
from miue.bags.instance_shapes import advise_on_shape
from miue.common.errors import ConfigError, DataError, MiueError, first_few
from miue.common.text import plural, tracked
from miue.io.folders.discovery import BagFiles
from miue.io.folders.file_instances import FileInstances
from miue.io.formats import Contents, contents_of
from miue.io.formats.base import bag_file_name, bag_name
from miue.io.loaded import LeftOut, LoadedBags, ReadOptions, refuse_or_skip


def open_files(
    files: BagFiles, names: Sequence[str], left_out: Sequence[LeftOut] = (), *, options: ReadOptions
) -> LoadedBags:
    """Return the bags of the files of some names, in their order, without labels; with the splits of folders.

    Args:
        files: files of CLAM, TRIDENT, STAMP or arrays.
        names: of the bags to open.
        left_out: bags that were left out before.
        options: how the files are read.

    Raises:
        DataError: a file that cannot be used, two of one name, a bag without a file, or no bag left.
    """
    contents, bad = read_contents(files, names, options)
    bad = [*left_out, *bad]
    refuse_or_skip(files.folder, len(contents), bad, skip_bad=options.skip_bad)
    bags = make_dataset(contents)
    bags = replace(bags, splits=tuple(files.splits.get(name, "") for name in bags.ids))
    return LoadedBags(bags, tuple(bad), tuple(_notes(files, contents)))


def read_contents(
    files: BagFiles, names: Sequence[str], options: ReadOptions
) -> tuple[list[Contents], list[LeftOut]]:
    """Return what the files of some names hold, as far as they are alike and can be used, and the other bags.

    Raises:
        ConfigError: a reader of another package that does not return what a reader does.
    """
    bad, contents = [], []
    for name in tracked(names, "opening", shown=options.progress):
        try:
            contents.append(_usable(_only(files.by_id[name]), options.microns_per_pixel))
        except ConfigError:  # of a reader, not of this file
            raise
        except MiueError as error:
            bad.append(LeftOut(name, str(error)))
    return _alike(_fitting(contents, options.instance_shape, bad), bad), bad


def _notes(files: BagFiles, contents: Sequence[Contents]) -> list[str]:
    """Return what to know of the folder and of its files, each once, with the number of bags it is true of."""
    of = f"of {len(contents):,} bags"
    counts = Counter(text for file in contents for text in file.notes)
    notes = [files.not_read] if files.not_read else []
    notes += [f"{text} ({count:,} {of})" for text, count in counts.items()]
    bare = [file.id for file in contents if file.coords is None]
    if 0 < len(bare) < len(contents):
        notes.append(
            f"{len(bare):,} {of} without coords ({first_few(bare)}): their instances have no position on a slide"
        )
    scales = Counter(file.patch_scale for file in contents if file.patch_scale)
    if len(scales) > 1:
        most = scales.most_common(1)[0][0]
        others = [file for file in contents if file.patch_scale not in ("", most)]
        shown = first_few(f"{file.id}: {file.patch_scale}" for file in others)
        notes.append(f"{len(others):,} {of} have patches of another scale than {most} ({shown})")
    widths = Counter(file.statistics for file in contents if file.statistics)
    common = max(widths, key=widths.__getitem__, default=0)
    without = [file.id for file in contents if file.statistics != common]
    if without:
        notes.append(
            f"{len(without):,} {of} without the image statistics of others ({first_few(without)}): none are used"
        )
    return notes


def make_dataset(contents: Sequence[Contents]) -> BagDataset:
    """Return the bags of files that are alike, one each, without labels; features stay in the files."""
    sizes = np.array([file.size for file in contents], np.int64)
    dtypes = {file.dtype for file in contents}
    dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float32)
    coords = _coords(contents, sizes)
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


def _coords(contents: Sequence[Contents], sizes: Int64[np.ndarray, "B"]) -> Coords | None:
    known = [file.coords is not None for file in contents]
    if not any(known):
        return None
    values = [np.zeros((file.size, 2), np.int64) if file.coords is None else file.coords for file in contents]
    return Coords(np.concatenate(values), np.repeat(known, sizes))


def _only(paths: tuple[Path, ...]) -> Path:
    if len(paths) > 1:
        raise DataError(
            item=f"bag {bag_name(paths[0])!r}",
            wanted="one file of this name",
            got=" and ".join(map(bag_file_name, paths)),
            fix="keep one of them, or give each kind a folder of its own",
        )
    return paths[0]


def _usable(path: Path, microns_per_pixel: float | None) -> Contents:
    contents = contents_of(path, microns_per_pixel)
    if not contents.size:
        raise DataError(
            item=f"bag file {str(path)!r}",
            wanted="at least one instance",
            got="none (a slide without tissue, a video without a clip?)",
            fix="leave it out (--skip-bad goes on and lists it)",
        )
    return contents


def _fitting(contents: list[Contents], shape: tuple[int, ...] | None, left_out: list[LeftOut]) -> list[Contents]:
    """Return the files whose features a model takes; the others are left out."""
    if shape is None:
        return contents
    wanted = f"features of shape {shape}, as the model takes them"
    fits = [file.instance_shape == shape for file in contents]

    def describe(file: Contents) -> tuple[str, str, str]:
        return wanted, f"{file.instance_shape}", advise_on_shape(shape, file.instance_shape)

    return _kept(contents, fits, left_out, describe)


def _alike(contents: list[Contents], left_out: list[LeftOut]) -> list[Contents]:
    """Return the files whose features are as those of most; the others are left out."""
    kinds = Counter((file.instance_shape, file.extractor) for file in contents)
    if len(kinds) < 2:
        return contents
    most_common, count = kinds.most_common(1)[0]
    alike = [(file.instance_shape, file.extractor) == most_common for file in contents]
    most = contents[alike.index(True)]
    wanted = f"features of shape {_features(most)} as in {plural(count, 'file')}"
    fix = "extract all features with one encoder"
    if _are_images(contents):
        fix = "give all images one size, and save all in color or all in gray"

    def describe(file: Contents) -> tuple[str, str, str]:
        is_unstated = most.extractor and not file.extractor
        return (
            wanted,
            _features(file) + (", of an encoder that the file does not state" if is_unstated else ""),
            fix,
        )

    return _kept(contents, alike, left_out, describe)


def _are_images(contents: list[Contents]) -> bool:
    return all(file.format == "images" for file in contents)


def _kept(
    contents: list[Contents],
    keep: list[bool],
    left_out: list[LeftOut],
    describe: Callable[[Contents], tuple[str, str, str]],
) -> list[Contents]:
    """Return the files to keep; of each other ``describe`` says what was expected, what it has, and what to do."""
    for file, kept in zip(contents, keep, strict=True):
        if not kept:
            wanted, got, fix = describe(file)
            reason = f"bag file {str(file.path)!r}: expected {wanted}, got {got}; {fix}"
            left_out.append(LeftOut(file.id, reason))
    return [file for file, kept in zip(contents, keep, strict=True) if kept]


def _features(file: Contents) -> str:
    return f"{file.instance_shape}" + (f" of {file.extractor!r}" if file.extractor else "")
