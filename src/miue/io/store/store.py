"""The bag store: one folder, readable tables and memory-mapped arrays, no pickle.

store.json           format, version, shapes, class names, how it was made; extractor, scales of patches
bags.csv             bag_id, size, label, is_ood, split, ood_set; an empty label is an unknown one, and where
                     is_ood is empty it is unknown whether the bag is in or out of distribution;
                     patient and patch_size (side of a patch in level-0 pixels) where known, an empty
                     patient is one of its own
instances.npy        features (M, D) or uint8 images (M, H, W, channels), bag after bag
instance_labels.npy, instance_labelled.npy, instance_is_ood.npy, instance_ood_known.npy, coords.npy, located.npy
                     where known; instances without flags of their own have those of their bag
image_statistics.npy the statistics of the images that features were made of (M, S), where known
checksums.csv        SHA-256 of each bag's instances, in stores that were packed from files
left_out.csv         bags that were left out when files were packed, with the reason
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags.arrays import InstanceArray, check_bag, check_ids
from miue.bags.dataset import BagDataset, check_dataset
from miue.bags.names import how_to_pass
from miue.bags.ood_flags import OodFlags
from miue.bags.table_columns import split_name
from miue.common.errors import (
    StorageError,
    first_repeated,
    lacking,
    missing_column,
    not_a_folder,
    repeated,
    wrong_shape,
)
from miue.common.files import atomic_folder, check_format, read_json, write_json
from miue.common.folder_kinds import STORE
from miue.common.tables import read_text_columns, write_table
from miue.common.values import checked
from miue.io.formats.arrays import read_array
from miue.io.raw_bags import RawBags, to_dataset
from miue.io.write_array import write_array

FORMAT = "miue-bags"
VERSION = 1
STATISTICS = "image_statistics.npy"
AGAIN = "make the store again"
ARRAYS: dict[str, type[np.generic]] = {
    "instance_labels": np.int64,
    "instance_labelled": np.bool_,
    "instance_is_ood": np.bool_,
    "instance_ood_known": np.bool_,
    "coords": np.int64,
    "located": np.bool_,
}
COLUMNS = ("bag_id", "size", "label", "is_ood", "split", "ood_set")


@checked()
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
        DataError: a feature is NaN or infinite, a bag is there twice, or there is none.
        ConfigError: no dataset, or a split of another name than splits have.
        StorageError: ``path`` is taken, or the disk is full.
    """
    path = Path(path)
    check_dataset(dataset)
    if not len(dataset):
        raise lacking(f"store {str(path)!r}", "at least one bag", "choose bags to write")
    check_ids(dataset.ids)
    with atomic_folder(path, STORE, overwrite=overwrite) as folder:
        shape = (len(dataset.positions), *dataset.instance_shape)
        write_array(folder / "instances.npy", dataset.instances.dtype, shape, _usable_bags(dataset))
        write_tables(folder, dataset, made_by or {})


def write_tables(folder: Path, dataset: BagDataset, made_by: dict[str, Any]) -> None:
    """Write all of a store but instances.npy; store.json, which makes it one, comes last."""
    positions = dataset.positions
    _write_bag_table(folder / "bags.csv", dataset)
    if dataset.instance_labels.known.any():
        _write_whole(folder / "instance_labels.npy", dataset.instance_labels.values[positions])
        _write_whole(folder / "instance_labelled.npy", dataset.instance_labels.known[positions])
    _write_instance_flags(folder, dataset.instance_is_ood[positions], dataset.is_ood.repeat(dataset.sizes))
    if dataset.coords is not None:
        _write_whole(folder / "coords.npy", dataset.coords.values[positions])
        if not dataset.coords.known[positions].all():
            _write_whole(folder / "located.npy", dataset.coords.known[positions])
    if dataset.statistics is not None:
        shape = (len(positions), *dataset.statistics.shape[1:])
        write_array(folder / STATISTICS, dataset.statistics.dtype, shape, _bag_by_bag(dataset.statistics, dataset))
    count = max(dataset.num_classes, dataset.instance_labels[positions].num_classes)
    summary = {
        "format": FORMAT,
        "version": VERSION,
        "bags": len(dataset),
        "instances": len(positions),
        "instance_shape": list(dataset.instance_shape),
        "dtype": str(dataset.instances.dtype),
        "class_names": list(dataset.class_names) or [str(c) for c in range(count)],
        **({"extractor": dataset.extractor} if dataset.extractor else {}),
        **({"patch_scales": list(dataset.patch_scales)} if dataset.patch_scales else {}),
        **({"feature_names": list(dataset.feature_names)} if dataset.feature_names else {}),
        "made_by": made_by,
    }
    write_json(folder / "store.json", summary)


def _write_whole(path: Path, values: np.ndarray) -> None:
    """Write an array that is in memory; ``np.save`` does not see that the last bytes found no room."""
    write_array(path, values.dtype, values.shape, [values])


def _bag_by_bag(values: InstanceArray, dataset: BagDataset) -> Iterator[np.ndarray]:
    """Yield the rows of each of the dataset's bags."""
    for start, size in zip(dataset.starts.tolist(), dataset.sizes.tolist(), strict=True):
        yield np.asarray(values[start : start + size])


def _usable_bags(dataset: BagDataset) -> Iterator[np.ndarray]:
    """Yield the instances of each bag, after it was seen that they can be used.

    Raises:
        DataError: a bag that cannot.
    """
    for name, rows in zip(dataset.ids, _bag_by_bag(dataset.instances, dataset), strict=True):
        check_bag(name, rows, dataset.instance_shape)
        yield rows


