"""Bags from what Python holds: lists of arrays or tensors, rows, data frames, AnnData.

Each function ``fields_of_…`` returns the arguments from which ``BagDataset`` is made.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.bags.arrays import bag_array, check_bags, check_unmasked
from miue.bags.cells import is_missing, known_text, name_of
from miue.bags.classes import LabelSequence, read_labels
from miue.bags.columns import lower_case, names_feature, read_coords
from miue.bags.frames import common_feature_names, frame_columns, read_columns
from miue.bags.known import Coords, Labels, OodFlags
from miue.bags.rows import GroupedRows, plain_values
from miue.common.errors import DataError, first_few, first_repeated, lacking, one_of_two, repeated, unknown_name
from miue.common.text import plural
from miue.common.values import several

logger = logging.getLogger(__name__)


def fields_of_arrays(
    bags: Sequence[Any],
    labels: LabelSequence | None = None,
    *,
    ids: Sequence[str] | None = None,
    instance_labels: Sequence[LabelSequence] | None = None,
    is_ood: Collection[Any] | None = None,
    patients: Collection[Any] | None = None,
    coords: Sequence[np.ndarray] | None = None,
    class_names: Sequence[str] = (),
    feature_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments of ``BagDataset.packed`` for bags in memory; see ``BagDataset.from_arrays``."""
    bags = _list_of_bags(bags)
    names = tuple(f"bag_{i}" for i in range(len(bags))) if ids is None else _read_ids(ids)
    if len(names) != len(bags):
        raise _count_mismatch("ids", len(bags), "bag", len(names))
    arrays = [bag_array(bag, name) for bag, name in zip(bags, names, strict=True)]
    columns = feature_names or common_feature_names(list(map(frame_columns, bags)), names)
    check_bags(arrays, names)
    labels, is_ood, patients = (
        None if values is None else _one_of_each(values, what, len(arrays))
        for what, values in (("labels", labels), ("values of is_ood", is_ood), ("patients", patients))
    )
    sizes = np.array([len(array) for array in arrays], np.int64)
    known, classes = read_labels([None] * len(arrays) if labels is None else labels, class_names)
    of_instances = _instance_labels(instance_labels, sizes, classes)
    highest = max(known.num_classes, of_instances.num_classes)
    if classes and highest > len(classes):
        raise DataError(
            item="the class names",
            wanted=f"at least {highest}, one for each class",
            got=str(len(classes)),
            fix="name all classes, from that of label 0 on",
        )
    flags = [None if is_missing(flag) else flag for flag in (is_ood or [None] * len(arrays))]
    ood = OodFlags.of(flags)
    return {
        "instances": np.concatenate(arrays),
        "sizes": sizes,
        "ids": names,
        "labels": known,
        "is_ood": ood,
        "ood_sets": tuple("ood" if flag else "" for flag in ood.out_of_distribution),
        "instance_labels": of_instances,
        "coords": None if coords is None else _read_coords(coords, sizes),
        "class_names": classes,
        "patients": _read_patients(patients),
        "feature_names": tuple(columns),
    }


