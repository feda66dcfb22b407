"""Bag files as all of miue reads them: those of HDF5 and of Zarr in a process of their own, others in this one.

One damaged bit makes the HDF5 library loop for ever, deaf to signals that Python handles, or crash, and chunks of
Zarr may claim to become any number of bytes. The process apart is refused more memory, and ends itself where a
file takes more computing time than any whole one; the file is named, the next one gets a new process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from miue.common.claims import bytes_in
from miue.common.errors import error_from_json
from miue.common.files import open_file
from miue.io.formats.bag_paths import STORE, ending_of
from miue.io.formats.base import Contents, bag_error
from miue.io.formats.beside import with_positions_beside
from miue.io.formats.open import contents_here, rows_here
from miue.io.formats.positions import grid_note, repeats_note
from miue.io.formats.process import ReadingProcess, ReadingProcessEnded

ENDINGS = (".h5", ".hdf5")
SECONDS = 10.0  # of computing time that any file may take
BYTES_PER_SECOND = 20e6  # of the file, in further time: the slowest compression met reads four times as much
_process = ReadingProcess()


def contents_of(path: Path, microns_per_pixel: float | None = None) -> Contents:
    """Return what the bag file at ``path`` holds, with what lies beside it.

    Args:
        path: a file with one of the endings of ``READERS``, a folder of images, or a table in a SpatialData store.
        microns_per_pixel: of level 0, for files whose coords are in µm; without it these are left out.

    Raises:
        DataError: not such a file, damaged, or of parts that do not fit together or to what lies beside it.
        StorageError: the process that reads files of HDF5 and Zarr cannot be started.
    """
    if _is_apart(path):
        answer, array = _ask(path, "contents", microns_per_pixel=microns_per_pixel)
        contents = Contents(
            path=path,
            format=answer["format"],
            size=answer["size"],
            instance_shape=tuple(answer["instance_shape"]),
            dtype=np.dtype(answer["dtype"]),
            coords=array if answer["has_coords"] else None,
            patch_size=answer["patch_size"],
            extractor=answer["extractor"],
            patch_scale=answer["patch_scale"],
            notes=tuple(answer["notes"]),
            statistics=answer["statistics"],
        )
    else:
        contents = contents_here(path, microns_per_pixel)
    contents = with_positions_beside(contents, read_hdf5_parts)
    coords, patch_size = contents.coords, contents.patch_size
    if coords is None:
        return replace(contents, patch_size=None)
    notes = [grid_note(coords, patch_size) if patch_size else "", repeats_note(coords)]
    return replace(contents, notes=(*contents.notes, *filter(None, notes)))


def read_rows(
    path: Path, start: int, stop: int, *, statistics: bool = False, size: int | None = None
) -> Shaped[np.ndarray, "n *shape"]:
    """Return the instances from ``start`` up to ``stop`` in their normal form.

    float16, float32 and bytes stay what they are, all else becomes float32. A leading axis of one is left
    away; the crops of a video's clip, (T, crops, D), are averaged. With ``statistics``, return the image
    statistics beside them, float32. ``size`` is the number of instances that the file had when it was listed.

    Raises:
        DataError: not a bag file, a damaged one, or one with another number of instances than ``size``.
        StorageError: the process that reads files of HDF5 and Zarr cannot be started.
    """
    if _is_apart(path):
        return _ask(path, "rows", start=int(start), stop=int(stop), statistics=statistics, size=size)[1]
    return rows_here(path, start, stop, statistics=statistics, size=size)


def read_hdf5_parts(
    path: Path, names: Sequence[str], array: str = ""
) -> tuple[dict[str, dict[str, Any]], Shaped[np.ndarray, "..."]]:
    """Return the attributes of some datasets of an HDF5 file by their names, and one of these datasets.

    Args:
        path: the file.
        names: of datasets.
        array: which of them is read whole; "" for none, which gives an empty array.

    Raises:
        StorageError: a file that cannot be read or has no such dataset, or no process to read it in.
        DataError: a dataset that is none, not whole, or stored in another file.
    """
    answer, values = _ask(path, "parts", names=list(names), array=array)
    return {
        name: {key: _value(one) for key, one in of.items()} for name, of in answer["attributes"].items()
    }, values


def _is_apart(path: Path) -> bool:
    """Return whether a bag is read in the process apart: a file of HDF5, or a table in a folder of Zarr."""
    ending = ending_of(path)
    return ending == STORE or (ending in ENDINGS and not path.is_dir())


def _ask(path: Path, what: str, **how: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Return what the process answers about a file.

    Raises:
        DataError: the file cannot be used, or no answer came in the time that it may take.
    """
    if not (path.is_dir() and ending_of(path) == STORE):
        open_file(path, f"bag file {str(path)!r}").close()
    seconds = SECONDS + bytes_in(path) / BYTES_PER_SECOND
    try:
        answer, array = _process.ask({"what": what, "path": str(path), "seconds": seconds, **how})
    except ReadingProcessEnded as ended:
        got = (
            f"no end of reading it after {seconds:.0f} s of computing time" if ended.took_too_long else str(ended)
        )
        library = "Zarr" if ending_of(path) == STORE else "the HDF5 library"
        raise bag_error(path, f"a file that {library} can read", got) from ended
    if "error" in answer:
        raise error_from_json(answer["error"])
    return answer, array


def _value(value: Any) -> Any:
    """Return the value of an attribute, of which lists were arrays."""
    return np.asarray(value) if isinstance(value, list) else value
