"""Bags as they are held and handed to a network: a dataset of bags, and a packed batch of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from miue.bags.coords import Coords
from miue.bags.ood_flags import OodFlags
from miue.bags.segments import Segments
from miue.common.errors import DataError


@dataclass(frozen=True)
class BagBatch:
    """Some bags packed into one flat tensor, with their labels where these are known.

    Attributes:
        instances: features (N, D) or images (N, H, W, channels); uint8 images keep their bytes.
        segments: which instance belongs to which bag.
        labels: class of each bag; zero where ``labelled`` is false.
        labelled: whether a bag's label is known.
    """

    instances: Shaped[Tensor, "N *shape"]
    segments: Segments
    labels: Int64[Tensor, "B"]
    labelled: Bool[Tensor, "B"]

    def to(self, device: torch.device | str) -> BagBatch:
        """Return the same batch on ``device``."""
        return BagBatch(
            self.instances.to(device),
            self.segments.to(device),
            self.labels.to(device),
            self.labelled.to(device),
        )


def as_float(instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N *shape"]:
    """Return instances as a network takes them: float32, uint8 images (N, H, W, channels) scaled to [0, 1]."""
    if instances.dtype == torch.uint8 and instances.dim() == 4:
        return instances.to(torch.float32).div_(255)
    return instances if instances.dtype in (torch.float32, torch.float64) else instances.to(torch.float32)


LabelSequence = Sequence[int | np.integer | None] | np.ndarray
"""Class indices from 0, None where unknown."""


@dataclass(frozen=True)
class Labels:
    """Class indices of which some may be unknown.

    Attributes:
        values: class index from 0; zero and without meaning where ``known`` is false.
        known: whether the label is known.
    """

    values: Int64[np.ndarray, "n"]
    known: Bool[np.ndarray, "n"]

    @classmethod
    def unknown(cls, count: int) -> Labels:
        """Return ``count`` unknown labels."""
        return cls(np.zeros(count, np.int64), np.zeros(count, bool))

    @classmethod
    def of(cls, labels: LabelSequence) -> Labels:
        """Return labels from class indices, None standing for an unknown one.

        Raises:
            DataError: a label is negative or not a whole number.
        """
        known = np.array([label is not None for label in labels], bool)
        filled = [0 if label is None else label for label in labels]
        numbers = np.array([one if isinstance(one, int | float | np.number | np.bool_) else -1 for one in filled])
        values = np.nan_to_num(numbers, nan=-1, posinf=-1, neginf=-1).astype(np.int64)
        wrong: np.ndarray = np.flatnonzero((values != numbers) | (values < 0))
        if len(wrong):
            raise DataError(
                item=f"label {wrong[0]}",
                wanted="a class index 0, 1, …, or None where unknown",
                got=repr(labels[int(wrong[0])]),
                fix="number the classes from 0; mark out-of-distribution bags with is_ood, not with a label",
            )
        return cls(values, known)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Labels:
        return Labels(self.values[index], self.known[index])


@runtime_checkable
class InstanceArray(Protocol):
    """What all instances of a dataset are read from, a span at a time: an array, or files behind one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(M, D) or (M, H, W, channels)."""

    @property
    def dtype(self) -> np.dtype:
        """Of the instances."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: Any) -> Any: ...

    def __array__(self, dtype: Any = None) -> np.ndarray: ...


