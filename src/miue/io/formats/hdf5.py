"""HDF5 files of CLAM, TRIDENT and STAMP.

CLAM: ``features`` (n, D), ``coords`` (n, 2) in level-0 pixels, no attributes. TRIDENT: attributes of ``coords``
say the side, of which ``patch_size_level0`` is that of the grid; what it does not know is the text 'None'. Any of
them may have ``image_statistics`` (n, S), as ``miue data tile`` writes them. STAMP: ``feats``, ``coords`` in µm
with the attributes ``unit`` and ``tile_size_um`` of the file. Features may be one vector (D,), of a whole slide.

One damaged bit can make the HDF5 library loop without end or crash: in miue everything here runs in a process of
its own (``miue.io.formats.child``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from miue.common.errors import DataError, not_readable
from miue.common.numbers import LARGEST_COORD
from miue.common.text import shortened
from miue.io.formats.base import (
    FEATURES,
    OpenFile,
    bag_error,
    coords_name,
    features_name,
    refuse_bytes,
    refuse_claim,
    refuse_unequal,
    refusing,
    scale_at,
    scale_over,
)

STATISTICS = "image_statistics"
MICRONS = ("um", "µm", "micron", "microns")


@contextmanager
def open_hdf5(path: Path) -> Iterator[OpenFile]:
    """Open a file of features that CLAM, TRIDENT or STAMP wrote.

    Raises:
        DataError: not HDF5, truncated, still written, without features, or of parts that are in other files.
    """
    with refusing(path, "a whole HDF5 file", OSError, RuntimeError):
        file = _opened_file(path)
    with file:
        _refuse_longer(path, file.userblock_size)
        with refusing(path, "an HDF5 file of features", OSError, RuntimeError, KeyError, ValueError, TypeError):
            opened = _opened(path, file)
            opened = replace(opened, statistics=_statistics(path, file, opened.features))
        yield opened


def _opened_file(path: Path) -> Any:
    """Return the file, opened for reading; where the file system has no locks, whoever may write it."""
    import h5py

    with path.open("rb") as file, suppress(ImportError, OSError):  # a system or a file without locks
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "wait until the extraction has ended, or leave the file out (skip_bad=True)"
            raise bag_error(path, "a file that no process writes", "one that is locked for writing", fix) from None
    return h5py.File(path, "r", locking=False)


def read_parts(path: Path, names: Sequence[str], array: str = "") -> tuple[dict[str, dict[str, Any]], np.ndarray]:
    """Return the attributes of some datasets by their names, and one of these datasets.

    Args:
        path: the file.
        names: of datasets.
        array: which of them is read whole; "" for none, which gives an empty array.

    Raises:
        StorageError: a file that cannot be read, or has no such dataset.
        DataError: a dataset that is none, not whole, or stored in another file; coords of another number than the
            features beside them; a file that is still written.
    """
    try:
        with _opened_file(path) as file:
            datasets = {name: dataset_within(path, file, name) for name in names}
            if "coords" in datasets:
                _refuse_other_number(path, file, datasets["coords"])
            attributes = {name: dict(dataset.attrs) for name, dataset in datasets.items()}
            return attributes, _read(path, datasets[array]) if array else np.zeros(0)
    except DataError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise not_readable(
            f"{str(path)!r}", f"an HDF5 file with {' and '.join(names)}", error, "check the file"
        ) from error


def dataset_within(path: Path, file: Any, name: str) -> Any:
    """Return a dataset that is stored in this very file.

    Raises:
        DataError: a link, a group, or data that is stored in other files.
        KeyError: no such name.
    """
    import h5py

    link = file.get(name, getlink=True)
    if link is not None and not isinstance(link, h5py.HardLink):
        raise bag_error(path, f"{name!r} in the file itself", "a link to elsewhere")
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        raise bag_error(path, f"{name!r} to be an array", "a group")
    if dataset.external or dataset.is_virtual:
        raise bag_error(path, f"{name!r} in the file itself", "data that is stored in other files")
    return dataset


def _refuse_other_number(path: Path, file: Any, coords: Any) -> None:
    """Raise where a file has features beside its coords, and another number of them."""
    name = next((name for name in FEATURES if name in file), None)
    if name is None:  # a file of positions alone, as those of CLAM's ``patches/``
        return
    of_coords, of_features = (
        array.shape[1] if len(array.shape) == 3 and array.shape[0] == 1 else math.prod(array.shape[:1])
        for array in (coords, dataset_within(path, file, name))
    )
    refuse_unequal(path, of_coords, of_features)


def _refuse_longer(path: Path, userblock: int) -> None:
    """Raise where a file is longer than its superblock states, as where bytes were put in between."""
    with path.open("rb") as file:
        begin = file.read(52)
    offset, of_lengths = {0: (40, 13), 1: (44, 13), 2: (28, 9), 3: (28, 9)}.get(begin[8], (0, 0))
    if userblock or not offset or begin[of_lengths] != 8:  # addresses from elsewhere, or of another length
        return
    stated, held = int.from_bytes(begin[offset : offset + 8], "little"), path.stat().st_size
    if held > stated:
        raise bag_error(path, "a whole HDF5 file", f"{held:,} bytes where the file itself states {stated:,}")


def _refuse_unusable(path: Path, dataset: Any) -> None:
    """Raise where a dataset is not in the file: it claims more than that holds, or rows were never written.

    Of a chunk HDF5 reads no part without the whole; what was never written it reads as zeros.
    """
    refuse_claim(path, dataset)
    if dataset.chunks is None:
        stored, needed = dataset.id.get_storage_size(), dataset.size * dataset.id.get_type().get_size()
        unit = "bytes"
    else:
        refuse_bytes(path, math.prod(dataset.chunks) * dataset.dtype.itemsize)
        pairs = zip(dataset.shape, dataset.chunks, strict=True)
        needed, stored = math.prod(-(-length // chunk) for length, chunk in pairs), dataset.id.get_num_chunks()
        unit = f"chunks of {dataset.chunks[0]:,} rows"
    if dataset.size and stored < needed:
        raise bag_error(
            path,
            f"every row of {dataset.name.strip('/')!r} to be written",
            f"{stored:,} of {needed:,} {unit} of shape {dataset.shape} in the file",
            "extract these features again: the extraction was ended before it was done",
        )


def _opened(path: Path, file: Any) -> OpenFile:
    features = dataset_within(path, file, features_name(path, file.keys()))
    where = coords_name(file.keys())
    _refuse_unusable(path, features)
    coords, of_coords = None, {}
    if where is not None:
        stored = dataset_within(path, file, where)
        coords, of_coords = partial(_corners, path, stored), stored.attrs
    if {"unit", "feat_type"} & set(file.attrs) or (where is not None and "tile_size_um" in file.attrs):
        return _stamp(file, features, coords)
    if "patch_size_level0" in of_coords or "encoder" in features.attrs:
        return OpenFile(
            format="TRIDENT",
            features=features,
            coords=coords,
            patch_size=positive_number(of_coords, "patch_size_level0"),
            extractor=_text(features.attrs, "encoder"),
            patch_scale=scale_at(
                positive_number(of_coords, "patch_size"), positive_number(of_coords, "target_magnification")
            ),
        )
    return OpenFile(format="CLAM" if features.name == "/features" else "HDF5", features=features, coords=coords)


def _statistics(path: Path, file: Any, features: Any) -> Any:
    """Return the image statistics beside the features, None where the file has none."""
    if STATISTICS not in file:
        return None
    stored = dataset_within(path, file, STATISTICS)
    if len(stored.shape) != 2 or stored.shape[0] != features.shape[0] or stored.dtype.kind != "f":
        wanted = f"{STATISTICS!r} with a row of numbers for each of {features.shape[0]:,} instances"
        raise bag_error(path, wanted, f"{stored.dtype} of shape {stored.shape}")
    _refuse_unusable(path, stored)
    return stored


def _corners(path: Path, stored: Any) -> np.ndarray:
    coords = _read(path, stored)
    return coords[:, :2] if coords.ndim == 2 else coords


def _read(path: Path, dataset: Any) -> np.ndarray:
    """Return a dataset, after it was checked to be whole and no larger than the file can hold."""
    _refuse_unusable(path, dataset)
    return np.asarray(dataset[()])


def _stamp(file: Any, features: Any, coords: Callable[[], np.ndarray] | None) -> OpenFile:
    unit = _text(file.attrs, "unit") or "um"
    microns = unit in MICRONS
    notes = () if microns else (f"coords are in {unit!r}, which is not known, and left out",)
    return OpenFile(
        format="STAMP",
        features=features,
        coords=coords if microns else None,
        patch_size=positive_number(file.attrs, "tile_size_um"),
        in_microns=True,
        extractor=_text(file.attrs, "extractor"),
        patch_scale=scale_over(
            positive_number(file.attrs, "tile_size_px"), positive_number(file.attrs, "tile_size_um")
        ),
        notes=notes,
    )


def positive_number(attributes: Mapping[str, Any], name: str) -> float | None:
    """Return the positive number of that name, None where there is none or the text 'None'."""
    values = np.asarray(attributes[name]).reshape(-1) if name in attributes else np.zeros(0)
    if not len(values) or values.dtype.kind not in "iuf":
        return None
    number = float(values[0])
    return number if 0 < number <= LARGEST_COORD else None


def _text(attributes: Mapping[str, Any], name: str) -> str:
    value = attributes.get(name, "")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "" if text == "None" else shortened(text)
