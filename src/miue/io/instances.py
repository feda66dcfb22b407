"""Instances that stay in the files they came in: behind one array, as they were, and handed to other processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset, Coords, InstanceArray, Labels, OodFlags, Outcomes, Slides
from miue.bags.arrays import ChainedInstances, JoinedInstances, PartedInstances, RearrangedInstances, row_spans
from miue.common.errors import SAME_FILES, cannot_write, not_shared, not_stated
from miue.common.processes import free_memory
from miue.common.values import is_tensor
from miue.io.formats.base import bag_error, ending_of, files_below, takes_folders
from miue.io.formats.child import read_rows
from miue.io.formats.images import image_files
from miue.io.formats.numpy_files import bytes_of, memory_mapped, read_array, write_array
from miue.targets import TARGETS, Target

CLASSES = {
    "labels": Labels,
    "instance_labels": Labels,
    "is_ood": OodFlags,
    "instance_is_ood": OodFlags,
    "coords": Coords,
    "slides": Slides,
    "outcomes": Outcomes,
}
"""What is known of bags and instances, by the field of a dataset."""
STORED = ("instances", "statistics")  # fields that stay in their files


class FileInstances(PartedInstances):
    """All instances of several bag files, one after another; those asked for are read when they are.

    Args:
        paths: the files; relative ones are in the working folder of this moment, wherever the program goes.
        sizes: instances of each.
        instance_shape: of every instance.
        dtype: that they are returned in.
        statistics: read the image statistics stored beside the instances.

    Attributes:
        memory_share: of the free memory, in which files are kept once they are read; 0 keeps none.
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
        self.memory_share = 0.0
        self._kept: dict[int, np.ndarray] = {}
        self._kept_bytes = 0

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of a file from ``start`` up to ``stop``.

        Raises:
            DataError: a file that cannot be read, or has got instances of another number or kind since it was
                listed.
        """
        kept = self._kept.get(part)
        if kept is None and self._has_room(part):
            kept = self._read(part, 0, self._size(part)).astype(self.dtype, copy=False)
            kept.flags.writeable = False  # who changes what is read does so to a copy
            self._kept[part] = kept
            self._kept_bytes += kept.nbytes
        return self._read(part, start, stop) if kept is None else kept[start:stop]

    def _size(self, part: int) -> int:
        return int(self.ends[part]) - self._begin(part)

    def _has_room(self, part: int) -> bool:
        """Return whether a file may be kept beside those that are, which count as free memory."""
        needed = self._kept_bytes + self._size(part) * self.bytes_per_instance
        return self.memory_share > 0 and needed <= self.memory_share * (free_memory() + self._kept_bytes)

    def _read(self, part: int, start: int, stop: int) -> np.ndarray:
        path, size = self.paths[part], self._size(part)
        rows = read_rows(path, start, stop, statistics=self.statistics, size=size)
        if rows.shape[1:] != self.shape[1:] or not np.can_cast(rows.dtype, self.dtype):
            got, listed = (f"{each.dtype} of shape {tuple(each.shape[1:])}" for each in (rows, self))
            wanted = f"instances as they were when the bags were listed, {listed}"
            raise bag_error(path, wanted, got, "give the same command again once nothing writes this file")
        return rows


def keep_in_memory(instances: InstanceArray, memory_share: float) -> int:
    """Keep what is read of files from now on, as far as it fits; return the bytes of all of it.

    Args:
        instances: of any kind; those that are in memory or in a store stay as they are.
        memory_share: of the free memory.
    """
    if isinstance(instances, ChainedInstances | JoinedInstances):
        return sum(keep_in_memory(part, memory_share) for part in instances.parts)
    if isinstance(instances, RearrangedInstances):
        return keep_in_memory(instances.array, memory_share)
    if not isinstance(instances, FileInstances):
        return 0
    instances.memory_share = memory_share
    return len(instances) * instances.bytes_per_instance


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
    if isinstance(instances, ChainedInstances | JoinedInstances):
        for part in instances.parts:
            yield from _states(part)
    elif isinstance(instances, RearrangedInstances):
        yield from map(bytes_of, (instances.starts, instances.sizes))
        yield from _states(instances.array)
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


def read_handed_over(path: Path) -> Any:
    """Return what a command wrote with ``write_nested`` for the processes that do its tasks.

    Raises:
        StorageError: there is no such file on this machine, or it is damaged.
    """
    if not path.exists():
        raise not_shared(path, "the file that the command wrote for its workers")
    from miue.common.tensors import read_nested

    return read_nested(path)


def describe_bags(bags: BagDataset, copy: Path) -> dict[str, Any]:
    """Return nested dicts, texts and tensors from which another process makes the same dataset.

    Args:
        bags: of any kind.
        copy: file to which instances are written that are in no file yet, or in one that is read otherwise.
    """
    content = {each.name: _describe(getattr(bags, each.name)) for each in fields(bags) if each.name not in STORED}
    of_images = bags.statistics
    statistics = (
        None if of_images is None else _describe_instances(of_images, copy.with_name(f"statistics-{copy.name}"))
    )
    return {**content, "instances": _describe_instances(bags.instances, copy), "statistics": statistics}


def find_bags_again(content: dict[str, Any]) -> BagDataset:
    """Return the dataset that ``describe_bags`` describes.

    Raises:
        StorageError: its instances are not in the files where they were.
    """
    known = {name: _numpy(value) for name, value in content.items() if name not in STORED}
    for name, kind in CLASSES.items():
        if known[name] is not None:
            known[name] = kind(**known[name])
    if known["target"] is not None:
        known["target"] = TARGETS[known["target"]["kind"]].model_validate(known["target"])
    statistics = content["statistics"]
    return BagDataset(
        instances=_find_instances(**content["instances"]),
        statistics=None if statistics is None else _find_instances(**statistics),
        **known,
    )


def _describe(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        import torch

        return torch.from_numpy(np.array(value))
    if isinstance(value, Target):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {each.name: _describe(getattr(value, each.name)) for each in fields(value)}
    return value


def _numpy(value: Any) -> Any:
    if is_tensor(value):
        return value.numpy()
    return {name: _numpy(each) for name, each in value.items()} if isinstance(value, dict) else value


def _describe_instances(instances: InstanceArray, copy: Path) -> dict[str, Any]:
    if isinstance(instances, RearrangedInstances):
        spans = {"starts": instances.starts.tolist(), "sizes": instances.sizes.tolist()}
        return {"spans": spans, "of": _describe_instances(instances.array, copy)}
    if isinstance(instances, JoinedInstances):
        copies = [copy.with_name(f"{number}-{copy.name}") for number in range(len(instances.parts))]
        return {"joined": list(map(_describe_instances, instances.parts, copies))}
    if isinstance(instances, FileInstances):
        return {
            "paths": [str(path.absolute()) for path in instances.paths],
            "sizes": np.diff(instances.ends, prepend=0).tolist(),
            "shape": list(instances.shape[1:]),
            "dtype": instances.dtype.str,
            "statistics": instances.statistics,
        }
    file = _file_of(instances)
    if file is None:
        shape, dtype = tuple(instances.shape), instances.dtype
        try:
            write_array(copy, dtype, shape, (np.asarray(instances[span]) for span in row_spans(shape, dtype)))
        except OSError as error:
            raise cannot_write(copy, error) from error
    return {"paths": [str((file or copy).absolute())], "in_memory": type(instances) is np.ndarray}


def _file_of(instances: InstanceArray) -> Path | None:
    """Return the .npy file that holds these instances, all of them and in this order; None where there is none."""
    if not isinstance(instances, np.memmap) or not str(instances.filename).endswith(".npy"):
        return None
    path = Path(str(instances.filename))
    stored = memory_mapped(path)
    kinds = [(array.shape, array.dtype, array.strides) for array in (instances, stored)]
    return path if kinds[0] == kinds[1] else None


def _find_instances(
    paths: Sequence[str] = (),
    sizes: list[int] | None = None,
    shape: list[int] | None = None,
    dtype: str = "",
    *,
    statistics: bool = False,
    in_memory: bool = False,
    of: dict[str, Any] | None = None,
    spans: Mapping[str, list[int]] | None = None,
    joined: Sequence[dict[str, Any]] = (),
) -> InstanceArray:
    if joined:
        return JoinedInstances([_find_instances(**part) for part in joined])
    if of is not None and spans is not None:
        return RearrangedInstances(_find_instances(**of), *(np.array(part, np.int64) for part in spans.values()))
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise not_shared(missing[0], "the file of instances that the command was started with", len(missing) - 1)
    if sizes is None:
        stored = read_array(Path(paths[0]), SAME_FILES)
        return np.asarray(stored) if in_memory else stored  # a copy counts as what it was copied from
    files, sizes_of_files = list(map(Path, paths)), np.array(sizes, np.int64)
    return FileInstances(files, sizes_of_files, tuple(shape or ()), np.dtype(dtype), statistics=statistics)