@dataclass(frozen=True)
class BagDataset:
    """Bags over one array of instances, memory-mapped or read from files; subsets share that array.

    Attributes:
        instances: all instances, bag after bag: features (M, D) or images (M, H, W, channels).
        starts: position of each bag's first instance.
        sizes: instances per bag.
        ids: name of each bag, unique.
        labels: class of each bag.
        is_ood: whether a bag holds out-of-distribution instances, as far as that is known.
        splits: "train", "validation", "test" or "" for each bag.
        ood_sets: where a bag's out-of-distribution instances come from, "" for none.
        instance_labels: class of each of the M instances.
        instance_is_ood: whether each of the M instances is out of distribution, as far as that is known.
        coords: position of each of the M instances, None where no bag has any.
        class_names: name of each class.
        patients: whose each bag is, where that is known.
        patch_sizes: side of each bag's patches in level-0 pixels, 0 where unknown.
    """

    instances: InstanceArray
    starts: Int64[np.ndarray, "B"]
    sizes: Int64[np.ndarray, "B"]
    ids: tuple[str, ...]
    labels: Labels
    is_ood: OodFlags
    splits: tuple[str, ...]
    ood_sets: tuple[str, ...]
    instance_labels: Labels
    instance_is_ood: OodFlags
    coords: Coords | None = None
    class_names: tuple[str, ...] = field(default=())
    patients: tuple[str, ...] | None = None
    patch_sizes: Int64[np.ndarray, "B"] | None = None

    @classmethod
    def from_arrays(
        cls,
        bags: Sequence[np.ndarray | Tensor],
        labels: LabelSequence | None = None,
        *,
        ids: Sequence[str] | None = None,
        instance_labels: Sequence[LabelSequence] | None = None,
        is_ood: Sequence[bool | None] | np.ndarray | None = None,
        class_names: Sequence[str] = (),
    ) -> BagDataset:
        """Return a dataset of the given bags, each an array (n, D), (n, H, W) or (n, H, W, channels).

        Args:
            bags: instances of each bag.
            labels: class index of each, None where unknown.
            ids: name of each.
            instance_labels: class index of each instance of each bag.
            is_ood: whether each bag, with all its instances, is out of distribution; None where unknown.
            class_names: name of each class.

        Raises:
            DataError: no bags, an empty bag, bags of different width, bytes beside other numbers, a feature that
                is not finite, a repeated id, fewer names than classes, or not as many labels as bags.

        >>> data = BagDataset.from_arrays([np.ones((3, 2)), np.zeros((1, 2))], labels=[1, 0])
        >>> len(data), data.instance_shape
        (2, (2,))
        """
        arrays = [_bag_array(bag) for bag in bags]
        names = tuple(map(str, ids)) if ids is not None else tuple(f"bag_{i}" for i in range(len(arrays)))
        _check_bags(arrays, names)
        for what, given in (("label", labels), ("id", ids), ("is_ood", is_ood)):
            if given is not None and len(given) != len(arrays):
                raise _count_mismatch(what, len(arrays), len(given))
        sizes = np.array([len(array) for array in arrays], np.int64)
        total = int(sizes.sum())
        known = Labels.unknown(len(arrays)) if labels is None else Labels.of(labels)
        per_instance = Labels.unknown(total)
        if instance_labels is not None:
            given_sizes = [len(bag) for bag in instance_labels]
            if given_sizes != sizes.tolist():
                raise _count_mismatch("list of instance labels", total, sum(given_sizes))
            per_instance = Labels.of([label for bag in instance_labels for label in bag])
        if class_names and known.values.max(initial=0) >= len(class_names):
            raise DataError(
                item="the class names",
                wanted=f"at least {known.values.max() + 1}, one for each class",
                got=str(len(class_names)),
                fix="name all classes, from that of label 0 on",
            )
        ood = OodFlags.unknown(len(arrays)) if is_ood is None else OodFlags.of(is_ood)
        return cls(
            instances=np.concatenate(arrays),
            starts=np.concatenate([[0], sizes.cumsum()[:-1]]).astype(np.int64),
            sizes=sizes,
            ids=names,
            labels=known,
            is_ood=ood,
            splits=("",) * len(arrays),
            ood_sets=tuple("ood" if flag else "" for flag in ood.out_of_distribution),
            instance_labels=per_instance,
            instance_is_ood=ood.repeat(sizes),
            class_names=tuple(class_names),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def instance_shape(self) -> tuple[int, ...]:
        """Shape of one instance: (D,) or (H, W, channels)."""
        return tuple(self.instances.shape[1:])

    @cached_property
    def positions(self) -> Int64[np.ndarray, "n"]:
        """Position in ``instances`` of every instance of these bags, in order."""
        within = np.arange(int(self.sizes.sum())) - np.repeat(self.sizes.cumsum() - self.sizes, self.sizes)
        return np.repeat(self.starts, self.sizes) + within

    @property
    def num_classes(self) -> int:
        """C: named classes, or one more than the highest label, at least two."""
        highest = int(self.labels.values[self.labels.known].max(initial=1))
        return max(len(self.class_names), highest + 1)

    @property
    def without_coords(self) -> tuple[str, ...]:
        """The ids of the bags whose instances have no positions, or not all of them."""
        if self.coords is None:
            return self.ids
        known, spans = self.coords.known, zip(self.ids, self.starts, self.sizes, strict=True)
        return tuple(name for name, start, size in spans if not known[start : start + size].all())

    def subset(self, bags: Sequence[int] | np.ndarray) -> BagDataset:
        """Return the bags at the given positions; the instances are shared, not copied."""
        chosen = np.asarray(bags, np.int64)
        return replace(
            self,
            starts=self.starts[chosen],
            sizes=self.sizes[chosen],
            ids=tuple(self.ids[i] for i in chosen),
            labels=self.labels[chosen],
            is_ood=self.is_ood[chosen],
            splits=tuple(self.splits[i] for i in chosen),
            ood_sets=tuple(self.ood_sets[i] for i in chosen),
            patients=None if self.patients is None else tuple(self.patients[i] for i in chosen),
            patch_sizes=None if self.patch_sizes is None else self.patch_sizes[chosen],
        )

    def split(self, name: str) -> BagDataset:
        """Return the bags of one split.

        Raises:
            DataError: no bag is in that split.
        """
        chosen = [i for i, split in enumerate(self.splits) if split == name]
        if not chosen:
            present = sorted({split for split in self.splits if split})
            raise DataError(
                item=f"split {name!r}",
                wanted=f"one of {', '.join(present)}" if present else "bags that are assigned to splits",
                got="no bag in it",
                fix="choose a split that exists, or assign bags to it",
            )
        return self.subset(chosen)

    def with_classes(self, names: tuple[str, ...]) -> BagDataset:
        """Return these bags with their labels numbered as ``names`` are, which are matched by name.

        Bags without class names keep their numbers.

        Raises:
            DataError: a label of a class that is not among ``names``.
        """
        if self.class_names == names:
            return self
        theirs = self.class_names or tuple(str(c) for c in range(self.num_classes))
        known = names if self.class_names else theirs[: len(names)]
        number = np.array([known.index(name) if name in known else -1 for name in theirs])
        renumbered = []
        for labels in (self.labels, self.instance_labels):
            values = np.where(labels.known, number[np.where(labels.known, labels.values, 0)], 0)
            if len(values) and values.min() < 0:
                raise DataError(
                    item=f"class {theirs[labels.values[values.argmin()]]!r} of the bags",
                    wanted=f"one of the classes {', '.join(names)}",
                    got="another",
                    fix="name classes as they were named in training, or take these labels out",
                )
            renumbered.append(Labels(values, labels.known))
        return replace(self, labels=renumbered[0], instance_labels=renumbered[1], class_names=names)

    def batch(self, bags: Sequence[int] | np.ndarray) -> BagBatch:
        """Read the bags at the given positions and pack them.

        Raises:
            DataError: a feature is NaN or infinite.
        """
        chosen = np.asarray(bags, np.int64)
        spans = zip(self.starts[chosen], self.sizes[chosen], strict=True)
        parts = [self.instances[start : start + size] for start, size in spans]
        instances = torch.from_numpy(np.concatenate(parts))
        if instances.is_floating_point() and not instances.sum(dtype=torch.float64).isfinite():
            for bag, part in zip(chosen, parts, strict=True):
                check_bag(self.ids[bag], part, self.instance_shape)
        labels = self.labels[chosen]
        return BagBatch(
            instances,
            Segments(torch.from_numpy(self.sizes[chosen])),
            torch.from_numpy(labels.values),
            torch.from_numpy(labels.known),
        )


def _bag_array(bag: np.ndarray | Tensor) -> np.ndarray:
    if isinstance(bag, Tensor):
        bag = bag.detach().cpu()
        array = (bag.float() if bag.dtype == torch.bfloat16 else bag).numpy()
    else:
        array = np.asarray(bag)
    if array.dtype != np.uint8 and array.dtype != np.float16:
        array = array.astype(np.float32, copy=False)
    return array[..., None] if array.ndim == 3 else array


def _check_bags(arrays: list[np.ndarray], ids: tuple[str, ...]) -> None:
    if not arrays:
        raise DataError(item="the list of bags", wanted="at least one bag", got="none", fix="pass some bags")
    if len(set(ids)) < len(ids):
        repeated = next(name for name in ids if ids.count(name) > 1)
        raise DataError(
            item=f"bag {repeated!r}",
            wanted="a unique id",
            got="the same id twice",
            fix="rename one of the two",
        )
    for name, array in zip(ids, arrays, strict=True):
        check_bag(name, array, arrays[0].shape[1:])
        if (array.dtype == np.uint8) != (arrays[0].dtype == np.uint8):
            raise DataError(
                item=f"bag {name!r}",
                wanted=f"{arrays[0].dtype} as in the bags before it",
                got=str(array.dtype),
                fix="give all images as bytes from 0 to 255, or all as numbers on one scale",
            )


def check_bag(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise unless ``array`` is a usable bag whose instances have the given shape.

    Raises:
        DataError: not (n, D) or (n, H, W, channels), empty, another shape, or a value that is not finite.
    """
    if array.ndim not in (2, 4):
        raise DataError(
            item=f"bag {name!r}",
            wanted="an array (n, D) of features or (n, H, W[, channels]) of images",
            got=f"shape {array.shape}",
            fix="reshape it, one row per instance",
        )
    if not len(array):
        raise DataError(
            item=f"bag {name!r}",
            wanted="at least one instance",
            got="none",
            fix="drop it or give it instances",
        )
    if array.shape[1:] != shape:
        raise DataError(
            item=f"bag {name!r}",
            wanted=f"instances of shape {shape} as in the bags before it",
            got=str(array.shape[1:]),
            fix="use one feature extractor for all bags",
        )
    if array.dtype != np.uint8:
        finite = np.isfinite(array).reshape(len(array), -1).all(1)
        if not finite.all():
            rows = np.flatnonzero(~finite)
            raise DataError(
                item=f"bag {name!r}, row {rows[0]}",
                wanted="finite features",
                got=f"NaN or infinity in {len(rows)} of {len(array)} rows",
                fix="extract these features again, or drop the rows",
            )


def _count_mismatch(what: str, wanted: int, got: int) -> DataError:
    return DataError(
        item=f"the given {what}s",
        wanted=f"{wanted}, one for each",
        got=str(got),
        fix="pass as many as there are, None where unknown",
    )
