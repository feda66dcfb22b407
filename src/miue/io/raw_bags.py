"""What a long table or a store holds, before it is checked, and the one place where that becomes a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.bags import BagDataset, InstanceArray, OodFlags, Slides
from miue.bags.cells import known_text
from miue.bags.classes import by_their_names, class_names, known_labels
from miue.bags.columns import (
    numbers_in_cells,
    read_classes,
    read_instance_columns,
    read_item_columns,
    read_splits_column,
)
from miue.targets import Target

COVARIATE = "covariate_"
"""What the names of the columns of covariates begin with in the table of a store."""


@dataclass(frozen=True)
class RawBags:
    """Bags as they are stored.

    Attributes:
        source: the table of the bags, for messages.
        ids: name of each of the B bags.
        sizes: instances of each.
        instances: all, bag after bag.
        starts: the first instance of each; None where the bags follow each other without a gap.
        of_bags: text of each bag, by what it means: label, patient, split, is_ood, ood_set, patch_size.
        of_instances: of the M instances in the order of the table; instance_label as text, x and y as numbers.
        order: the row of each instance in the table; None where they are in the order of ``instances``.
        columns: names of the columns of a table, by what they mean.
        arrays: of the M instances, as a store has them: instance_labels, instance_labelled, instance_is_ood,
            instance_ood_known, coords, located, slides.
        class_names: by the numbers that are the labels; None where labels are the names of classes.
        statistics: of the images of the M instances, (M, S), None where there are none.
        extractor: of the instances, "" where unknown.
        patch_scales: of the instances, as far as they are known.
        feature_names: of the D features; none where unknown.
        target: what labels mean where they are more than classes.
        slide_names: of the slides that ``arrays["slides"]`` numbers.
        bag_per: what all slides of a bag share, "" where a bag is one.
        encoders: how many features are of each patch encoder, where several were joined.
        bad: what is wrong with bags that cannot be used, by their names.
        notes: what to know of the table.
    """

    source: str
    ids: tuple[str, ...]
    sizes: Int64[np.ndarray, "B"]
    instances: InstanceArray
    of_bags: Mapping[str, Sequence[str]]
    starts: Int64[np.ndarray, "B"] | None = None
    of_instances: Mapping[str, np.ndarray] = field(default_factory=dict)
    order: Int64[np.ndarray, "M"] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    statistics: InstanceArray | None = None
    extractor: str = ""
    patch_scales: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    target: Target | None = None
    slide_names: tuple[str, ...] = ()
    bag_per: str = ""
    encoders: Mapping[str, int] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def to_dataset(raw: RawBags, classes: Sequence[str] = ()) -> BagDataset:
    """Return the bags that can be used, after every cell of their columns was checked.

    Args:
        raw: as it is stored.
        classes: order of the classes where labels are names; sorted if empty.

    Raises:
        DataError: a cell that says none of what it can say, or a label that is no class.
    """
    nothing = ("",) * len(raw.ids)
    texts, names = raw.of_bags.get("label", nothing), raw.class_names
    if names is None:
        texts = by_their_names(known_labels(texts, raw.source, classes), classes)
        names = class_names(texts, raw.source, classes) if any(texts) else tuple(classes)
    labels = read_classes(texts, raw.source, "label", names if raw.class_names is None else (), len(names))
    columns: dict[str, Any] = {"bag_id": raw.ids, **raw.of_bags}
    if "outcome" in columns and raw.target is not None:
        columns["outcome"] = numbers_in_cells(columns["outcome"], raw.source, "outcome")
    else:
        columns.pop("outcome", None)
    of_bags = read_item_columns(columns, raw.source, labels)
    before = raw.sizes.cumsum() - raw.sizes
    starts = before if raw.starts is None else raw.starts
    rows = np.arange(raw.sizes.sum()) + np.repeat(starts - before, raw.sizes)
    flags = OodFlags.unknown(len(raw.instances))
    flags.values[rows], flags.known[rows] = (
        np.repeat(one, raw.sizes) for one in (of_bags.is_ood.values, of_bags.is_ood.known)
    )
    of_instances = read_instance_columns({**raw.of_instances, **raw.arrays}, raw.source, names, flags, raw.order)
    splits = read_splits_column(raw.of_bags.get("split", nothing), raw.source)
    patients = of_bags.patients
    bags = BagDataset.packed(
        raw.instances,
        raw.sizes,
        raw.ids,
        starts=starts.astype(np.int64),
        labels=labels,
        is_ood=of_bags.is_ood,
        splits=splits,
        ood_sets=tuple(of_bags.ood_sets.tolist()),
        instance_labels=of_instances.labels,
        instance_is_ood=of_instances.is_ood,
        coords=of_instances.coords,
        class_names=names,
        patients=None if patients is None else tuple(p or n for p, n in zip(patients, raw.ids, strict=True)),
        patch_sizes=of_bags.patch_sizes,
        statistics=raw.statistics,
        extractor=raw.extractor,
        patch_scales=raw.patch_scales,
        feature_names=raw.feature_names,
        target=raw.target,
        outcomes=of_bags.outcomes,
        slides=Slides(raw.slide_names, raw.arrays["slides"]) if "slides" in raw.arrays else None,
        bag_per=raw.bag_per,
        covariates={
            name.removeprefix(COVARIATE): tuple(map(known_text, cells))
            for name, cells in raw.of_bags.items()
            if name.startswith(COVARIATE)
        },
        encoders=raw.encoders,
    )
    return bags.subset([row for row, name in enumerate(raw.ids) if name not in raw.bad]) if raw.bad else bags
