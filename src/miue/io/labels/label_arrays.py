"""Labels in a folder of arrays, one ``<bag>.npy`` for each bag, as data sets of torchmil have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.bags.names import match_names
from miue.bags.table_columns import read_classes
from miue.common.errors import DataError, lacking
from miue.io.formats.numpy_files import UNREADABLE, memory_mapped
from miue.io.labels.label_table import LabelTable


def read_bag_labels(folder: Path) -> LabelTable:
    """Return the labels of bags from arrays of one whole number each; the bags have no patients.

    Raises:
        DataError: no such arrays, or one that is damaged or holds something else.
    """
    files = _files(folder)
    labels = []
    for path in files:
        numbers = _whole_numbers(path)
        if numbers.size != 1:
            raise _refused(path, "the label of a bag: one whole number", f"an array of shape {numbers.shape}")
        labels.append(str(numbers.item()))
    ids = tuple(path.stem for path in files)
    return LabelTable(str(folder), ids, tuple(labels), ids, {}, {"label": folder.name})


def with_instance_labels_of_arrays(bags: BagDataset, folder: Path) -> BagDataset:
    """Return the bags with the labels of instances from arrays of one whole number for each instance.

    Bags without an array keep what is known of them; arrays of other bags are not read.

    Raises:
        DataError: arrays of none of the bags, or one that is damaged, of another length or of other classes.
    """
    files = _files(folder)
    places = match_names([path.stem for path in files], bags.ids, str(folder))
    found = [(path, place) for path, place in zip(files, places, strict=True) if place is not None]
    if not found:
        raise DataError(
            item=f"labels of instances {str(folder)!r}",
            wanted=f"arrays of the bags, such as {bags.ids[0]}.npy",
            got=f"those of {len(files)} others, such as {files[0].name}",
            fix="name each array after its bag",
        )
    values, known = bags.instance_labels.values.copy(), bags.instance_labels.known.copy()
    for path, place in found:
        start, size = int(bags.starts[place]), int(bags.sizes[place])
        numbers = _whole_numbers(path).ravel()
        if len(numbers) != size:
            raise _refused(path, f"a label for each of {size:,} instances", f"{len(numbers):,} numbers")
        labels = read_classes(numbers, str(path), "label", bags.class_names, bags.num_classes)
        values[start : start + size], known[start : start + size] = labels.values, labels.known
    return replace(bags, instance_labels=Labels(values, known))


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.npy"))
    if not files:
        fix = "pass a table (CSV, Parquet), or the folder of the arrays"
        raise lacking(f"labels {str(folder)!r}", "a table, or a folder with an array <bag>.npy for each bag", fix)
    return files


def _whole_numbers(path: Path) -> Int64[np.ndarray, "..."]:
    try:
        numbers = np.array(memory_mapped(path))
    except UNREADABLE as error:
        raise _refused(
            path, "a whole .npy array of numbers", str(error).split("\n")[0] or type(error).__name__
        ) from error
    if numbers.dtype.kind not in "iufb" or not (np.isfinite(numbers) & (numbers == np.floor(numbers))).all():
        raise _refused(path, "labels that are whole numbers", f"values of type {numbers.dtype}")
    return numbers.astype(np.int64)


def _refused(path: Path, wanted: str, got: str) -> DataError:
    return DataError(item=f"labels {str(path)!r}", wanted=wanted, got=got, fix="write this array again")
