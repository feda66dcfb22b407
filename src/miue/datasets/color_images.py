"""CIFAR-10, SVHN and DTD as 32×32 color images, from the official files or from .npz archives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from miue.common.errors import StorageError, unknown_name
from miue.common.files import open_file
from miue.datasets.drawing import Pool
from miue.datasets.image_archives import open_archive, read_strips, reading

SIDE = 32
DTD_CLASSES = 47
ARCHIVES = {"cifar10": "cifar10.npz", "svhn": "svhn_test10k.npz", "dtd": "dtd10_32.npz"}
CIFAR_FOLDER = "cifar-10-batches-bin"
CIFAR_FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
CIFAR_PICKLED_FOLDER = "cifar-10-batches-py"
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
_CIFAR_RECORD = 1 + 3 * SIDE * SIDE


def read_cifar10(source: Path, split: str) -> Pool:
    """Return the images (m, 32, 32, 3) and labels of one split of CIFAR-10; 9 is the truck.

    Takes the official binary files ``cifar-10-batches-bin/*.bin`` in their order, or else ``cifar10.npz``
    (lossless WebP strips), which is sorted by class. The pickled files of the Python version are not read.

    Args:
        source: the folder to look in.
        split: "train" or "test".

    Raises:
        StorageError: neither is there, or a file is missing or damaged.
    """
    folder, names = source / CIFAR_FOLDER, CIFAR_FILES[split]
    absent = [name for name in names if not (folder / name).exists()]
    if not absent:
        parts = [_cifar_records(folder / name) for name in names]
        return Pool(
            np.concatenate([part.instances for part in parts]), np.concatenate([part.labels for part in parts])
        )
    if len(absent) < len(names):
        raise StorageError(
            item=f"cifar10 {split} images in {str(folder)!r}",
            wanted=f"all of {', '.join(names)}",
            got=f"no {', '.join(absent)}",
            fix=f"unpack CIFAR-10's binary version again, or remove the folder to use {ARCHIVES['cifar10']}",
        )
    archive = source / ARCHIVES["cifar10"]
    if archive.exists():
        return _from_archive(archive, split, "cifar10")
    wanted = f"{CIFAR_FOLDER}/{names[0]}{' and the others' if len(names) > 1 else ''} or {ARCHIVES['cifar10']}"
    if (source / CIFAR_PICKLED_FOLDER).exists():
        raise StorageError(
            item=f"cifar10 {split} images",
            wanted=wanted,
            got=f"only {CIFAR_PICKLED_FOLDER}, whose pickled files could run code",
            fix=f"get CIFAR-10's binary version and unpack it, as {CIFAR_FOLDER}, into {str(source)!r}",
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
    path, archive = source / SVHN_FILES[split], source / ARCHIVES["svhn"]
    if path.exists():
        return _from_mat(path)
    if split == "test" and archive.exists():
        return _from_archive(archive, split, "svhn")
    wanted = f"{SVHN_FILES['train']}, {SVHN_FILES['test']} or {ARCHIVES['svhn']} (test images only)"
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
    paths, archive = sorted((source / "dtd" / "images").glob("*/*.jpg")), source / ARCHIVES["dtd"]
    if paths:
        images = np.stack([_resized(path) for path in paths])
        return Pool(images, np.unique([path.parent.name for path in paths], return_inverse=True)[1])
    if archive.exists():
        with open_archive(archive) as arrays:
            return _checked(arrays["images"], arrays["labels"], DTD_CLASSES)
    raise _missing("dtd images", f"dtd/images/<class>/*.jpg or {ARCHIVES['dtd']}", source)


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


def _from_archive(path: Path, split: str, name: str) -> Pool:
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