@checked()
def read_store(path: Path | str) -> BagDataset:
    """Return the bags of the store at ``path``; instances stay on disk until they are asked for.

    Raises:
        StorageError: not a store, a newer one, or one whose parts do not fit together.
        DataError: a line of bags.csv that cannot be used.
    """
    return to_dataset(read_raw_store(path))


def read_raw_store(path: Path | str) -> RawBags:
    """Return what the store at ``path`` holds, before its columns are checked; errors as for ``read_store``."""
    path = Path(path)
    summary = read_store_summary(path)
    present = {name for name in ARRAYS if (path / f"{name}.npy").exists()}
    present |= {"instance_labelled"} if "instance_labels" in present else set()
    instances = read_array(path / "instances.npy", AGAIN)
    if instances.ndim not in (2, 4) or instances.dtype.kind not in "fiu":
        wanted = "numbers of shape (M, D), or images (M, H, W, channels)"
        raise wrong_shape(repr(str(path / "instances.npy")), wanted, instances, AGAIN)
    statistics = read_array(path / STATISTICS, AGAIN) if (path / STATISTICS).exists() else None
    if statistics is not None and (statistics.ndim, len(statistics), statistics.dtype.kind) != (
        2,
        len(instances),
        "f",
    ):
        raise wrong_shape(repr(str(path / STATISTICS)), f"numbers ({len(instances)}, S)", statistics, AGAIN)
    arrays = {name: read_array(path / f"{name}.npy", AGAIN) for name in sorted(present)}
    table = str(path / "bags.csv")
    columns = read_text_columns(path / "bags.csv")
    if set(COLUMNS) - set(columns):
        raise missing_column(f"bag table {table!r}", f"columns {', '.join(COLUMNS)}", columns, AGAIN)
    ids = tuple(columns["bag_id"])
    if (twice := first_repeated(ids)) is not None:
        raise repeated(f"bag {twice!r} of {table!r}", "a unique id", ids.count(twice), "rename one")
    total = len(instances)
    for name, array in arrays.items():
        dtype, shape = ARRAYS[name], (total, 2) if name == "coords" else (total,)
        if array.shape != shape or not np.can_cast(array.dtype, dtype):
            raise wrong_shape(repr(str(path / f"{name}.npy")), f"{np.dtype(dtype)} {shape}", array, AGAIN)
    stated = {"bags": len(ids), "instances": total, "instance_shape": list(instances.shape[1:])}
    for name, value in {**stated, "dtype": str(instances.dtype)}.items():
        if summary.get(name) != value:
            wanted = f"{name} {value} in store.json, as in bags.csv and instances.npy"
            raise StorageError(
                item=f"bag store {str(path)!r}", wanted=wanted, got=repr(summary.get(name)), fix=AGAIN
            )
    return RawBags(
        source=table,
        ids=ids,
        sizes=columns["size"],
        instances=instances,
        of_bags=columns,
        arrays={name: np.array(array, ARRAYS[name]) for name, array in arrays.items()},
        class_names=tuple(summary["class_names"]),
        statistics=statistics,
        extractor=str(summary.get("extractor", "")),
        patch_scales=tuple(map(str, summary.get("patch_scales", ()))),
        feature_names=_feature_names(summary, path),
    )


def _write_instance_flags(folder: Path, flags: OodFlags, of_bags: OodFlags) -> None:
    """Write what is known of instances being out of distribution, where it is not what is known of their bags."""
    if not np.array_equal(flags.known, of_bags.known):
        _write_whole(folder / "instance_ood_known.npy", flags.known)
    if not np.array_equal(flags.out_of_distribution, of_bags.out_of_distribution):
        _write_whole(folder / "instance_is_ood.npy", flags.out_of_distribution)


def read_store_summary(path: Path) -> dict[str, Any]:
    """Return store.json of the store at ``path``.

    Raises:
        StorageError: not a store, or one of a newer format.
    """
    if not (path / "store.json").exists():
        wanted = "bags: a bag store, a folder of feature files, or a table of instances"
        raise not_a_folder(path, wanted, how_to_pass(path))
    summary = read_json(path / "store.json", what="bag store")
    fix = "update miue, or make the store again"
    check_format(summary, item=f"bag store {str(path)!r}", format_name=FORMAT, version=VERSION, fix=fix)
    names = summary.get("class_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
        wanted = "class_names, a list of texts, in store.json"
        raise StorageError(item=f"bag store {str(path)!r}", wanted=wanted, got=repr(names), fix=fix)
    if (twice := first_repeated(names)) is not None:
        wanted, got = "class_names in store.json, each once", f"{twice!r} twice"
        raise StorageError(item=f"bag store {str(path)!r}", wanted=wanted, got=got, fix="make the store again")
    return summary


def _feature_names(summary: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Return the names of the features, none where the store has none.

    Raises:
        StorageError: not a text for each feature.
    """
    names = summary.get("feature_names")
    if names is None:
        return ()
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not texts or [len(names)] != summary["instance_shape"]:
        raise StorageError(
            item=f"bag store {str(path)!r}",
            wanted="feature_names in store.json, a text for each feature",
            got=repr(names)[:60],
            fix=AGAIN,
        )
    return tuple(names)


def _write_bag_table(path: Path, bags: BagDataset) -> None:
    further = {"patient": bags.patients, "patch_size": bags.patch_sizes}
    known = zip(bags.labels.values.tolist(), bags.labels.known, strict=True)
    ood = zip(bags.is_ood.values, bags.is_ood.known, strict=True)
    columns = {
        "bag_id": bags.ids,
        "size": bags.sizes,
        "label": [label if is_known else None for label, is_known in known],
        "is_ood": [str(bool(flag)).lower() if is_known else "" for flag, is_known in ood],
        "split": list(map(split_name, bags.splits)),
        "ood_set": bags.ood_sets,
        **{name: values for name, values in further.items() if values is not None},
    }
    write_table(path, columns)
