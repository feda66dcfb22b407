"""The bag store: one folder, readable tables and memory-mapped arrays, no pickle.

store.json           format, version, shapes, class names, how it was made
bags.csv             bag_id, size, label, is_ood, split, ood_set; an empty label is an unknown one, and where
                     is_ood is empty it is unknown whether the bag is in or out of distribution;
                     patient and patch_size (side of a patch in level-0 pixels) where known, an empty
                     patient is one of its own
instances.npy        features (M, D) or uint8 images (M, H, W, channels), bag after bag
instance_labels.npy, instance_labelled.npy, instance_is_ood.npy, instance_ood_known.npy, coords.npy, located.npy
                     where known; instances without flags of their own have those of their bag
checksums.csv        SHA-256 of each bag's instances, in stores that were packed from files
left_out.csv         bags that were left out when files were packed, with the reason
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from miue.bags.arrays import check_bag
from miue.bags.coords import Coords
from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags, with_named_sets
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.escapes import shortened
from miue.common.files import atomic_folder, check_format, read_json, write_json
from miue.io.formats.arrays import UNREADABLE, memory_mapped
from miue.io.labels.label_table import known_patients, split_name
from miue.predictions.csv import flags_of

FORMAT = "miue-bags"
VERSION = 1
COLUMNS = ("bag_id", "size", "label", "is_ood", "split", "ood_set")


def write_store(
    path: Path | str, dataset: BagDataset, *, made_by: dict[str, Any] | None = None, overwrite: bool = False
) -> None:
    """Write ``dataset`` to the folder ``path``, whole or not at all.

    Args:
        path: the store.
        dataset: its bags, in the order they shall have.
        made_by: how the bags came about, for a reader.
        overwrite: replace what is at ``path``.

    Raises:
        DataError: a feature is NaN or infinite.
        ConfigError: a split of another name than splits have.
        StorageError: ``path`` is taken, or the disk is full.
    """
    path = Path(path)
    for name, start, size in zip(dataset.ids, dataset.starts, dataset.sizes, strict=True):
        check_bag(name, dataset.instances[start : start + size], dataset.instance_shape)
    positions = dataset.positions
    with atomic_folder(path, overwrite=overwrite) as folder:
        shape = (len(positions), *dataset.instance_shape)
        out = open_memmap(folder / "instances.npy", "w+", dataset.instances.dtype, shape)
        end = 0
        for start, size in zip(dataset.starts, dataset.sizes, strict=True):
            out[end : end + size] = dataset.instances[start : start + size]
            end += size
        out.flush()
        del out
        write_tables(folder, dataset, made_by or {})


def write_tables(folder: Path, dataset: BagDataset, made_by: dict[str, Any]) -> None:
    """Write all of a store but instances.npy; store.json, which makes it one, comes last."""
    positions = dataset.positions
    _write_bag_table(folder / "bags.csv", dataset)
    if dataset.instance_labels.known.any():
        np.save(folder / "instance_labels.npy", dataset.instance_labels.values[positions])
        np.save(folder / "instance_labelled.npy", dataset.instance_labels.known[positions])
    _write_instance_flags(folder, dataset.instance_is_ood[positions], dataset.is_ood.repeat(dataset.sizes))
    if dataset.coords is not None:
        np.save(folder / "coords.npy", dataset.coords.values[positions])
        if not dataset.coords.known[positions].all():
            np.save(folder / "located.npy", dataset.coords.known[positions])
    summary = {
        "format": FORMAT,
        "version": VERSION,
        "bags": len(dataset),
        "instances": len(positions),
        "instance_shape": list(dataset.instance_shape),
        "dtype": str(dataset.instances.dtype),
        "class_names": list(dataset.class_names) or [str(c) for c in range(dataset.num_classes)],
        "made_by": made_by,
    }
    write_json(folder / "store.json", summary)


def read_store(path: Path | str) -> BagDataset:
    """Return the bags of the store at ``path``; instances stay on disk until they are asked for.

    Raises:
        StorageError: not a store, a newer one, or one whose parts do not fit together.
        DataError: a line of bags.csv that cannot be used.
    """
    path = Path(path)
    summary = read_store_summary(path)
    instances = _instances(path / "instances.npy")
    table = _read_bag_table(path / "bags.csv")
    sizes = table["sizes"]
    total = int(sizes.sum())
    if len(instances) != total:
        raise StorageError(
            item=f"store {str(path)!r}",
            wanted=f"{total} instances, the sum of the sizes in bags.csv",
            got=f"{len(instances)} in instances.npy",
            fix="make the store again",
        )
    _check_summary(path, summary, len(sizes), instances)
    instance_labels = Labels.unknown(total)
    if (path / "instance_labels.npy").exists():
        known = _column(path / "instance_labelled.npy", np.bool_, (total,))
        instance_labels = Labels(_column(path / "instance_labels.npy", np.int64, (total,)), known)
    names = tuple(summary["class_names"])
    for file, labels in (("bags.csv", table["labels"]), ("instance_labels.npy", instance_labels)):
        _check_labels(path / file, labels, names)
    return BagDataset.packed(
        instances,
        instance_labels=instance_labels,
        instance_is_ood=_read_instance_flags(path, table["is_ood"].repeat(sizes)),
        coords=_coords(path, total),
        class_names=names,
        **table,
    )


def _write_instance_flags(folder: Path, flags: OodFlags, of_bags: OodFlags) -> None:
    """Write what is known of instances being out of distribution, where it is not what is known of their bags."""
    if not np.array_equal(flags.known, of_bags.known):
        np.save(folder / "instance_ood_known.npy", flags.known)
    if not np.array_equal(flags.out_of_distribution, of_bags.out_of_distribution):
        np.save(folder / "instance_is_ood.npy", flags.out_of_distribution)


def _read_instance_flags(path: Path, of_bags: OodFlags) -> OodFlags:
    values, known = (
        _column(path / f"{name}.npy", np.bool_, (len(of_bags),)) if (path / f"{name}.npy").exists() else given
        for name, given in (("instance_is_ood", of_bags.values), ("instance_ood_known", of_bags.known))
    )
    return OodFlags(values & known, known)


def read_store_summary(path: Path) -> dict[str, Any]:
    """Return store.json of the store at ``path``.

    Raises:
        StorageError: not a store, or one of a newer format.
    """
    if not (path / "store.json").exists():
        raise StorageError(
            item=f"{str(path)!r}",
            wanted="a bag store (a folder with store.json)",
            got="a folder without one" if path.is_dir() else "no such folder",
            fix="make one with 'miue data make', or check the path",
        )
    summary = read_json(path / "store.json", what="bag store")
    fix = "update miue, or make the store again"
    check_format(summary, item=f"bag store {str(path)!r}", format_name=FORMAT, version=VERSION, fix=fix)
    names = summary.get("class_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
        raise StorageError(
            item=f"bag store {str(path)!r}",
            wanted="class_names, a list of texts, in store.json",
            got=repr(names),
            fix=fix,
        )
    return summary


def _write_bag_table(path: Path, dataset: BagDataset) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        further = {"patient": dataset.patients, "patch_size": dataset.patch_sizes}
        known = {name: values for name, values in further.items() if values is not None}
        writer.writerow((*COLUMNS, *known))
        for i, name in enumerate(dataset.ids):
            label = int(dataset.labels.values[i]) if dataset.labels.known[i] else ""
            ood = str(bool(dataset.is_ood.values[i])).lower() if dataset.is_ood.known[i] else ""
            row = (name, dataset.sizes[i], label, ood, split_name(dataset.splits[i]), dataset.ood_sets[i])
            writer.writerow((*row, *(values[i] for values in known.values())))


def _read_bag_table(path: Path) -> dict[str, Any]:
    """Return the fields of a dataset that bags.csv tells, by name."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restkey=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StorageError(
            item=f"bag table {str(path)!r}",
            wanted="a readable CSV file",
            got=str(error),
            fix="make the store again",
        ) from error
    if not rows or set(COLUMNS) - set(rows[0]):
        raise DataError(
            item=f"bag table {str(path)!r}",
            wanted=f"columns {', '.join(COLUMNS)} and at least one bag",
            got=f"columns {', '.join(rows[0])}" if rows else "no bag",
            fix="make the store again",
        )
    for number, row in enumerate(rows, 1):
        if None in row.values() or "" in row:
            raise DataError(
                item=f"bag table {str(path)!r}, row {number}",
                wanted=f"{len([name for name in row if name])} cells",
                got="fewer" if None in row.values() else "more",
                fix="correct the line",
            )
    try:
        sizes = np.array([int(row["size"]) for row in rows], np.int64)
        labels = Labels.of([int(row["label"]) if row["label"] else None for row in rows])
        patch_sizes = (
            np.array([int(row["patch_size"]) for row in rows], np.int64) if "patch_size" in rows[0] else None
        )
    except ValueError as error:
        raise DataError(
            item=f"bag table {str(path)!r}",
            wanted="whole numbers in size and label, an empty label where unknown",
            got=str(error),
            fix="correct the line",
        ) from error
    ids = tuple(row["bag_id"] for row in rows)
    if len(set(ids)) < len(ids):
        repeated = next(name for name in ids if ids.count(name) > 1)
        raise DataError(
            item=f"bag {repeated!r} of {str(path)!r}", wanted="a unique id", got="two lines", fix="rename one"
        )
    flags = flags_of(np.array([row["is_ood"] for row in rows], object), str(path))
    is_ood, ood_sets = with_named_sets(flags, [row["ood_set"] for row in rows], str(path))
    return {
        "ids": ids,
        "sizes": sizes,
        "labels": labels,
        "is_ood": is_ood,
        "splits": tuple(_split_of(path, row) for row in rows),
        "ood_sets": tuple(ood_sets.tolist()),
        "patients": known_patients([row["patient"] for row in rows], ids) if "patient" in rows[0] else None,
        "patch_sizes": patch_sizes,
    }


