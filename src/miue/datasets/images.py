"""Images of single instances to draw from: MNIST and its relatives, CIFAR-10, SVHN and DTD, read with care."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from miue.common.array_files import load_numpy
from miue.common.errors import DataError, StorageError, not_readable, unknown_name
from miue.common.files import open_file
from miue.datasets.drawing import Pool
from miue.io.formats.numpy_files import UNREADABLE, read_member_header

ARCHIVES = {"mnist": "mnist.npz", "fmnist": "fashion_mnist.npz", "kmnist": "kmnist.npz"}
FOLDERS = {"mnist": "MNIST", "fmnist": "FashionMNIST", "kmnist": "KMNIST"}
_IDX_PREFIX = {"train": "train", "test": "t10k"}
_IDX_UNSIGNED_BYTE = 8
SIDE = 32
DTD_CLASSES = 47
COLOR_ARCHIVES = {"cifar10": "cifar10.npz", "svhn": "svhn_test10k.npz", "dtd": "dtd10_32.npz"}
CIFAR_FOLDER = "cifar-10-batches-bin"
CIFAR_FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
_CIFAR_RECORD = 1 + 3 * SIDE * SIDE


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
        wanted = f"{ARCHIVES[name]} or {FOLDERS[name]}/raw/{_IDX_PREFIX[split]}-images-idx3-ubyte[.gz]"
        raise _missing(f"{name} {split} images", wanted, source)
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


def read_cifar10(source: Path, split: str) -> Pool:
    """Return the images (m, 32, 32, 3) and labels of one split of CIFAR-10; 9 is the truck.

    Takes the official binary files ``cifar-10-batches-bin/*.bin`` in their order, or else ``cifar10.npz``
    (lossless WebP strips), which is sorted by class. The pickled files of the Python version are not read, as they
    could run code.

    Args:
        source: the folder to look in.
        split: "train" or "test".

    Raises:
        StorageError: neither is there, or a file is missing or damaged.
    """
    folder, names = source / CIFAR_FOLDER, CIFAR_FILES[split]
    if folder.exists():
        parts = [_cifar_records(folder / name) for name in names]
        images, labels = ([getattr(part, name) for part in parts] for name in ("instances", "labels"))
        return Pool(np.concatenate(images), np.concatenate(labels))
    archive = source / COLOR_ARCHIVES["cifar10"]
    if archive.exists():
        return _from_strips(archive, split, "cifar10")
    wanted = (
        f"{CIFAR_FOLDER}/{names[0]}{' and the others' if len(names) > 1 else ''} or {COLOR_ARCHIVES['cifar10']}"
    )
    raise _missing(f"cifar10 {split} images", wanted, source)


def read_svhn(source: Path, split: str) -> Pool:
    """Return the images (m, 32, 32, 3) and labels of one split of SVHN; label 0 is the digit 0.

    Takes the official ``train_32x32.mat`` or ``test_32x32.mat``, or else, for the test split,
    ``svhn_test10k.npz`` (lossless WebP strips), which holds its first 10,000 images only.

    Args:
        source: the folder to look in.
        split: "train" or "test".

    Raises:
        StorageError: none of them is there, or a file is damaged.
    """
    path, archive = source / SVHN_FILES[split], source / COLOR_ARCHIVES["svhn"]
    if path.exists():
        return _from_mat(path)
    if split == "test" and archive.exists():
        return _from_strips(archive, split, "svhn")
    wanted = f"{SVHN_FILES['train']}, {SVHN_FILES['test']} or {COLOR_ARCHIVES['svhn']} (test images only)"
    raise _missing(f"svhn {split} images", wanted, source)


def read_dtd(source: Path) -> Pool:
    """Return the images (m, 32, 32, 3) and labels of DTD, classes and files in alphabetical order.

    Takes the official ``dtd/images/<class>/*.jpg``, each whole image resized with Pillow's antialiased
    bilinear filter without keeping its aspect ratio, or else ``dtd10_32.npz``, which holds 10 of the 47
    classes.

    Args:
        source: the folder to look in.

    Raises:
        StorageError: neither is there, or a file is damaged.
    """
    paths, archive = sorted((source / "dtd" / "images").glob("*/*.jpg")), source / COLOR_ARCHIVES["dtd"]
    if paths:
        images = np.stack([_resized(path) for path in paths])
        return Pool(images, np.unique([path.parent.name for path in paths], return_inverse=True)[1])
    if archive.exists():
        with open_archive(archive) as arrays:
            return _checked(arrays["images"], arrays["labels"], DTD_CLASSES)
    raise _missing("dtd images", f"dtd/images/<class>/*.jpg or {COLOR_ARCHIVES['dtd']}", source)


def read_ood(source: Path, name: str) -> tuple[str, Pool]:
    """Return the most complete images of an OOD source, after the name of the set they make.

    "svhn" and "dtd" are SVHN's train split and all 47 classes of DTD, "svhn-test" is SVHN's test split;
    "svhn-part" and "dtd-part" are less than was published.

    Args:
        source: the folder to look in.
        name: "svhn" or "dtd".

    Raises:
        ConfigError: no such source.
        StorageError: its files are not there, or one is damaged.
    """
    if name == "dtd":
        pool = read_dtd(source)
        return ("dtd" if len(np.unique(pool.labels)) == DTD_CLASSES else "dtd-part"), pool
    if name != "svhn":
        raise unknown_name("OOD source", name, ("svhn", "dtd"))
    if (source / SVHN_FILES["train"]).exists():
        return "svhn", read_svhn(source, "train")
    set_name = "svhn-test" if (source / SVHN_FILES["test"]).exists() else "svhn-part"
    return set_name, read_svhn(source, "test")


