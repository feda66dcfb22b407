"""HDF5 files of CLAM, TRIDENT and STAMP.

CLAM: ``features`` (n, D), ``coords`` (n, 2) in level-0 pixels, no attributes; the side of a patch stands in
the file of the same name in ``patches/``. TRIDENT: attributes of ``coords`` say the side, of which
``patch_size_level0`` is that of the grid; what it does not know is the text 'None'. STAMP: ``feats``, and
``coords`` in µm with the attributes ``unit`` and ``tile_size_um`` of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from miue.coords import LARGEST_COORD
from miue.readers.base import OpenFile, bag_error, refuse_claim, refusing
from miue.readers.names import coords_name, features_name


@contextmanager
def open_hdf5(path: Path) -> Iterator[OpenFile]:
    """Open a file of features that CLAM, TRIDENT or STAMP wrote.

    Raises:
        DataError: not HDF5, truncated, without features, or of parts that lie in other files.
    """
    import h5py

    with refusing(path, "a whole HDF5 file", OSError, RuntimeError):
        file = h5py.File(path, "r", locking=False)
    with file:
        with refusing(path, "an HDF5 file of features", OSError, RuntimeError, KeyError, ValueError, TypeError):
            opened = _opened(path, file)
        yield opened


def patch_size_beside(path: Path) -> int | None:
    """Return the side of a patch in level-0 pixels that CLAM's ``patches/`` folder tells of a file of features.

    Raises:
        DataError: a file of patches that cannot be read.
    """
    import h5py

    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        beside = folder / "patches" / f"{path.stem}.h5"
        if beside.is_file() and beside != path:
            with (
                refusing(
                    beside, "a file of patches as CLAM writes it", OSError, RuntimeError, KeyError, ValueError
                ),
                h5py.File(beside, "r", locking=False) as file,
            ):
                attributes = dataset_within(beside, file, "coords").attrs
                size = _number(attributes, "patch_size")
                downsample = _number(attributes, "downsample") or 1.0
                return None if size is None else round(size * downsample)
    return None


def dataset_within(path: Path, file: Any, name: str) -> Any:
    """Return a dataset that lies in this very file.

    Raises:
        DataError: a link, a group, or data that lies in other files.
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
        raise bag_error(path, f"{name!r} in the file itself", "data that lies in other files")
    return dataset


def _opened(path: Path, file: Any) -> OpenFile:
    features = dataset_within(path, file, features_name(path, file.keys()))
    where = coords_name(file.keys())
    coords, of_coords = None, {}
    if where is not None:
        stored = dataset_within(path, file, where)
        refuse_claim(path, stored)
        coords, of_coords = np.asarray(stored[()]), stored.attrs
        coords = coords[:, :2] if coords.ndim == 2 else coords
    if "unit" in file.attrs or (where is not None and "tile_size_um" in file.attrs):
        return _stamp(file, features, coords)
    if "patch_size_level0" in of_coords or "encoder" in features.attrs:
        return OpenFile(
            format="TRIDENT",
            features=features,
            coords=coords,
            patch_size=_number(of_coords, "patch_size_level0"),
            extractor=_text(features.attrs, "encoder"),
        )
    return OpenFile(format="CLAM" if features.name == "/features" else "HDF5", features=features, coords=coords)


def _stamp(file: Any, features: Any, coords: np.ndarray | None) -> OpenFile:
    unit = _text(file.attrs, "unit") or "um"
    microns = unit in ("um", "µm", "micron", "microns")
    notes = () if microns else (f"coords are in {unit!r}, which is not known, and left out",)
    return OpenFile(
        format="STAMP",
        features=features,
        coords=coords if microns else None,
        patch_size=_number(file.attrs, "tile_size_um"),
        in_microns=True,
        extractor=_text(file.attrs, "extractor"),
        notes=notes,
    )


def _number(attributes: Mapping[str, Any], name: str) -> float | None:
    """Return the positive number of that name, None where there is none or the text 'None'."""
    values = np.asarray(attributes[name]).reshape(-1) if name in attributes else np.zeros(0)
    if not len(values) or values.dtype.kind not in "iuf":
        return None
    number = float(values[0])
    return number if 0 < number <= LARGEST_COORD else None


def _text(attributes: Mapping[str, Any], name: str) -> str:
    value = attributes.get(name, "")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "" if text == "None" else text
