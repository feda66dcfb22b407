"""Several datasets become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miue.bags.arrays import chain
from miue.bags.columns import ItemColumns
from miue.bags.dataset import BagDataset, bag_fields, check_dataset
from miue.bags.frames import check_feature_order
from miue.common.errors import DataError, first_few, first_repeated, lacking, wrong_type
from miue.common.values import several


def concatenate(parts: Sequence[BagDataset]) -> BagDataset:
    """Return the bags of all parts as one dataset, with all that is known of them.

    Instances in memory are copied; those in files and stores stay there. Labels are matched by the names of
    the classes. What is known of one part alone, such as its patients, is unknown for the bags of the others.

    Args:
        parts: at least one, of different bags.

    Raises:
        ConfigError: no list of parts, or a part that is no dataset.
        DataError: no parts, a bag in two of them, instances of different shapes or kinds, features in another
            order, or other classes.

    >>> parts = [BagDataset.from_arrays([np.ones((3, 2))], ids=[name]) for name in "ab"]
    >>> concatenate(parts).ids
    ('a', 'b')
    """
    listed = several(parts)
    if listed is None:
        raise wrong_type("parts", "several datasets", parts, "pass a list of them")
    parts = listed
    if not parts:
        raise lacking("the parts", "at least one dataset", "pass some bags")
    for number, part in enumerate(parts, 1):
        check_dataset(part, f"part {number}")
    names = max((part.class_names for part in parts), key=len)
    parts = [part.with_classes(names) for part in parts]
    _check_parts(parts)
    lengths = np.array([len(part.instances) for part in parts], np.int64)
    offsets = lengths.cumsum() - lengths
    of_instances = ItemColumns.concatenate([part.all_instance_columns() for part in parts])
    of_bags = ItemColumns.concatenate([part.columns for part in parts])
    extractors, features = {part.extractor for part in parts}, {part.feature_names for part in parts}
    statistics = [part.statistics for part in parts if part.statistics is not None]
    return BagDataset(
        instances=chain([part.instances for part in parts]),
        starts=np.concatenate([part.starts + offset for part, offset in zip(parts, offsets, strict=True)]),
        sizes=np.concatenate([part.sizes for part in parts]),
        ids=tuple(name for part in parts for name in part.ids),
        splits=tuple(split for part in parts for split in part.splits),
        instance_labels=of_instances.labels,
        instance_is_ood=of_instances.is_ood,
        coords=of_instances.coords,
        class_names=names,
        statistics=chain(statistics) if len(statistics) == len(parts) else None,
        extractor=extractors.pop() if len(extractors) == 1 else "",
        patch_scales=tuple(sorted({scale for part in parts for scale in part.patch_scales})),
        feature_names=features.pop() if len(features) == 1 else (),
        slides=of_instances.slides,
        bag_per=shared.pop() if len(shared := {part.bag_per for part in parts}) == 1 else "",
        encoders=parts[0].encoders if all(part.encoders == parts[0].encoders for part in parts) else {},
        covariates={
            name: tuple(cell for part in parts for cell in part.covariates.get(name, [""] * len(part)))
            for name in dict.fromkeys(name for part in parts for name in part.covariates)
        },
        **bag_fields(of_bags),
    )


def _check_parts(parts: Sequence[BagDataset]) -> None:
    """Raise unless the parts can be one dataset."""
    ids = [name for part in parts for name in part.ids]
    if (twice := first_repeated(ids)) is not None:
        raise DataError(
            item=f"bag {twice!r}",
            wanted="each bag in one part",
            got="the same id in two",
            fix="rename one of the two, or leave it out",
        )
    first = parts[0].instances
    for part in parts:
        kind, wanted = (
            f"{'bytes' if array.dtype == np.uint8 else 'numbers'} of shape {tuple(array.shape[1:])}"
            for array in (part.instances, first)
        )
        if kind != wanted:
            raise DataError(
                item=f"the bags of {part.ids[0]!r}" if part.ids else "an empty part",
                wanted=f"instances that are {wanted}, as in the first part",
                got=kind,
                fix="use one feature extractor for all bags",
            )
        check_feature_order(part.feature_names, parts[0].feature_names, f"the bags of {first_few(part.ids)}")