def _cifar_records(path: Path) -> Pool:
    """Return the images of one binary file: records of a label and three planes of color."""
    with reading(path), open_file(path) as file:
        content = np.frombuffer(file.read(), np.uint8)
        if len(content) % _CIFAR_RECORD:
            raise ValueError(f"{len(content)} bytes, not a multiple of {_CIFAR_RECORD}")
        records = content.reshape(-1, _CIFAR_RECORD)
        planes = records[:, 1:].reshape(-1, 3, SIDE, SIDE)
        return _checked(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0], 10)


def _from_mat(path: Path) -> Pool:
    """Return the images of SVHN's Matlab file: X (32, 32, 3, m), y (m, 1), where 10 is the digit 0."""
    from scipy.io import loadmat

    with reading(path):
        try:
            content = loadmat(path, variable_names=("X", "y"))
        except Exception as error:  # of many kinds: scipy stumbles wherever the damage is
            raise ValueError(str(error)) from error
        if not {"X", "y"} <= content.keys():
            raise ValueError("no arrays X and y")
        images, labels = content["X"], content["y"].ravel()
        if images.ndim != 4 or not ((labels >= 1) & (labels <= 10)).all():
            raise ValueError(f"X {images.shape} and y from {labels.min()} to {labels.max()}")
        return _checked(np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels % 10, 10)


def _from_strips(path: Path, split: str, name: str) -> Pool:
    """Return the images of an archive of WebP strips, each some 32×32 images below one another."""
    with open_archive(path) as arrays:
        if f"{split}_webp" not in arrays:
            raise ValueError(f"no {name} {split} images")
        return _checked(read_strips(arrays, split, SIDE), arrays[f"{split}_labels"], 10)


def _resized(path: Path) -> np.ndarray:
    with reading(path), open_file(path) as file, Image.open(file) as image:
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _checked(images: np.ndarray, labels: np.ndarray, num_classes: int) -> Pool:
    if images.dtype != np.uint8 or images.shape != (len(labels), SIDE, SIDE, 3):
        raise ValueError(f"{images.dtype} images {images.shape} and {len(labels)} labels")
    if not len(labels):
        raise ValueError("no images")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(f"labels from {labels.min()} to {labels.max()}, beyond {num_classes} classes")
    return Pool(images, labels.astype(np.int64))


def _missing(item: str, wanted: str, source: Path) -> StorageError:
    return StorageError(
        item=item,
        wanted=wanted,
        got=f"none of these in {str(source)!r}",
        fix="pass the folder that holds them as --source",
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors that readers raise for a damaged file into one that names it.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        yield
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise not_readable(f"{str(path)!r}", "a whole, readable file", error, "get the file again") from error


class Archive(Mapping[str, np.ndarray]):
    """The arrays of an .npz archive, each read where it is as long as its header states.

    Args:
        opened: by ``np.load``.

    Raises:
        ValueError: a file of a single array.
    """

    def __init__(self, opened: Any) -> None:
        if isinstance(opened, np.ndarray):
            raise ValueError("a single array in place of an archive")
        self._opened = opened

    def __getitem__(self, name: str) -> np.ndarray:
        """Return an array.

        Raises:
            KeyError: there is none of this name.
            ValueError: of another length than its header states; no array at all.
        """
        if f"{name}.npy" not in self._opened.zip.namelist():
            raise KeyError(f"{name} is not a file in the archive")
        size = self._opened.zip.getinfo(f"{name}.npy").file_size
        shape, dtype, stated = read_member_header(self._opened, f"{name}.npy")
        if stated != size and not dtype.hasobject:  # NumPy says what is wrong with objects
            raise ValueError(f"{name} of {size:,} bytes, where shape {shape} of {dtype} makes {stated:,}")
        array: np.ndarray = self._opened[name]
        return array

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the arrays."""
        return iter(self._opened.files)

    def __len__(self) -> int:
        """Return how many arrays there are."""
        return len(self._opened.files)


def find_archive(source: Path, name: str, item: str) -> Path:
    """Return the path of an archive in a folder.

    Raises:
        StorageError: it is not there.
    """
    path = source / name
    if not path.exists():
        raise _missing(item, name, source)
    return path


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Yield the arrays of an archive; opened here because numpy leaves a damaged one open.

    Raises:
        StorageError: no such file, or one that is damaged.
    """
    with reading(path), open_file(path) as file, load_numpy(file) as arrays:
        yield Archive(arrays)


def read_strips(arrays: Mapping[str, Any], name: str, side: int) -> UInt8[np.ndarray, "m side side 3"]:
    """Return the images that ``<name>_webp`` holds: strips, each some images below one another.

    Args:
        arrays: ``<name>_webp`` (bytes) and ``<name>_webp_offsets`` (where each strip begins, and the end).
        name: what the images are of.
        side: pixels of a side.

    Raises:
        ValueError: a strip that is no column of such images.
    """
    content = memoryview(arrays[f"{name}_webp"])
    strips = [_strip(content[start:end], side) for start, end in pairwise(arrays[f"{name}_webp_offsets"])]
    return np.concatenate(strips)


def _strip(content: memoryview, side: int) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        strip = np.asarray(image.convert("RGB"))
    if strip.shape[0] % side or strip.shape[1] != side:
        raise ValueError(f"a strip of {strip.shape[0]}×{strip.shape[1]} pixels, not a column of {side}×{side}")
    return strip.reshape(-1, side, side, 3)
