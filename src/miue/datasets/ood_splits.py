"""The splits of an image benchmark: its own bags, and test bags with images of OOD sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from typing_extensions import TypedDict

from miue.bags import BagDataset, concatenate
from miue.common.errors import unknown_name
from miue.datasets.drawing import Pool, check_splits, draw_bags, drawn_dataset, with_ood_instances

TARGET = 9
SEEDS = {"train": 98, "validation": 97, "test": 96}


class Draw(TypedDict, total=False):
    """Which bags of an image benchmark are drawn.

    Attributes:
        splits: which splits, all if not specified; train and validation draw from the training images.
        ood: OOD sources of the test split.
        ood_ratio: share of OOD instances in each OOD bag, 0 to 1.
        sizes: number of bags of each split; as published if not specified.
        progress: show a bar for each split; none if not specified.
    """

    splits: Sequence[str]
    ood: Sequence[str]
    ood_ratio: float
    sizes: Mapping[str, int]
    progress: bool


def splits_with_ood(
    read: Callable[[str], Pool],
    read_ood: Callable[[str], tuple[str, Pool]],
    ood_sources: Sequence[str],
    published: Mapping[str, int],
    *,
    splits: Sequence[str] = tuple(SEEDS),
    ood: Sequence[str] = (),
    ood_ratio: float = 1.0,
    sizes: Mapping[str, int] | None = None,
    progress: bool = False,
) -> BagDataset:
    """Draw the bags of each split; the test split holds n of its own, then n OOD ones per source.

    Every OOD source starts from the same random state, so a set of bags does not depend on which
    others are drawn. One pool of images is held at a time, the test split's beside an OOD one.

    Reference: Liu & Ji 2024, Appendix D.1.

    Args:
        read: returns the images of the source's "train" or "test" split.
        read_ood: returns the name of the set that an OOD source makes, and its images.
        ood_sources: the OOD sources that there are.
        published: number of bags of each split, unless ``sizes`` says others.
        splits, ood, ood_ratio, sizes, progress: as in ``Draw``.

    Raises:
        ConfigError: no such split or OOD source, or a split without a size.
    """
    sizes = published if sizes is None else sizes
    check_splits(splits, SEEDS, sizes)
    for name in ood:
        if name not in ood_sources:
            raise unknown_name("OOD source", name, ood_sources)
    parts: dict[str, list[BagDataset]] = {}
    training = {split: sizes[split] for split in splits if split != "test"}
    if training:
        parts |= _training_bags(read("train"), training, progress)
    if "test" in splits:
        parts["test"] = _test_bags(read("test"), sizes["test"], ood, ood_ratio, read_ood, progress)
    return concatenate([part for split in splits for part in parts[split]])


def _training_bags(pool: Pool, sizes: Mapping[str, int], progress: bool) -> dict[str, list[BagDataset]]:
    parts = {}
    for split, count in sizes.items():
        random = np.random.RandomState(SEEDS[split])
        drawn = draw_bags(random, pool.labels == TARGET, count, doing=f"drawing {split}", progress=progress)
        parts[split] = [drawn_dataset(drawn, pool, TARGET, split=split)]
    return parts


def _test_bags(
    pool: Pool,
    count: int,
    ood: Sequence[str],
    ratio: float,
    read_ood: Callable[[str], tuple[str, Pool]],
    progress: bool,
) -> list[BagDataset]:
    random = np.random.RandomState(SEEDS["test"])
    total = 2 * count if ood else count
    drawn = draw_bags(random, pool.labels == TARGET, total, doing="drawing test", progress=progress)
    state = random.get_state()
    parts = [drawn_dataset(drawn[:count], pool, TARGET, split="test")]
    for name in ood:
        set_name, ood_pool = read_ood(name)
        random.set_state(state)
        replaced = with_ood_instances(random, drawn[count:], len(ood_pool.instances), ratio)
        parts.append(drawn_dataset(replaced, pool, TARGET, split="test", ood_set=set_name, ood_pool=ood_pool))
    return parts
