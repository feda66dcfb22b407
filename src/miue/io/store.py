"""The bag store: one folder, readable tables and memory-mapped arrays, no pickle.

store.json           format, version, shapes, class names, how it was made; extractor, scales of patches; the
                     SHA-256 of the other files but bags.csv, instances.npy and left_out.csv
bags.csv             bag_id, start, size, label, is_ood, split, ood_set; an empty label is an unknown one, and
                     where is_ood is empty it is unknown whether the bag is in or out of distribution;
                     patient and patch_size (side of a patch in level-0 pixels) where known, an empty
                     patient is one of its own; covariate_NAME of each covariate; rows may be sorted or
                     dropped, and all but the first three columns edited
checksums.csv        bag_id, start, size, and SHA-256 of its instances, of each bag in the order of instances.npy
instances.npy        features (M, D) or uint8 images (M, H, W, channels), bag after bag
instance_labels.npy, instance_labelled.npy, instance_is_ood.npy, instance_ood_known.npy, coords.npy, located.npy
                     where known; instances without flags of their own have those of their bag
slides.npy           number of the slide of each instance in the slide_names of store.json, where bags hold several
image_statistics.npy the statistics of the images that features were made of (M, S), where known
left_out.csv         bags that were left out when files were packed, with the reason
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, ValidationError

from miue.bags import BagDataset, InstanceArray, check_dataset
from miue.bags.arrays import check_bag, check_ids
from miue.bags.classes import ClassNames
from miue.bags.columns import split_name, whole_numbers
from miue.bags.names import how_to_pass
from miue.common.errors import (
    StorageError,
    first_few,
    first_repeated,
    lacking,
    missing_column,
    not_a_folder,
    not_readable,
    repeated,
    wrong_shape,
)
from miue.common.files import atomic_folder, write_json
from miue.common.folder_kinds import STORE
from miue.common.records import FILES, check_files, list_files, read_sealed, sealed
from miue.common.tables import read_text_columns, write_table
from miue.common.text import tracked
from miue.common.values import checked
from miue.io.formats.numpy_files import bytes_of, read_array, write_array
from miue.io.raw_bags import COVARIATE, RawBags, to_dataset
from miue.targets import AnyTarget

FORMAT = "miue-bags"
VERSION = 2
MAIN, INSTANCES, STATISTICS, CHECKSUMS = "store.json", "instances.npy", "image_statistics.npy", "checksums.csv"
AGAIN = "make the store again"
ARRAYS: dict[str, type[np.generic]] = {
    "instance_labels": np.int64,
    "instance_labelled": np.bool_,
    "instance_is_ood": np.bool_,
    "instance_ood_known": np.bool_,
    "coords": np.int64,
    "located": np.bool_,
    "slides": np.int64,
}
SPAN = ("bag_id", "start", "size")
COMPANIONS = (CHECKSUMS, STATISTICS, *(f"{name}.npy" for name in ARRAYS))


class StoreSummary(BaseModel):
    """What store.json says that reading needs.

    Attributes:
        files: SHA-256 of files by their names.
        instances: M, their number.
        instance_shape: of each.
        dtype: of instances.npy.
        class_names: by the numbers that are the labels.
        extractor: of the instances, "" where unknown.
        patch_scales: of the instances, as far as they are known.
        feature_names: of the D features; none where unknown.
        target: what labels mean where they are more than classes.
        slide_names: of the slides that slides.npy numbers.
        bag_per: what all slides of a bag share, "" where a bag is one.
        encoders: how many features are of each patch encoder, where several were joined.
        made_by: how the bags came about.
    """

    model_config = ConfigDict(frozen=True)

    files: dict[str, str]
    instances: int
    instance_shape: tuple[int, ...]
    dtype: str
    class_names: ClassNames
    extractor: str = ""
    patch_scales: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    target: AnyTarget | None = None
    slide_names: tuple[str, ...] = ()
    bag_per: str = ""
    encoders: dict[str, int] = {}
    made_by: dict[str, Any]


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
        digests: list[str] = []
        shape = (len(dataset.positions), *dataset.instance_shape)
        write_array(folder / INSTANCES, dataset.instances.dtype, shape, _usable_bags(dataset, digests))
        write_tables(folder, dataset, digests, made_by or {})


def write_tables(folder: Path, dataset: BagDataset, digests: Sequence[str], made_by: dict[str, Any]) -> None:
    """Write all of a store but instances.npy; store.json, which makes it one, comes last.

    Args:
        folder: of the store.
        dataset: its bags.
        digests: SHA-256 of the instances of each.
        made_by: how the bags came about.
    """
    positions = dataset.positions
    spans = {"bag_id": dataset.ids, "start": dataset.sizes.cumsum() - dataset.sizes, "size": dataset.sizes}
    write_table(folder / CHECKSUMS, {**spans, "sha256": digests})
    _write_bag_table(folder / "bags.csv", dataset, spans)
    labels, coords = dataset.instance_labels[positions], dataset.coords
    flags, of_bags = dataset.instance_is_ood[positions], dataset.is_ood.repeat(dataset.sizes)
    arrays: dict[str, np.ndarray] = {}
    of_slides: dict[str, Any] = {}
    if labels.known.any():
        arrays |= {"instance_labels": labels.values, "instance_labelled": labels.known}
    if not np.array_equal(flags.known, of_bags.known):
        arrays["instance_ood_known"] = flags.known
    if not np.array_equal(flags.out_of_distribution, of_bags.out_of_distribution):
        arrays["instance_is_ood"] = flags.out_of_distribution
    if coords is not None:
        arrays["coords"] = coords.values[positions]
        if not (located := coords.known[positions]).all():
            arrays["located"] = located
    if dataset.slides is not None:
        slides = dataset.slides[positions].used()
        arrays["slides"] = slides.numbers
        of_slides = {"slide_names": list(slides.names), "bag_per": dataset.bag_per}
    for name, values in arrays.items():  # np.save does not see that the last bytes found no room
        write_array(folder / f"{name}.npy", values.dtype, values.shape, [values])
    if dataset.statistics is not None:
        shape = (len(positions), *dataset.statistics.shape[1:])
        write_array(folder / STATISTICS, dataset.statistics.dtype, shape, _bag_by_bag(dataset.statistics, dataset))
    count = max(dataset.num_classes, labels.num_classes)
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
        **({} if dataset.target is None else {"target": dataset.target.model_dump(mode="json")}),
        **of_slides,
        **({"encoders": dict(dataset.encoders)} if dataset.encoders else {}),
        "made_by": made_by,
        FILES: list_files(folder, COMPANIONS),
    }
    write_json(folder / MAIN, sealed(summary))


def _bag_by_bag(values: InstanceArray, dataset: BagDataset) -> Iterator[np.ndarray]:
    """Yield the rows of each of the dataset's bags."""
    for start, size in zip(dataset.starts.tolist(), dataset.sizes.tolist(), strict=True):
        yield np.asarray(values[start : start + size])