def _split_of(path: Path, row: dict[str, str]) -> str:
    try:
        return split_name(row["split"])
    except ConfigError as error:
        item = f"bag {row['bag_id']!r} of {str(path)!r}, {error.item}"
        raise DataError(item=item, wanted=error.wanted, got=error.got, fix=error.fix) from error


def _check_labels(path: Path, labels: Labels, names: Sequence[str]) -> None:
    values = labels.values[labels.known]
    if len(values) and not 0 <= values.min() <= values.max() < len(names):
        raise DataError(
            item=f"labels in {str(path)!r}",
            wanted=f"numbers from 0 to {len(names) - 1}, for the classes {', '.join(names)}",
            got=str(next(value for value in values.tolist() if not 0 <= value < len(names))),
            fix="correct the label, or make the store again",
        )


def _check_summary(path: Path, summary: dict[str, Any], bags: int, instances: np.ndarray) -> None:
    """Raise where store.json states another number, shape or type than bags.csv and instances.npy have.

    Raises:
        StorageError: it does.
    """
    held = {
        "bags": bags,
        "instances": len(instances),
        "instance_shape": list(instances.shape[1:]),
        "dtype": str(instances.dtype),
    }
    for name, value in held.items():
        if summary.get(name) != value:
            raise StorageError(
                item=f"bag store {str(path)!r}",
                wanted=f"{name} {value} in store.json, as in bags.csv and instances.npy",
                got=shortened(repr(summary.get(name))),
                fix="make the store again",
            )


