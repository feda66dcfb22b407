"""Drawing bags from a dataset of single instances, number for number as the published experiments did.

Reference: Liu & Ji 2024, Appendix D.1, and the published code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int64, Shaped
from typing_extensions import TypedDict

from miue.bags import BagDataset, OodFlags, concatenate
from miue.common.errors import ConfigError, unknown_name
from miue.common.text import tracked

TARGET = 9
SEEDS = {"train": 98, "validation": 97, "test": 96}


@dataclass(frozen=True)
class DrawnBag:
    """One bag as positions in its sources.

    Attributes:
        members: position of each instance, in the in-distribution source or in the other one.
        is_ood: whether an instance comes from the other source.
    """

    members: Int64[np.ndarray, "n"]
    is_ood: Bool[np.ndarray, "n"]


def check_splits(splits: Sequence[str], known: Collection[str], sizes: Collection[str]) -> None:
    """Raise unless there are splits to draw, each one that there is, of a known number of bags.

    Args:
        splits: those to draw.
        known: those that there are.
        sizes: those whose number of bags is known.

    Raises:
        ConfigError: none, one that there is not, or one without a size.
    """
    for split in splits:
        if split not in known:
            raise unknown_name("split", split, known)
    without = next((split for split in splits if split not in sizes), None)
    if without is not None or not splits:
        raise ConfigError(
            item="sizes" if splits else "splits",
            wanted=f"the number of bags of split {without!r}" if splits else f"some of {', '.join(known)}",
            got=f"that of {', '.join(sizes) or 'none'}" if splits else "none",
            fix="name it in sizes, or leave the split out" if splits else "name the splits to draw",
        )


def draw_bags(
    random: np.random.RandomState,
    is_positive: Bool[np.ndarray, "m"],
    count: int,
    *,
    mean_size: float = 10.0,
    size_deviation: float = 2.0,
    doing: str = "drawing",
    progress: bool = False,
) -> list[DrawnBag]:
    """Draw ``count`` bags, every other one positive, the first included.

    Args:
        random: the only source of randomness; its state moves on.
        is_positive: whether each instance of the source is of the positive class.
        count: number of bags.
        mean_size: mean of the normal distribution of bag sizes.
        size_deviation: its standard deviation.
        doing: what the bar says.
        progress: show a bar.
    """
    positives, negatives = np.flatnonzero(is_positive), np.flatnonzero(~is_positive)
    bags = []
    for number in tracked(range(count), doing, shown=progress):
        size = max(1, int(random.normal(mean_size, size_deviation, 1)[0]))
        if number % 2 == 0:
            num_positive = max(1, int(size * random.uniform(0.0, 1.0)))
            chosen = np.concatenate(
                [
                    random.choice(positives, num_positive, replace=False),
                    random.choice(negatives, size - num_positive, replace=False),
                ]
            )
            chosen = chosen[random.permutation(size)]
        else:
            chosen = random.choice(negatives, size, replace=False)
        bags.append(DrawnBag(chosen.astype(np.int64), np.zeros(size, bool)))
    return bags


def with_ood_instances(
    random: np.random.RandomState, bags: Sequence[DrawnBag], num_ood: int, ratio: float
) -> list[DrawnBag]:
    """Replace a share of each bag's instances by OOD instances, from the last bag to the first.

    Args:
        random: the only source of randomness; its state moves on.
        bags: bags as drawn.
        num_ood: number of instances in the OOD source.
        ratio: share of each bag that is replaced, at least one instance; 0 replaces none.
    """
    if ratio == 0:
        return list(bags)
    replaced = []
    for bag in reversed(bags):
        size = len(bag.members)
        count = max(1, int(ratio * size))
        drawn = random.choice(num_ood, count, replace=False)
        positions = random.permutation(size)[:count]
        members, is_ood = bag.members.copy(), bag.is_ood.copy()
        members[positions], is_ood[positions] = drawn, True
        replaced.append(DrawnBag(members, is_ood))
    return replaced[::-1]


@dataclass(frozen=True)
class Pool:
    """Single instances to draw from.

    Attributes:
        instances: features or images.
        labels: class of each instance in its source (a digit, say).
    """

    instances: Shaped[np.ndarray, "m *shape"]
    labels: Int64[np.ndarray, "m"]


def drawn_dataset(
    bags: Sequence[DrawnBag],
    pool: Pool,
    target: int,
    *,
    split: str,
    ood_set: str = "",
    ood_pool: Pool | None = None,
) -> BagDataset:
    """Return drawn bags as a dataset with labels of bags and instances, and with what is out of distribution.

    A bag is positive (1) where it holds an in-distribution instance of class ``target``; its label is
    unknown where it holds no in-distribution instance at all.

    Args:
        bags: positions of the instances.
        pool: the in-distribution source.
        target: the positive class.
        split: name of the split, also the prefix of the ids.
        ood_set: name of the OOD source.
        ood_pool: the OOD source, needed where a bag contains OOD instances.
    """
    arrays, labels, instance_labels, names = [], [], [], []
    for number, bag in enumerate(bags):
        source = pool.instances[np.where(bag.is_ood, 0, bag.members)]
        positive = ~bag.is_ood & (pool.labels[np.where(bag.is_ood, 0, bag.members)] == target)
        if ood_pool is not None:
            source[bag.is_ood] = ood_pool.instances[bag.members[bag.is_ood]]
        arrays.append(source)
        labels.append(None if bag.is_ood.all() else int(positive.any()))
        instance_labels.append([None if o else int(p) for o, p in zip(bag.is_ood, positive, strict=True)])
        names.append(f"{split}_{ood_set}_{number:05d}" if ood_set else f"{split}_{number:05d}")
    is_ood = np.array([bag.is_ood.any() for bag in bags])
    dataset = BagDataset.from_arrays(arrays, labels, ids=names, instance_labels=instance_labels, is_ood=is_ood)
    of_instances = np.concatenate([bag.is_ood for bag in bags])
    return replace(
        dataset,
        splits=(split,) * len(bags),
        ood_sets=tuple(ood_set if flag else "" for flag in is_ood),
        instance_is_ood=OodFlags(of_instances, np.ones_like(of_instances)),
        class_names=("negative", "positive"),
    )


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