def _usable_bags(dataset: BagDataset, digests: list[str]) -> Iterator[np.ndarray]:
    """Yield the instances of each bag, after it was seen that they can be used, and add the SHA-256 of each."""
    for name, rows in zip(dataset.ids, _bag_by_bag(dataset.instances, dataset), strict=True):
        check_bag(name, rows, dataset.instance_shape)
        digests.append(rows_sha256(rows))
        yield rows


def rows_sha256(rows: np.ndarray) -> str:
    """Return the SHA-256 of instances."""
    return hashlib.sha256(bytes_of(rows)).hexdigest()


@checked()
def read_store(path: Path | str) -> BagDataset:
    """Return the bags of the store at ``path``; instances stay on disk until they are asked for.

    Raises:
        StorageError: not a store, one that another version of miue wrote, or files that do not belong together.
        DataError: a line of bags.csv that cannot be used.
    """
    return to_dataset(read_raw_store(path))


def read_raw_store(path: Path | str) -> RawBags:
    """Return what the store at ``path`` holds, before its columns are checked; errors as for ``read_store``.

    Of the instances, those of the first and of the last bag are compared with their SHA-256; ``verify`` takes all.
    """
    path = Path(path)
    summary = read_store_summary(path)
    check_files(path / MAIN, summary.files, COMPANIONS, AGAIN)
    instances, written = read_array(path / INSTANCES, AGAIN), read_text_columns(path / CHECKSUMS)
    shape = (summary.instances, *summary.instance_shape)
    if (instances.shape, str(instances.dtype)) != (shape, summary.dtype):
        raise wrong_shape(
            repr(str(path / INSTANCES)), f"{summary.dtype} {shape}, as {MAIN} says", instances, AGAIN
        )
    _check_instances(path, instances, written, (0, len(written["bag_id"]) - 1))
    table = path / "bags.csv"
    columns, starts, sizes = _read_bag_table(table, written)
    order = np.argsort(starts)
    return RawBags(
        source=str(table) if np.array_equal(order, np.arange(len(order))) else f"{table} sorted by start",
        ids=tuple(columns["bag_id"][row] for row in order.tolist()),
        starts=starts[order],
        sizes=sizes[order],
        instances=instances,
        of_bags={name: [cells[row] for row in order.tolist()] for name, cells in columns.items()},
        arrays={
            name: np.array(read_array(path / f"{name}.npy", AGAIN), dtype)
            for name, dtype in ARRAYS.items()
            if f"{name}.npy" in summary.files
        },
        class_names=summary.class_names,
        statistics=read_array(path / STATISTICS, AGAIN) if STATISTICS in summary.files else None,
        extractor=summary.extractor,
        patch_scales=summary.patch_scales,
        feature_names=summary.feature_names,
        target=summary.target,
        slide_names=summary.slide_names,
        bag_per=summary.bag_per,
        encoders=summary.encoders,
    )