def _coords(path: Path, total: int) -> Coords | None:
    if not (path / "coords.npy").exists():
        return None
    coords = Coords.of(_column(path / "coords.npy", np.int64, (total, 2)))
    if not (path / "located.npy").exists():
        return coords
    return replace(coords, known=_column(path / "located.npy", np.bool_, (total,)))


def _array(path: Path) -> np.ndarray:
    """Return an array, memory-mapped."""
    try:
        return memory_mapped(path)
    except UNREADABLE as error:
        raise StorageError(
            item=f"{str(path)!r}",
            wanted="a whole .npy array",
            got=shortened(str(error)),
            fix="the file is missing, truncated or damaged; make the store again",
        ) from error


def _instances(path: Path) -> np.ndarray:
    array = _array(path)
    if array.ndim not in (2, 4) or array.dtype.kind not in "fiu":
        raise _unfitting(path, "numbers of shape (M, D), or images (M, H, W, channels)", array)
    return array


def _column(path: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> np.ndarray:
    array = _array(path)
    if array.shape != shape or not np.can_cast(array.dtype, dtype):
        raise _unfitting(path, f"{np.dtype(dtype)} {shape}", array)
    return np.array(array, dtype)


def _unfitting(path: Path, wanted: str, array: np.ndarray) -> StorageError:
    return StorageError(
        item=f"{str(path)!r}", wanted=wanted, got=f"{array.dtype} {array.shape}", fix="make the store again"
    )
