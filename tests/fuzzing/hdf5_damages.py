"""Damages to HDF5 files that keep them well-formed, but for the last."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.array_damages import HUGE
from fuzzing.byte_damages import Damage, Damaged, Generator


@contextmanager
def hdf5(content: bytes) -> Iterator[tuple[Any, list[bytes]]]:
    """Yield the file open for changes, and a list that gets its content once it is closed."""
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.h5"
        out: list[bytes] = []
        path.write_bytes(content)
        with h5py.File(path, "r+") as file:
            yield file, out
        out.append(path.read_bytes())


def _remake(file: Any, name: str, **options: Any) -> Any:
    """Replace a dataset, keeping its attributes."""
    attributes = dict(file[name].attrs)
    del file[name]
    made = file.create_dataset(name, **options)
    made.attrs.update(attributes)
    return made


def _name_of_rows(file: Any) -> str:
    return next(name for name in ("feats", "features", "coords") if name in file)


def _expected(file: Any, of_features: str) -> str:
    """Return what may come of a file; of one beside the features, of which attributes alone are read, anything."""
    return of_features if "feats" in file or "features" in file else "any"


def unwritten_rows(content: bytes, random: Generator) -> Damaged:
    with hdf5(content) as (file, out):
        name, expected = _name_of_rows(file), _expected(file, "flag")
        rows = file[name][:]
        made = _remake(file, name, shape=rows.shape, dtype=rows.dtype, chunks=(1, *rows.shape[1:]))
        kept = int(random.integers(0, len(rows)))
        made[:kept] = rows[:kept]
    return Damaged(out[0], expected)


def never_allocated(content: bytes, random: Generator) -> Damaged:
    with hdf5(content) as (file, out):
        name, expected = _name_of_rows(file), _expected(file, "flag")
        shape, kind = file[name].shape, file[name].dtype
        _remake(file, name, shape=shape, dtype=kind)
    return Damaged(out[0], expected)


def other_row_count(content: bytes, random: Generator) -> Damaged:
    with hdf5(content) as (file, out):
        name = str(random.choice([name for name in file if name != "metadata"]))
        rows = file[name][:]
        changed = rows[:-1] if random.integers(2) else np.concatenate([rows, rows[:1]])
        _remake(file, name, data=changed)
        expected = _expected(file, "refuse" if "coords" in file else "any")
    return Damaged(out[0], expected)


def other_kind(content: bytes, random: Generator) -> Damaged:
    import h5py

    with hdf5(content) as (file, out):
        name = str(random.choice(list(file)))
        rows = file[name][()]
        numbers = isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu"
        kinds: list[Any] = [
            h5py.Empty("f4"),
            np.array(["a"], "S1"),
            np.float32(3),
            np.zeros((0, 5), np.float32),
            np.zeros((5, 0), np.float32),
            np.zeros((2,) * 12, np.float32),
            np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
            *([rows.astype(">f4"), rows.astype(bool), rows.astype(complex), rows[0]] if numbers else []),
        ]
        attributes = dict(file[name].attrs)
        del file[name]
        file[name] = kinds[int(random.integers(0, len(kinds)))]
        file[name].attrs.update(attributes)
    return Damaged(out[0], "any")


def no_dataset(content: bytes, random: Generator) -> Damaged:
    import h5py

    with hdf5(content) as (file, out):
        name = str(random.choice(list(file)))
        del file[name]
        how = int(random.integers(0, 4))
        if how == 1:
            file.create_group(name)
        elif how == 2:
            file[name] = h5py.SoftLink(f"/{name}")
        elif how == 3:
            file[name] = h5py.ExternalLink("/etc/passwd", "/a")
    return Damaged(out[0], "any")


def odd_attribute(content: bytes, random: Generator) -> Damaged:
    import h5py

    values = [
        "None",
        "",
        -1,
        0,
        np.nan,
        np.inf,
        1e300,
        2**63 - 1,
        [1, 2],
        h5py.Empty("f4"),
        b"\xff\xfe",
        "x" * 9000,
    ]
    names = ["unit", "tile_size_um", "extractor", "patch_size", "patch_size_level0", "downsample", "encoder"]
    with hdf5(content) as (file, out):
        places = [file, *(file[name] for name in file)]
        place = places[int(random.integers(0, len(places)))]
        present = list(place.attrs) or names
        name = str(random.choice(present if random.integers(2) else names))
        value = values[int(random.integers(0, len(values)))]
        if random.integers(4):
            place.attrs[name] = value
        elif name in place.attrs:
            del place.attrs[name]
    return Damaged(out[0], "any")


def odd_numbers(content: bytes, random: Generator) -> Damaged:
    """Put numbers in place of some that features or coords cannot have, or should not."""
    with hdf5(content) as (file, out):
        name = str(random.choice([name for name in file if name != "metadata"]))
        rows = file[name][()]
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu" and rows.size:
            flat = rows.reshape(-1)
            places = random.integers(0, len(flat), int(random.integers(1, 4)))
            if rows.dtype.kind == "f":
                odd = np.array([np.nan, np.inf, -np.inf, np.finfo(rows.dtype).max, -1, 0, 0.5])
                flat[places] = odd[int(random.integers(0, len(odd)))]
            else:
                ends = np.iinfo(rows.dtype)
                flat[places] = int(random.choice([ends.min, ends.max, 0, 1]))
            _remake(file, name, data=rows)
    return Damaged(out[0])


def another_type(content: bytes, random: Generator) -> Damaged:
    """Store the same numbers in another type."""
    with hdf5(content) as (file, out):
        name = str(random.choice([name for name in file if name != "metadata"]))
        rows = file[name][()]
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu":
            kind = str(random.choice(["f2", "f8", "i1", "u8", "u2", ">i4", "S5"]))
            with np.errstate(all="ignore"):
                _remake(file, name, data=rows.astype(kind))
    return Damaged(out[0])


def hdf5_bomb(content: bytes, random: Generator) -> Damaged:
    with hdf5(content) as (file, out):
        name = str(random.choice(list(file)))
        rows = HUGE // 80
        made = _remake(file, name, shape=(10 * rows, 2), dtype="f4", chunks=(rows, 2), compression="gzip")
        for chunk in range(10):
            made.id.write_direct_chunk((chunk * rows, 0), zlib.compress(bytes(rows * 8), 1))
    return Damaged(out[0], "any")


def enormous_claim(content: bytes, random: Generator) -> Damaged:
    with hdf5(content) as (file, out):
        name = str(random.choice(list(file)))
        expected = _expected(file, "refuse") if name in ("feats", "features", "coords") else "any"
        shape = [(2**40, 6), (2**61, 2), (50_000_000, 2)][int(random.integers(0, 3))]
        _remake(file, name, shape=shape, dtype="i4", chunks=(1000, 2))
    return Damaged(out[0], expected)


def text_attributes(content: bytes, random: Generator) -> Damaged:
    """Flip a bit in the heap that texts of attributes are kept in: the library may walk it for ever."""
    place = content.find(b"GCOL")
    if place < 0:
        return Damaged(content, "same")
    changed = bytearray(content)
    changed[place + int(random.integers(4, 200))] ^= 1 << int(random.integers(0, 8))
    return Damaged(bytes(changed), "shape")


HDF5: tuple[Damage, ...] = (
    unwritten_rows,
    never_allocated,
    other_row_count,
    other_kind,
    other_kind,
    no_dataset,
    odd_attribute,
    odd_attribute,
    odd_numbers,
    odd_numbers,
    odd_numbers,
    other_row_count,
    another_type,
    hdf5_bomb,
    enormous_claim,
    text_attributes,
    text_attributes,
)