def verify(path: Path, *, progress: bool = False) -> None:
    """Read all instances of the store at ``path``.

    Raises:
        StorageError: those of a bag are not what was written.
    """
    written = read_text_columns(path / CHECKSUMS)
    rows = range(len(written["bag_id"]))
    shown = tracked(rows, "reading", shown=progress, unit="bags", kept=False)
    _check_instances(path, read_array(path / INSTANCES, AGAIN), written, shown)


def _check_instances(
    path: Path, instances: np.ndarray, written: Mapping[str, Sequence[str]], rows: Iterable[int]
) -> None:
    """Raise unless the instances of the bags in these rows of checksums.csv are those that were written."""
    starts, sizes = (np.array(written[name], np.int64) for name in ("start", "size"))
    changed = [
        repr(written["bag_id"][row])
        for row in rows
        if rows_sha256(instances[starts[row] : starts[row] + sizes[row]]) != written["sha256"][row]
    ]
    if changed:
        raise StorageError(
            item=f"bag {first_few(changed)} in {str(path / INSTANCES)!r}",
            wanted=f"the instances that {CHECKSUMS} lists",
            got="others: the file was changed, or belongs to another store",
            fix=f"put back what was written with {MAIN}, or {AGAIN}",
        )


def _read_bag_table(
    path: Path, written: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[str]], Int64[np.ndarray, "B"], Int64[np.ndarray, "B"]]:
    """Return the columns of bags.csv, and where the instances of each bag start and how many there are."""
    columns = read_text_columns(path)
    if {*SPAN} - set(columns):
        raise missing_column(f"bag table {str(path)!r}", f"columns {', '.join(SPAN)}", columns, AGAIN)
    ids, (starts, sizes) = columns["bag_id"], (whole_numbers(columns[name], str(path), name) for name in SPAN[1:])
    if (twice := first_repeated(ids)) is not None:
        raise repeated(f"bag {twice!r} of {str(path)!r}", "a unique id", ids.count(twice), "rename one")
    spans = dict(zip(written["bag_id"], zip(written["start"], written["size"], strict=True), strict=True))
    for name, start, size in zip(ids, starts.tolist(), sizes.tolist(), strict=True):
        if spans.get(name) != (str(start), str(size)):
            raise StorageError(
                item=f"bag {name!r} of {str(path)!r}",
                wanted=f"bag_id, start and size as {CHECKSUMS} lists them",
                got=f"start {start} and size {size}",
                fix=f"copy these three columns from {CHECKSUMS}, or {AGAIN}",
            )
    return columns, starts, sizes


def read_store_summary(path: Path) -> StoreSummary:
    """Return what store.json of the store at ``path`` says.

    Raises:
        StorageError: not a store, a changed one, or one that another version of miue wrote.
    """
    if not (path / MAIN).exists():
        wanted = "bags: a bag store, a folder of feature files, or a table of instances"
        raise not_a_folder(path, wanted, how_to_pass(path))
    summary = read_sealed(path / MAIN, what="bag store", format_name=FORMAT, version=VERSION, again=AGAIN)
    try:
        return StoreSummary.model_validate(summary)
    except ValidationError as error:
        raise not_readable(f"bag store {str(path / MAIN)!r}", "what miue writes", error, AGAIN) from error


def _write_bag_table(path: Path, bags: BagDataset, spans: Mapping[str, Any]) -> None:
    further: dict[str, Any] = {"patient": bags.patients, "patch_size": bags.patch_sizes}
    further |= {f"{COVARIATE}{name}": cells for name, cells in bags.covariates.items()}
    known = zip(bags.labels.values.tolist(), bags.labels.known, strict=True)
    ood = zip(bags.is_ood.values, bags.is_ood.known, strict=True)
    columns = {
        **spans,
        "label": [label if is_known else None for label, is_known in known],
        "is_ood": [str(bool(flag)).lower() if is_known else "" for flag, is_known in ood],
        "split": list(map(split_name, bags.splits)),
        "ood_set": bags.ood_sets,
        **{name: values for name, values in further.items() if values is not None},
    }
    if (outcomes := bags.outcomes) is not None:
        pairs = zip(outcomes.values.tolist(), outcomes.observed.astype(int).tolist(), strict=True)
        cells = [
            (repr(value), str(seen)) if is_known else ("", "")
            for (value, seen), is_known in zip(pairs, outcomes.known, strict=True)
        ]
        columns |= {"outcome": [value for value, _ in cells], "observed": [seen for _, seen in cells]}
    write_table(path, columns)
