"""Bags handed to another process: instances stay in the files that they are in, all else goes along."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from miue.bags import BagDataset, Coords, InstanceArray, Labels, OodFlags
from miue.bags.arrays import row_spans
from miue.common.errors import SAME_FILES, cannot_write, not_shared
from miue.common.nested import read_nested
from miue.io.formats.numpy_files import memory_mapped, read_array, write_array
from miue.io.instances import FileInstances

CLASSES = {
    "labels": Labels,
    "instance_labels": Labels,
    "is_ood": OodFlags,
    "instance_is_ood": OodFlags,
    "coords": Coords,
}
"""What is known of bags and instances, by the field of a dataset."""
STORED = ("instances", "statistics")  # fields that stay in their files


def read_handed_over(path: Path) -> Any:
    """Return what a command wrote with ``write_nested`` for the processes that do its tasks.

    Raises:
        StorageError: there is no such file on this machine, or it is damaged.
    """
    if not path.exists():
        raise not_shared(path, "the file that the command wrote for its workers")
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
    statistics = content["statistics"]
    return BagDataset(
        instances=_find_instances(**content["instances"]),
        statistics=None if statistics is None else _find_instances(**statistics),
        **known,
    )


def _describe(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if is_dataclass(value):
        return {each.name: _describe(getattr(value, each.name)) for each in fields(value)}
    return value


def _numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy()
    return {name: _numpy(each) for name, each in value.items()} if isinstance(value, dict) else value


def _describe_instances(instances: InstanceArray, copy: Path) -> dict[str, Any]:
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
    paths: list[str],
    sizes: list[int] | None = None,
    shape: list[int] | None = None,
    dtype: str = "",
    *,
    statistics: bool = False,
    in_memory: bool = False,
) -> InstanceArray:
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise not_shared(missing[0], "the file of instances that the command was started with", len(missing) - 1)
    if sizes is None:
        stored = read_array(Path(paths[0]), SAME_FILES)
        return np.asarray(stored) if in_memory else stored  # a copy counts as what it was copied from
    files, sizes_of_files = list(map(Path, paths)), np.array(sizes, np.int64)
    return FileInstances(files, sizes_of_files, tuple(shape or ()), np.dtype(dtype), statistics=statistics)
