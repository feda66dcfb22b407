"""Instances that stay in the files they came in, behind one array; and whether these are what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset, InstanceArray
from miue.bags.arrays import ChainedInstances, PartedInstances, row_spans
from miue.common.errors import not_stated
from miue.io.formats.base import bag_error, ending_of, files_below, takes_folders
from miue.io.formats.child import read_rows
from miue.io.formats.images import image_files
from miue.io.formats.numpy_files import bytes_of


class FileInstances(PartedInstances):
    """All instances of several bag files, one after another; those asked for are read when they are.

    Args:
        paths: the files; relative ones are in the working folder of this moment, wherever the program goes.
        sizes: instances of each.
        instance_shape: of every instance.
        dtype: that they are returned in.
        statistics: read the image statistics stored beside the instances.
    """

    def __init__(
        self,
        paths: list[Path],
        sizes: np.ndarray,
        instance_shape: tuple[int, ...],
        dtype: np.dtype,
        *,
        statistics: bool = False,
    ) -> None:
        super().__init__(sizes, instance_shape, dtype)
        self.paths = [path.absolute() for path in paths]
        self.statistics = statistics

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of a file from ``start`` up to ``stop``.

        Raises:
            DataError: a file that cannot be read, or has got instances of another number or kind since it was
                listed.
        """
        path, size = self.paths[part], int(self.ends[part]) - self._begin(part)
        rows = read_rows(path, start, stop, statistics=self.statistics, size=size)
        if rows.shape[1:] != self.shape[1:] or not np.can_cast(rows.dtype, self.dtype):
            got, listed = (f"{each.dtype} of shape {tuple(each.shape[1:])}" for each in (rows, self))
            wanted = f"instances as they were when the bags were listed, {listed}"
            raise bag_error(path, wanted, got, "give the same command again once nothing writes this file")
        return rows


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
