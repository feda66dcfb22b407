"""A dataset of bags: one array of instances, and what is known of each bag and instance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int64

from miue.bags.arrays import InstanceArray, check_bag
from miue.bags.cells import is_missing, known_text, one_form
from miue.bags.classes import LabelSequence, names_or_numbers
from miue.bags.columns import ItemColumns
from miue.bags.from_python import fields_of_anndata, fields_of_arrays, fields_of_frame, fields_of_rows
from miue.bags.known import Coords, Labels, OodFlags, Outcomes, Slides
from miue.bags.rows import plain_values, read_states
from miue.common.errors import ConfigError, DataError, noting_when, unknown_name, wrong_type
from miue.common.text import PrintsAsTable, ResultTable
from miue.common.values import several
from miue.targets import TARGETS, IntervalTarget, MultiLabel, Target, intervals_for

if TYPE_CHECKING:
    import torch

    from miue.bags.segments import BagBatch

CLASSES_SHOWN = 6
NO_YES = ("no", "yes")
"""The classes of one of several labels."""
MAKE_DATASET = "make them of arrays with miue.BagDataset.from_arrays(bags, labels)"


def check_dataset(bags: object, item: str = "the bags", fix: str = MAKE_DATASET) -> None:
    """Raise unless ``bags`` are a dataset.

    Args:
        bags: the argument.
        item: what it is called.
        fix: what to do where it is neither a path nor bags that were loaded.

    Raises:
        ConfigError: a path, bags with what was left out of them, arrays or anything else.
    """
    if isinstance(bags, BagDataset):
        return
    if isinstance(bags, str | Path):
        fix = f"open it: miue.load_bags({str(bags)!r}, labels=...).bags"
    elif isinstance(getattr(bags, "bags", None), BagDataset):
        fix = "pass its attribute 'bags'"
    raise wrong_type(item, "a BagDataset", bags, fix)


@dataclass(frozen=True, eq=False, repr=False)
class BagDataset(PrintsAsTable):
    """Bags over one array of instances, memory-mapped or read from files; subsets share that array.

    Attributes:
        instances: all instances, bag after bag: features (M, D) or images (M, H, W, channels).
        starts: position of each bag's first instance.
        sizes: instances per bag.
        ids: name of each bag, unique.
        labels: class of each bag.
        is_ood: whether a bag holds out-of-distribution instances, as far as that is known.
        splits: "train", "validation", "test", "calibration" or "" for each bag.
        ood_sets: where a bag's out-of-distribution instances come from, "" for none.
        instance_labels: class of each of the M instances.
        instance_is_ood: whether each of the M instances is out of distribution, as far as that is known.
        coords: position of each of the M instances, None where no bag has any.
        class_names: name of each class.
        patients: whose each bag is, where that is known.
        patch_sizes: side of each bag's patches in level-0 pixels, 0 where unknown.
        statistics: of the image of each of the M instances, (M, S), where features were stored with them.
        extractor: name of the network that made the features, "" where it is unknown.
        patch_scales: size and resolution of the pictures that features are of, such as "256 px of 0.5 µm"; several
            where bags differ, none where it is unknown.
        feature_names: of the D features, where a table or data frame names its columns; else none.
        target: what labels mean where they are more than classes.
        outcomes: numbers that the labels are intervals of, of such a target; else None.
        slides: that each of the M instances is of, where bags hold several (``merge_bags``).
        bag_per: what all slides of one bag share, such as "patient"; "" where a bag is one of its own.
        encoders: how many of the D features are of each patch encoder, in their order, where several were joined
            (``join_features``).
        covariates: text of each bag by the name of each, "" where unknown (``with_covariates``).
        encoded_covariates: numbers that follow the features of each instance in a batch, as a model reads them.
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
    statistics: InstanceArray | None = None
    extractor: str = ""
    patch_scales: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    target: Target | None = None
    outcomes: Outcomes | None = None
    slides: Slides | None = None
    bag_per: str = ""
    encoders: Mapping[str, int] = field(default_factory=dict)
    covariates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    encoded_covariates: Float32[np.ndarray, "B K"] | None = None

    checked_apart = True  # by check_dataset

    @classmethod
    def of(
        cls,
        bags: BagDataset | Sequence[Any],
        labels: LabelSequence | None = None,
        *,
        known_classes: Sequence[str] = (),
    ) -> BagDataset:
        """Return bags that may be a dataset, which has its own labels, or arrays, as ``from_arrays`` takes them.

        Args:
            bags: a dataset or arrays.
            labels: of arrays.
            known_classes: the names of the classes, where every label is one of them, such as those of a model.

        Raises:
            ConfigError: labels beside a dataset, or neither a dataset nor arrays.
            DataError: arrays or labels that cannot become bags.
        """
        if not isinstance(bags, BagDataset) and (listed := several(bags)) is not None:
            values = () if labels is None else plain_values(labels)
            names = known_classes if all(is_missing(value) or value in known_classes for value in values) else ()
            return cls.from_arrays(listed, None if labels is None else values, class_names=names)
        check_dataset(bags)
        assert isinstance(bags, BagDataset)
        if labels is not None:
            raise ConfigError(
                item="labels",
                wanted="None beside a dataset, which has its own",
                got=f"a value of type {type(labels).__name__}",
                fix="pass bags as arrays, or put the labels into the dataset",
            )
        return bags

    @classmethod
    def from_arrays(
        cls,
        bags: Sequence[Any],
        labels: LabelSequence | None = None,
        *,
        ids: Sequence[str] | None = None,
        instance_labels: Sequence[LabelSequence] | None = None,
        is_ood: Collection[Any] | None = None,
        patients: Collection[Any] | None = None,
        coords: Sequence[np.ndarray] | None = None,
        class_names: Sequence[str] = (),
    ) -> BagDataset:
        """Return a dataset of the given bags, each an array (n, D), (n, H, W) or (n, H, W, channels).

        Args:
            bags: instances of each bag: an array, a tensor, or a data frame of features.
            labels: class index of each, or the name of its class; None where unknown.
            ids: name of each.
            instance_labels: class of each instance of each bag, likewise.
            is_ood: whether each bag, with all its instances, is out of distribution; None where unknown.
            patients: the patient of each bag, None where unknown.
            coords: positions (n, 2) of each bag's instances, in level-0 pixels.
            class_names: name of each class, the negative one first; sorted, numbers by value, if labels are names
                and these are not specified.

        Raises:
            DataError: no bags, an empty bag, bags of different width or columns, bytes beside other numbers, a
                feature that is not finite, a repeated id, fewer names than classes, names that are nearly the
                same or stand for nothing, or not as many labels as bags.

        >>> data = BagDataset.from_arrays([np.ones((3, 2)), np.zeros((1, 2))], labels=[1, 0])
        >>> len(data), data.instance_shape
        (2, (2,))
        """
        fields = fields_of_arrays(
            bags,
            labels,
            ids=ids,
            instance_labels=instance_labels,
            is_ood=is_ood,
            patients=patients,
            coords=coords,
            class_names=class_names,
        )
        return cls.packed(**fields)

    @classmethod
    def from_tensors(
        cls,
        instances: Any,
        labels: LabelSequence | None = None,
        *,
        bag_ids: Collection[Any] | None = None,
        patients: Collection[Any] | None = None,
        coords: Any = None,
        class_names: Sequence[str] = (),
    ) -> BagDataset:
        """Return bags from a list of tensors, one for each bag, or from one tensor and the bag of each row.

        These are the two forms that ``MILUncertaintyClassifier`` takes. Bags that ``bag_ids`` names are in the
        order of their first appearance; their rows need not be adjacent.

        Args:
            instances: a list of tensors or arrays (n, D) or (n, H, W[, channels]); with ``bag_ids`` one (M, …).
            labels: class index or name of each bag, None where unknown; with ``bag_ids`` one for each row.
            bag_ids: the bag of each row.
            patients: of each bag, None where unknown; with ``bag_ids`` one for each row.
            coords: positions in level-0 pixels, as the instances: a list, or one array (M, 2).
            class_names: name of each class, the negative one first; sorted if not specified.

        Raises:
            DataError: as ``from_arrays`` does; rows of one bag that differ in label or patient.

        >>> import torch
        >>> rows = torch.arange(6.0).reshape(3, 2)
        >>> BagDataset.from_tensors(rows, ["yes", "no", "yes"], bag_ids=["b", "a", "b"]).class_names
        ('no', 'yes')
        """
        if bag_ids is None:
            return cls.from_arrays(instances, labels, patients=patients, coords=coords, class_names=class_names)
        fields = fields_of_rows(instances, bag_ids, labels, patients=patients, coords=coords)
        return cls.packed(**fields_of_arrays(**fields, class_names=class_names))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        bag: str,
        label: str | None = None,
        patient: str | None = None,
        features: Sequence[str] | None = None,
        coords: tuple[str, str] | None = None,
        class_names: Sequence[str] = (),
    ) -> BagDataset:
        """Return bags from a data frame with one row per instance (pandas, polars, or a dictionary of columns).

        Args:
            frame: columns of one length each.
            bag: the column that names each row's bag.
            label: the column of the bag's class, the same in all rows of a bag.
            patient: the column of the bag's patient, likewise.
            features: the columns to learn from; if None all others that hold numbers, as of a table: but for those
                of another meaning by their names, such as "split", "x" or a pandas index. The rest is logged.
            coords: the columns of x and y, in level-0 pixels.
            class_names: name of each class, the negative one first; sorted if not specified.

        Raises:
            DataError: a column that is not there, no columns of features, features that are no numbers, or rows of
                one bag that differ in label or patient.

        >>> frame = {"slide": ["a", "a", "b"], "tumor": ["no", "no", "yes"], "area": [1.0, 2.0, 3.0]}
        >>> BagDataset.from_frame(frame, bag="slide", label="tumor").class_names
        ('no', 'yes')
        """
        fields = fields_of_frame(frame, bag, label, patient, features, coords)
        return cls.packed(**fields_of_arrays(**fields, class_names=class_names))

    @classmethod
    def from_anndata(
        cls,
        data: Any,
        *,
        bag: str,
        label: str | None = None,
        patient: str | None = None,
        layer: str | None = None,
        obsm: str | None = None,
        spatial: str | None = None,
        class_names: Sequence[str] = (),
    ) -> BagDataset:
        """Return bags from an AnnData object: its observations (cells, spots, tiles) are the instances.

        Args:
            data: an ``anndata.AnnData``; X, a layer or an entry of obsm may be sparse, and is made dense.
            bag: the column of ``obs`` that names each observation's bag, such as the sample.
            label: the column of ``obs`` with the bag's class, the same in all of a bag.
            patient: the column of ``obs`` with the bag's patient, likewise.
            layer: features from ``data.layers`` in place of X.
            obsm: features from ``data.obsm`` in place of X, such as "X_pca".
            spatial: the entry of ``data.obsm`` with x and y of each observation, such as "spatial".
            class_names: name of each class, the negative one first; sorted if not specified.

        Raises:
            DataError: no AnnData, a column or an entry that is not there, or features that are no numbers.
            ConfigError: a layer and an entry of obsm both.
        """
        fields = fields_of_anndata(data, bag, label, patient, layer, obsm, spatial)
        return cls.packed(**fields_of_arrays(**fields, class_names=class_names))

    @classmethod
    def packed(
        cls, instances: InstanceArray, sizes: Int64[np.ndarray, "B"], ids: Sequence[str], **columns: Any
    ) -> BagDataset:
        """Return bags whose instances follow each other in one array; what is not specified is unknown.

        Args:
            instances: of all bags, bag after bag.
            sizes: instances per bag.
            ids: name of each bag, unique.
            columns: further fields of a dataset. Instances are out of distribution as their bags are, where
                ``instance_is_ood`` says nothing else.
        """
        count, total = len(ids), int(sizes.sum())
        is_ood = columns.pop("is_ood", None) or OodFlags.unknown(count)
        unknown = {
            "starts": (sizes.cumsum() - sizes).astype(np.int64),
            "labels": Labels.unknown(count),
            "splits": ("",) * count,
            "ood_sets": ("",) * count,
            "instance_labels": Labels.unknown(total),
            "instance_is_ood": is_ood.repeat(sizes),
        }
        return cls(
            instances=instances,
            sizes=sizes,
            ids=tuple(ids),
            is_ood=is_ood,
            **{**unknown, **columns},
        )

    def __len__(self) -> int:
        return len(self.ids)

    def tables(self) -> tuple[ResultTable]:
        """Return the bags of each class, or each of several labels, and the instances of each split."""
        of_split, every = np.array(self.splits, object), np.ones(len(self), bool)
        rows_of_split = {name or "no split": of_split == name for name in dict.fromkeys(self.splits)}
        if len(rows_of_split) != 1:
            rows_of_split["all"] = every
        parts = {} if self.target is None else self.target.parts()
        values, known = self.labels.values, self.labels.known
        class_names = tuple(parts) or names_or_numbers(self.class_names, self.num_classes)
        names = class_names[:CLASSES_SHOWN]
        of_class = (known & (parts[name][values] == 1 if parts else values == k) for k, name in enumerate(names))
        counted = [every, *of_class, ~known, self.is_ood.out_of_distribution]
        rows = tuple(
            (name, *(f"{(rows & some).sum():,}" for some in counted), f"{self.sizes[rows].sum():,}")
            for name, rows in rows_of_split.items()
        )
        more = len(class_names) - len(names)
        note = f"instances of shape {' × '.join(map(str, self.instance_shape))}"
        heading = ("split", "bags", *names, "unlabeled", "out of distribution", "instances")
        return (ResultTable(heading, rows, (note + f"; {more} more classes" * bool(more),)),)

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
    def bag_of_instance(self) -> Int64[np.ndarray, "n"]:
        """Position of the bag of every instance of these bags, in order."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def own_instance_labels(self) -> Labels:
        """Class of every instance of these bags, in order: ``instance_labels`` are those of other bags, too."""
        return self.instance_labels[self.positions]

    @property
    def columns(self) -> ItemColumns:
        """What is known of each bag."""
        return ItemColumns(
            labels=self.labels,
            is_ood=self.is_ood,
            ood_sets=np.array(self.ood_sets, object),
            patients=None if self.patients is None else np.array(self.patients, object),
            patch_sizes=self.patch_sizes,
            outcomes=self.outcomes,
        )

    @property
    def instance_columns(self) -> ItemColumns:
        """What is known of each instance of these bags, in their order."""
        rows, sets = self.positions, np.repeat(np.array(self.ood_sets, object), self.sizes)
        is_ood = self.instance_is_ood[rows]
        return ItemColumns(
            labels=self.own_instance_labels,
            is_ood=is_ood,
            ood_sets=np.where(is_ood.out_of_distribution, sets, "").astype(object),
            coords=None if self.coords is None else self.coords[rows],
            slides=None if self.slides is None else self.slides[rows],
        )

    def all_instance_columns(self) -> ItemColumns:
        """Return what is known of each of the M instances, of bags or not; sets are those of bags."""
        nothing = np.full(len(self.instance_labels), "", object)
        labels, is_ood = self.instance_labels, self.instance_is_ood
        return ItemColumns(labels, is_ood, nothing, coords=self.coords, slides=self.slides)

    @property
    def num_classes(self) -> int:
        """C: named classes, or one more than the highest label, at least two."""
        return max(len(self.class_names), self.labels.num_classes, 2)

    @property
    def strata(self) -> Int64[np.ndarray, "B"]:
        """The group of each bag whose shares splits keep: its class, or what its target says of it."""
        return self._strata[0]

    @property
    def stratum_names(self) -> tuple[str, ...]:
        """What the groups of ``strata`` are called: classes by name or number."""
        return self._strata[1]

    @cached_property
    def _strata(self) -> tuple[Int64[np.ndarray, "B"], tuple[str, ...]]:
        values, known = self.labels.values, self.labels.known
        if self.target is None or (isinstance(self.target, IntervalTarget) and self.outcomes is None):
            return values, names_or_numbers(self.class_names, self.num_classes)
        observed = np.ones(len(self), bool) if self.outcomes is None else self.outcomes.observed
        of_known, names = self.target.strata(values[known], observed[known])
        strata = np.zeros(len(self), np.int64)
        strata[known] = of_known
        return strata, names

    @cached_property
    def patient_groups(self) -> tuple[str, ...]:
        """The patient of each bag, its own name where that is unknown: bags of one group belong together."""
        patients = self.ids if self.patients is None else self.patients
        return tuple(patient or name for patient, name in zip(patients, self.ids, strict=True))

    def covariate(self, name: str) -> dict[str, str]:
        """Return the text of each bag for a covariate by the name of the bag, "" where it is unknown."""
        return dict(zip(self.ids, map(known_text, self.covariates[name]), strict=True))

    @property
    def without_coords(self) -> tuple[str, ...]:
        """The ids of the bags whose instances have no positions, or not all of them."""
        if self.coords is None:
            return self.ids
        known, spans = self.coords.known, zip(self.ids, self.starts, self.sizes, strict=True)
        return tuple(name for name, start, size in spans if not known[start : start + size].all())

    def subset(self, bags: Sequence[int] | np.ndarray) -> BagDataset:
        """Return the bags at the given positions, or where a mask is true; the instances are shared, not copied.

        Raises:
            DataError: a mask that is not of all bags, or positions that are no whole numbers, or of no bag.
        """
        listed = several(bags)
        chosen = np.asarray(bags if listed is None else listed)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            chosen = np.flatnonzero(chosen)
        elif chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
            raise DataError(
                item="the positions of bags",
                wanted=f"a list of whole numbers, or a mask of {len(self):,} bags",
                got=f"{chosen.dtype} of shape {chosen.shape}",
                fix="pass the positions of the bags to keep",
            )
        chosen = chosen.astype(np.int64)
        beyond = chosen[(chosen < -len(self)) | (chosen >= len(self))]
        if len(beyond):
            raise DataError(
                item="the positions of bags",
                wanted=f"positions from 0 to {len(self) - 1:,}",
                got=str(beyond[0]),
                fix="pass the positions of the bags to keep",
            )
        return replace(
            self,
            starts=self.starts[chosen],
            sizes=self.sizes[chosen],
            ids=tuple(self.ids[i] for i in chosen),
            splits=tuple(self.splits[i] for i in chosen),
            covariates={name: tuple(cells[i] for i in chosen) for name, cells in self.covariates.items()},
            encoded_covariates=None if self.encoded_covariates is None else self.encoded_covariates[chosen],
            **bag_fields(self.columns.subset(chosen)),
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

        Bags without class names keep their numbers. Instances of the shared array that are in none of these bags
        lose a label of another class.

        Raises:
            DataError: a label, of a bag or of one of its instances, of a class that is not among ``names``.
        """
        if self.class_names == names:
            return self
        count = max(self.num_classes, self.instance_labels.num_classes)
        theirs = names_or_numbers(self.class_names, count)
        in_order = names if self.class_names else theirs[: len(names)]
        known = {one_form(name): number for number, name in enumerate(in_order)}
        number = np.array([known.get(one_form(name), -1) for name in theirs], np.int64)
        labels, instance_labels = self.labels.renumbered(number), self.instance_labels.renumbered(number)
        lost = self.labels.values[self.labels.known & ~labels.known]
        lost_anywhere = self.instance_labels.known & ~instance_labels.known
        if not len(lost) and lost_anywhere.any():
            lost = self.instance_labels.values[self.positions][lost_anywhere[self.positions]]
        if len(lost):
            raise DataError(
                item=f"class {theirs[lost[0]]!r} of the bags",
                wanted=f"one of the classes {', '.join(names)}",
                got="another",
                fix="name classes as they were named in training, or take these labels out",
            )
        return replace(self, labels=labels, instance_labels=instance_labels, class_names=names)

    @property
    def is_censored(self) -> bool:
        """Whether some labels are lower bounds, as times without an event are."""
        return self.outcomes is not None and not bool(self.outcomes.observed.all())

    def with_outcomes(
        self,
        values: Collection[Any],
        observed: Collection[Any] | None = None,
        *,
        task: str = "regression",
        intervals: int | None = None,
    ) -> BagDataset:
        """Return these bags with numbers for labels.

        Args:
            values: one of each bag, None or NaN where unknown: times, where the task is survival.
            observed: false where a time is the end of observation, without an event.
            task: "regression" or "survival".
            intervals: how many a model predicts the probability of, 2 to 10 by the number of labels if None;
                training draws them anew from its own bags.

        Raises:
            DataError: not one number for each bag, or numbers that are no such labels.
            ConfigError: another task.

        >>> data = BagDataset.from_arrays([np.ones((2, 1))] * 3).with_outcomes([1.5, 2, None], intervals=2)
        >>> data.class_names, list(data.labels)
        (('below 2', '2 and above'), [0, 1, None])
        """
        outcomes = Outcomes.of(values, observed)
        if len(outcomes) != len(self):
            wanted, got = f"{len(self):,} numbers, one for each bag", f"{len(outcomes):,}"
            raise DataError(item="the outcomes", wanted=wanted, got=got, fix="pass None where a label is unknown")
        kinds = {name: kind for name, kind in TARGETS.items() if issubclass(kind, IntervalTarget)}
        if task not in kinds:
            raise unknown_name("task", task, list(kinds))
        return replace(self, outcomes=outcomes).with_intervals(kinds[task], intervals)

    def with_intervals(self, kind: type[IntervalTarget], intervals: int | None = None) -> BagDataset:
        """Return these bags with a target that is fitted to their outcomes.

        Raises:
            DataError: outcomes that are no such labels.
        """
        assert self.outcomes is not None
        known = self.outcomes[self.outcomes.known]
        count = intervals or intervals_for(int(known.observed.sum()))
        return self.with_target(kind.fit(known.values, known.observed, count))

    def with_own_intervals(self, intervals: int | None = None) -> BagDataset:
        """Return these bags with intervals fitted to their labels alone; where labels are none, as they are.

        Args:
            intervals: how many; as many as before if None.
        """
        if not isinstance(self.target, IntervalTarget) or self.outcomes is None:
            return self
        return self.with_intervals(type(self.target), intervals or len(self.target.class_names))

    def with_target(self, target: Target) -> BagDataset:
        """Return these bags with labels of the classes of a target; bags without outcomes keep their classes."""
        if not isinstance(target, IntervalTarget) or self.outcomes is None:
            return replace(self, target=target).with_classes(target.class_names)
        known = self.outcomes.known
        labels = Labels(np.where(known, target.classes_of(self.outcomes.values), 0), known)
        return replace(self, labels=labels, class_names=target.class_names, target=target)

    def with_label_sets(self, values: Any, names: Sequence[str]) -> BagDataset:
        """Return these bags with several labels each, of which each has a model of its own: see ``by_label``.

        Args:
            values: of each bag and label 1 or 0, None or NaN where unknown, (B, K).
            names: of the K labels.

        Raises:
            DataError: other values, another shape, or names that are no names of labels.

        >>> bags = BagDataset.from_arrays([np.ones((1, 2))] * 3)
        >>> bags = bags.with_label_sets([[1, 1], [0, None], [None, None]], ["ER", "HER2"])
        >>> [bags.class_names[label] for label in bags.labels if label is not None]
        ['ER;HER2', 'HER2?']
        >>> {name: list(one.labels) for name, one in bags.by_label().items()}
        {'ER': [1, 0, None], 'HER2': [1, None, None]}
        """
        target, classes = MultiLabel.of(tuple(names), read_states(values, len(self), len(names)))
        labels = Labels(classes.clip(0), classes >= 0)
        return replace(self, labels=labels, class_names=target.class_names, target=target)

    def by_label(self) -> dict[str, BagDataset]:
        """Return these bags with each of several labels by itself, of the classes no and yes; {} of one label."""
        return {name: self.of_label(name) for name in ({} if self.target is None else self.target.parts())}

    def of_label(self, name: str) -> BagDataset:
        """Return these bags with one of several labels, which is unknown where nothing is said of it."""
        parts = {} if self.target is None else self.target.parts()
        unknown = np.full(max(self.num_classes, self.instance_labels.num_classes), -1)
        number = parts.get(name, unknown)
        return replace(
            self,
            labels=self.labels.renumbered(number),
            instance_labels=self.instance_labels.renumbered(number),
            class_names=NO_YES,
            target=None,
        )

    def batch(
        self,
        bags: Sequence[int] | np.ndarray,
        *,
        statistics: bool = False,
        rows: Sequence[Int64[np.ndarray, "_"] | None] | None = None,
    ) -> BagBatch:
        """Read the bags at the given positions and pack them, row after row; a single bag in memory is not copied.

        Args:
            bags: positions.
            statistics: read also the stored image statistics, where there are any.
            rows: which instances of each of these bags are read, in order; None for all.

        Raises:
            DataError: a feature is NaN or infinite.
        """
        import torch

        from miue.bags.segments import BagBatch, Segments

        chosen = np.asarray(bags, np.int64)
        sizes = self.sizes[chosen]
        if rows is not None:
            some = [size if own is None else len(own) for own, size in zip(rows, sizes.tolist(), strict=True)]
            sizes = np.array(some, np.int64)
        segments = Segments(torch.from_numpy(sizes))
        with noting_when(lambda: f"in reading {segments.in_words()}, {self.ids[chosen[0]]!r} first"):
            parts = self._read(self.instances, chosen, rows)
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
            if self.encoded_covariates is not None:
                whole = np.concatenate([whole, np.repeat(self.encoded_covariates[chosen], sizes, axis=0)], axis=1)
            is_plain = whole.flags.writeable and whole.flags.c_contiguous  # results and seeds depend on no layout
            instances = torch.from_numpy(whole if is_plain else whole.copy())
        if instances.is_floating_point() and not torch.stack(instances.aminmax()).isfinite().all():
            for bag, part in zip(chosen, self._read(self.instances, chosen), strict=True):
                check_bag(self.ids[bag], part, self.instance_shape)
        labels = self.labels[chosen]
        return BagBatch(
            instances,
            segments,
            torch.from_numpy(labels.values),
            torch.from_numpy(labels.known),
            self._statistics(chosen, rows) if statistics else None,
            None if self.outcomes is None else torch.from_numpy(self.outcomes[chosen].observed),
        )

    def _read(
        self,
        array: InstanceArray,
        chosen: Int64[np.ndarray, "b"],
        rows: Sequence[Int64[np.ndarray, "_"] | None] | None = None,
    ) -> list[np.ndarray]:
        """Return the rows of some bags in an array of all instances, or those of each that ``rows`` names."""
        spans = zip(self.starts[chosen], self.sizes[chosen], rows or [None] * len(chosen), strict=True)
        return [array[start : start + size] if own is None else array[start + own] for start, size, own in spans]

    def _statistics(
        self, chosen: Int64[np.ndarray, "b"], rows: Sequence[Int64[np.ndarray, "_"] | None] | None
    ) -> torch.Tensor | None:
        """Return the stored image statistics of the instances of some bags."""
        if self.statistics is None:
            return None
        parts = [np.asarray(part, np.float32) for part in self._read(self.statistics, chosen, rows)]
        for bag, part in zip(chosen, parts, strict=True):
            if not np.isfinite(part).all():
                raise DataError(
                    item=f"image statistics of bag {self.ids[bag]!r}",
                    wanted="finite numbers",
                    got="NaN or infinity",
                    fix="tile that slide again with 'miue data tile'",
                )
        import torch

        return torch.from_numpy(np.concatenate(parts))


def bag_fields(columns: ItemColumns) -> dict[str, Any]:
    """Return the fields of a dataset that hold the columns of its bags."""
    return {
        "labels": columns.labels,
        "is_ood": columns.is_ood,
        "ood_sets": tuple(columns.ood_sets.tolist()),
        "patients": None if columns.patients is None else tuple(columns.patients.tolist()),
        "patch_sizes": columns.patch_sizes,
        "outcomes": columns.outcomes,
    }
