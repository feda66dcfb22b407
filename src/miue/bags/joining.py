"""The same patches by several encoders: their features become one vector for each patch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from miue.bags.arrays import rearranged, side_by_side
from miue.bags.dataset import BagDataset, check_dataset
from miue.common.errors import DataError, lacking


def join_features(parts: Mapping[str, BagDataset]) -> BagDataset:
    """Return bags whose instances have the features of several encoders, side by side.

    What is known of bags and instances is that of the first part; instances in files and stores stay there.

    Args:
        parts: the same bags by each encoder, by its name, the patches of a bag in one order; at least one part.

    Raises:
        ConfigError: a part that is no dataset.
        DataError: no parts, images, a bag that one part lacks, or other patches.

    >>> parts = {name: BagDataset.from_arrays([np.ones((3, width))]) for name, width in (("uni", 4), ("conch", 2))}
    >>> joined = join_features(parts)
    >>> joined.instance_shape, joined.encoders
    ((6,), {'uni': 4, 'conch': 2})
    """
    if not parts:
        raise lacking("the parts", "the bags of at least one encoder", "pass some by name")
    for name, part in parts.items():
        check_dataset(part, f"the bags of {name!r}")
        if len(part.instance_shape) != 1:
            wanted, got = "feature vectors", f"instances of shape {part.instance_shape}"
            raise DataError(item=f"the bags of {name!r}", wanted=wanted, got=got, fix="extract features first")
    first = next(iter(parts.values()))
    for bag, difference in unlike_patches(parts).items():
        wanted, fix = "the same patches in one order by each encoder", "extract all features from one patching"
        raise DataError(item=f"bag {bag!r}", wanted=wanted, got=difference, fix=fix)
    rows = {name: dict(zip(part.ids, range(len(part)), strict=True)) for name, part in parts.items()}
    aligned = [part.subset([rows[name][bag] for bag in first.ids]) for name, part in parts.items()]
    at, extractors = first.positions, [part.extractor for part in aligned]
    statistics = first.statistics
    return replace(
        first,
        instances=side_by_side([rearranged(part.instances, part.starts, part.sizes) for part in aligned]),
        starts=(first.sizes.cumsum() - first.sizes).astype(np.int64),
        instance_labels=first.instance_labels[at],
        instance_is_ood=first.instance_is_ood[at],
        coords=None if first.coords is None else first.coords[at],
        statistics=None if statistics is None else rearranged(statistics, first.starts, first.sizes),
        slides=None if first.slides is None else first.slides[at],
        extractor=" + ".join(extractors) if all(extractors) else "",
        patch_scales=tuple(sorted({scale for part in aligned for scale in part.patch_scales})),
        feature_names=(),
        encoders={name: part.instance_shape[0] for name, part in parts.items()},
    )


def unlike_patches(parts: Mapping[str, BagDataset]) -> dict[str, str]:
    """Return which bags do not have the same patches in all parts, and how they differ, in words.

    Patches are the same whose coordinates agree exactly; where one part has none, their number counts alone.

    >>> parts = {name: BagDataset.from_arrays([np.ones((rows, 1))]) for name, rows in (("uni", 4), ("conch", 2))}
    >>> unlike_patches(parts)
    {'bag_0': "4 patches of 'uni' and 2 of 'conch'"}
    """
    first_name, first = next(iter(parts.items()))
    row_of = dict(zip(first.ids, range(len(first)), strict=True))
    found: dict[str, str] = {}
    for name, part in parts.items():
        rows = dict(zip(part.ids, range(len(part)), strict=True))
        found |= {bag: f"no features of {name!r}" for bag in row_of if bag not in rows}
        found |= {bag: f"no features of {first_name!r}" for bag in rows if bag not in row_of}
        for bag in row_of.keys() & rows.keys():
            ours, theirs = _places(first, row_of[bag]), _places(part, rows[bag])
            sizes = int(first.sizes[row_of[bag]]), int(part.sizes[rows[bag]])
            if sizes[0] != sizes[1]:
                found[bag] = f"{sizes[0]:,} patches of {first_name!r} and {sizes[1]:,} of {name!r}"
            elif ours is not None and theirs is not None and (differ := (ours != theirs).any(1)).any():
                found[bag] = (
                    f"{int(differ.sum()):,} patches at other coordinates of {name!r} than of {first_name!r}"
                )
    return found


def _places(bags: BagDataset, row: int) -> np.ndarray | None:
    """Return the coordinates of the instances of a bag, None where one has none."""
    span = slice(int(bags.starts[row]), int(bags.starts[row] + bags.sizes[row]))
    if bags.coords is None or not bags.coords.known[span].all():
        return None
    return bags.coords.values[span]
