"""Whether instances are still what they were when an interrupted command had read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags.arrays import ChainedInstances, InstanceArray, row_spans
from miue.bags.dataset import BagDataset
from miue.common.errors import not_stated
from miue.io.folders.file_instances import FileInstances
from miue.io.formats.base import ending_of, files_below, takes_folders
from miue.io.formats.images import image_files
from miue.io.formats.numpy_files import bytes_of


def state_of_instances(bags: BagDataset) -> str:
    """Return a digest that changes when the instances do.

    Of files it reads size and time of change, of which every way to write a file changes one; of a folder of
    images those of each image. Instances in memory it reads as they are.

    Raises:
        StorageError: a file that is gone.
    """
    return _digest(_states(bags.instances))


def state_of_bags(bags: BagDataset) -> str:
    """Return a digest that changes when the instances do, or anything that is known of them or of their bags.

    Raises:
        StorageError: a file that is gone.
    """
    return _digest(_known(bags))


def _digest(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def _known(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, InstanceArray):
        yield from _states(value)
    elif is_dataclass(value):
        for each in fields(value):
            yield each.name.encode()
            yield from _known(getattr(value, each.name))
    else:
        yield repr(value).encode()


def _states(instances: InstanceArray) -> Iterator[bytes | memoryview]:
    yield f"{instances.dtype} {tuple(instances.shape)}\n".encode()
    if isinstance(instances, ChainedInstances):
        for part in instances.parts:
            yield from _states(part)
    elif isinstance(instances, FileInstances):
        for path in instances.paths:
            yield from map(_state, [path, *_files_of(path)])
    elif isinstance(instances, np.memmap) and instances.filename is not None:
        yield _state(Path(str(instances.filename)))
    else:
        for span in row_spans(tuple(instances.shape), instances.dtype):
            yield bytes_of(np.asarray(instances[span]))


def _files_of(path: Path) -> list[Path]:
    """Return the files in the folder of a bag, none where it is a file."""
    if not path.is_dir():
        return []
    return list(files_below(path)) if takes_folders(ending_of(path)) else image_files(path)


def _state(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError as error:
        raise not_stated(path, error) from error
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode()
