"""MNIST and its relatives, from .npz archives or from the official idx files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from miue.common.errors import DataError, StorageError
from miue.common.files import open_file
from miue.datasets.drawing import Pool
from miue.datasets.image_archives import open_archive, reading

ARCHIVES = {"mnist": "mnist.npz", "fmnist": "fashion_mnist.npz", "kmnist": "kmnist.npz"}
FOLDERS = {"mnist": "MNIST", "fmnist": "FashionMNIST", "kmnist": "KMNIST"}
_IDX_PREFIX = {"train": "train", "test": "t10k"}
_IDX_UNSIGNED_BYTE = 8


def read_images(source: Path, name: str, split: str) -> Pool:
    """Return the images (m, 28, 28, 1) and labels of one split.

    Looks for ``mnist.npz`` (arrays train_images, train_labels, test_images, test_labels) and for the
    idx files in the folder itself, in ``MNIST/`` and in ``MNIST/raw/``, plain or gzipped.

    Args:
        source: the folder to look in.
        name: "mnist", "fmnist" or "kmnist".
        split: "train" or "test".

    Raises:
        StorageError: neither is there, or a file is damaged.
        DataError: arrays that are no images, or not as many labels.
    """
    archive = source / ARCHIVES[name]
    pool = _from_archive(archive, split) if archive.exists() else _from_idx(source, name, split)
    if pool is None:
        raise StorageError(
            item=f"{name} {split} images",
            wanted=f"{ARCHIVES[name]} or {FOLDERS[name]}/raw/{_IDX_PREFIX[split]}-images-idx3-ubyte[.gz]",
            got=f"neither in {str(source)!r}",
            fix="pass the folder that holds them as --source",
        )
    images, labels = pool
    if images.ndim != 3 or len(images) != len(labels):
        raise DataError(
            item=f"{name} {split} images",
            wanted="images (m, height, width) and as many labels",
            got=f"{images.shape} and {labels.shape}",
            fix="get the files again",
        )
    return Pool(images[..., None], labels.astype(np.int64))


def has_split(source: Path, name: str, split: str) -> bool:
    """Return whether ``read_images`` would find that split.

    Raises:
        StorageError: an archive that is damaged.
    """
    archive = source / ARCHIVES[name]
    if archive.exists():
        with open_archive(archive) as arrays:
            return f"{split}_images" in arrays
    return _idx_file(source, name, f"{_IDX_PREFIX[split]}-images-idx3-ubyte") is not None


def _from_archive(path: Path, split: str) -> tuple[np.ndarray, np.ndarray] | None:
    with open_archive(path) as arrays:
        if f"{split}_images" not in arrays:
            return None
        return arrays[f"{split}_images"], arrays[f"{split}_labels"]


def _from_idx(source: Path, name: str, split: str) -> tuple[np.ndarray, np.ndarray] | None:
    prefix = _IDX_PREFIX[split]
    images = _idx_file(source, name, f"{prefix}-images-idx3-ubyte")
    labels = _idx_file(source, name, f"{prefix}-labels-idx1-ubyte")
    return None if images is None or labels is None else (read_idx(images), read_idx(labels))


def _idx_file(source: Path, name: str, file: str) -> Path | None:
    folders = [source / FOLDERS[name] / "raw", source / FOLDERS[name]]
    if name == "mnist":
        folders.append(source)
    for folder in folders:
        for candidate in (folder / file, folder / f"{file}.gz"):
            if candidate.exists():
                return candidate
    return None


def read_idx(path: Path) -> np.ndarray:
    """Return the unsigned bytes of an idx file, plain or gzipped.

    Raises:
        StorageError: damaged, truncated, or of another type.
    """
    with reading(path), open_file(path) as file:
        content = gzip.decompress(file.read()) if path.suffix == ".gz" else file.read()
        zeros, kind, dimensions = struct.unpack(">HBB", content[:4])
        shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
        if zeros != 0 or kind != _IDX_UNSIGNED_BYTE:
            raise ValueError("not an idx file of unsigned bytes")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