def fields_of_rows(
    instances: Any,
    bag_ids: Any,
    labels: Any = None,
    *,
    patients: Any = None,
    coords: Any = None,
    feature_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments of ``fields_of_arrays`` for one array of all instances and the bag of each row."""
    rows = GroupedRows.of(bag_ids)
    of_bags = {
        what: None if values is None else rows.one_of_each(as_objects(values, what), what).tolist()
        for what, values in (("labels", labels), ("patients", patients))
    }
    return {
        "bags": rows.split(bag_array(instances, "all instances")),
        "ids": rows.names,
        "coords": None if coords is None else rows.split(np.asanyarray(coords)),
        "feature_names": feature_names or frame_columns(instances),
        **of_bags,
    }


def fields_of_frame(
    frame: Any,
    bag: str,
    label: str | None,
    patient: str | None,
    features: Sequence[str] | None,
    coords: tuple[str, str] | None,
) -> dict[str, Any]:
    """Return the arguments of ``fields_of_arrays`` for a data frame; see ``BagDataset.from_frame``."""
    names = list(_column_names(frame))
    for what, column in (
        ("bag", bag),
        ("label", label),
        ("patient", patient),
        *(("coords", c) for c in coords or ()),
    ):
        if column is not None and column not in names:
            raise unknown_name(f"{what} column", column, list(map(str, names)))
    taken = {bag, label, patient, *(coords or ())}
    chosen = features if features is not None else _feature_columns(frame, [n for n in names if n not in taken])
    there = set(names)
    if (missing := next((name for name in chosen if name not in there), None)) is not None:
        raise unknown_name("features column", missing, list(map(str, names)))
    if not len(chosen):
        raise DataError(
            item="the data frame",
            wanted="columns of features, which hold numbers",
            got=f"columns {', '.join(map(str, names))}",
            fix="name them as features=[…], or add them",
        )
    return fields_of_rows(
        read_columns(frame, chosen, np.float32, "the data frame"),
        frame[bag],
        None if label is None else frame[label],
        patients=None if patient is None else frame[patient],
        coords=None if coords is None else read_columns(frame, coords, np.float64, "the data frame"),
        feature_names=tuple(map(str, chosen)),
    )


def fields_of_anndata(
    data: Any,
    bag: str,
    label: str | None,
    patient: str | None,
    layer: str | None,
    obsm: str | None,
    spatial: str | None,
) -> dict[str, Any]:
    """Return the arguments of ``fields_of_arrays`` for an AnnData object; see ``BagDataset.from_anndata``."""
    if not all(hasattr(data, name) for name in ("X", "obs", "obsm", "layers")):
        raise DataError(
            item="the data",
            wanted="an AnnData object, with X, obs, obsm and layers",
            got=type(data).__name__,
            fix="read it with anndata.read_h5ad, or use BagDataset.from_frame",
        )
    if layer is not None and obsm is not None:
        raise one_of_two("layer and obsm")
    names = list(_column_names(data.obs))
    for what, column in (("bag", bag), ("label", label), ("patient", patient)):
        if column is not None and column not in names:
            raise unknown_name(f"{what} column of obs", column, list(map(str, names)))
    for what, entry, entries in (
        ("layer", layer, data.layers),
        ("obsm", obsm, data.obsm),
        ("obsm", spatial, data.obsm),
    ):
        if entry is not None and entry not in entries:
            raise unknown_name(f"entry of {what}", entry, list(map(str, entries)))
    matrix = data.layers[layer] if layer is not None else data.obsm[obsm] if obsm is not None else data.X
    if matrix is None:
        raise lacking("the AnnData object", "features in X", "name where they are: layer= or obsm=")
    matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix  # sparse, of a file that is open
    features = frame_columns(matrix) if obsm is not None else tuple(map(str, getattr(data, "var_names", ())))
    if obsm is not None and features:
        matrix = read_columns(matrix, list(matrix.columns), np.float32, f"obsm[{obsm!r}]")
    return fields_of_rows(
        matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix),
        data.obs[bag],
        None if label is None else data.obs[label],
        patients=None if patient is None else data.obs[patient],
        coords=None if spatial is None else np.asarray(data.obsm[spatial])[:, :2],
        feature_names=features,
    )


def _column_names(frame: Any) -> Sequence[Any]:
    """Return the names of the columns."""
    if isinstance(frame, Mapping):
        return list(frame)
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise DataError(
            item="the data frame",
            wanted="a data frame (pandas, polars) or a dictionary of columns",
            got=type(frame).__name__,
            fix="pass arrays to BagDataset.from_tensors",
        )
    names = list(getattr(frame, "column_names", frame.columns))  # a table of Arrow, or a data frame
    if (twice := first_repeated(names)) is not None:
        raise repeated(f"column {twice!r} of the data frame", "each name once", names.count(twice), "rename one")
    return names


def _feature_columns(frame: Any, names: Sequence[Any]) -> list[Any]:
    """Return those of some columns that hold numbers and have no other meaning by their names; log the others."""
    is_feature = {name: names_feature(str(name)) and _is_numeric(frame[name]) for name in names}
    chosen = [name for name in names if is_feature[name]]
    others = [repr(str(name)) for name in names if not is_feature[name]]
    if chosen and others:
        message = "data frame: not taken for features: %s; pass all features as features=[…] if some are%s"
        x_y = [str(name) for name in names if lower_case(str(name)) in ("x", "y")]
        how = f", positions as coords=({', '.join(map(repr, x_y))})" if len(x_y) == 2 else ""
        logger.warning(message, first_few(others, 10), how)
    return chosen


def _is_numeric(column: Any) -> bool:
    """Return whether a column holds numbers, also where its type is that of any objects."""
    values = np.asarray(column)
    if values.dtype != object or values.ndim != 1:
        return values.ndim == 1 and values.dtype.kind in "fiub"
    present = [value for value in values.tolist() if not is_missing(value)]
    return bool(present) and all(isinstance(value, Real | Decimal) for value in present)


def as_objects(values: Any, what: str) -> np.ndarray:
    """Return values as an array of objects, None where one is missing."""
    values = [None if is_missing(value) else value for value in plain_values(values, what)]
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _read_patients(values: list[Any] | None) -> tuple[str, ...] | None:
    """Return the patient of each bag, "" where unknown, as in a table; None where all are."""
    if values is None:
        return None
    texts = tuple("" if is_missing(value) else known_text(name_of(value)) for value in values)
    return texts if any(texts) else None


def _one_of_each(values: Any, what: str, bags: int) -> list[Any]:
    """Return plain values, of which there is one for each bag."""
    plain = plain_values(values, what)
    if len(plain) != bags:
        raise _count_mismatch(what, bags, "bag", len(plain))
    return plain


def _read_ids(values: Any) -> tuple[str, ...]:
    """Return the names of bags."""
    plain = plain_values(values, "ids")
    if (missing := next((row for row, value in enumerate(plain) if is_missing(value)), None)) is not None:
        raise DataError(
            item=f"id {missing}", wanted="the name of a bag", got=repr(plain[missing]), fix="name every bag"
        )
    return tuple(map(name_of, plain))


def _list_of_bags(bags: Any) -> list[Any] | tuple[Any, ...]:
    """Return bags as a list."""
    listed = several(bags)
    if listed is not None:
        return listed
    raise DataError(
        item="the bags",
        wanted="a list of arrays, one for each bag",
        got=f"a value of type {type(bags).__name__}",
        fix="pass [bag] for a single one; miue.load_bags opens a path, BagDataset.from_frame takes a data frame",
    )


def _instance_labels(
    values: Sequence[LabelSequence] | None, sizes: Int64[np.ndarray, "B"], class_names: Sequence[str]
) -> Labels:
    """Return the labels of all instances from those of each bag."""
    if values is None:
        return Labels.unknown(int(sizes.sum()))
    bags = several(values)
    if bags is None or len(bags) != len(sizes):
        got = f"a value of type {type(values).__name__}" if bags is None else len(bags)
        raise _count_mismatch("lists of instance labels", len(sizes), "bag", got)
    labels = [
        [None] * size if bag is None else plain_values(bag, f"instance labels of bag {number}", "instance")
        for number, (bag, size) in enumerate(zip(bags, sizes.tolist(), strict=True))
    ]
    for number, (bag, size) in enumerate(zip(labels, sizes.tolist(), strict=True)):
        if len(bag) != size:
            raise _count_mismatch(f"instance labels of bag {number}", size, "instance", len(bag))
    known, own_names = read_labels([label for bag in labels for label in bag], class_names)
    if own_names and not class_names:
        raise DataError(
            item="the instance labels",
            wanted="class indices, as the labels of the bags are, or class_names",
            got=f"names: {', '.join(own_names)}",
            fix="pass class_names, the negative one first",
        )
    return known


def _read_coords(values: Sequence[np.ndarray], sizes: Int64[np.ndarray, "B"]) -> Coords | None:
    """Return the positions of all instances from those of each bag."""
    listed = several(values)
    for number, bag in enumerate(listed or ()):
        check_unmasked(bag, f"the coords of bag {number}")
    arrays = [np.asarray(bag) for bag in listed or ()]
    unlike = [
        f"{array.dtype} of shape {array.shape}"
        for array, size in zip(arrays, sizes, strict=False)
        if array.shape != (size, 2) or array.dtype.kind not in "fiu"
    ]
    if len(arrays) != len(sizes) or unlike:
        count = f"{plural(len(arrays), 'array')} for {plural(len(sizes), 'bag')}"
        raise DataError(
            item="the coords",
            wanted="an array (n, 2) of numbers for each bag, x and y of its instances",
            got=f"a value of type {type(values).__name__}" if listed is None else [*unlike, count][0],
            fix="pass one position for each instance, NaN where unknown",
        )
    x, y = np.concatenate(arrays).astype(np.float64).T
    return read_coords(x, y, "coords")


def _count_mismatch(what: str, wanted: int, each: str, got: object) -> DataError:
    return DataError(
        item=f"the {what}",
        wanted=f"{wanted}, one for each {each}",
        got=str(got),
        fix="pass as many as there are, None where unknown",
    )
