"""What is trained on which bags, settled before training begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from miue.bags.augmentation import check_augmentation
from miue.bags.classes import doubt_about_negative_class, names_or_numbers
from miue.bags.copies import warn_of_copies
from miue.bags.dataset import BagDataset
from miue.bags.drawing import count_units, group_by_patient, hold_out
from miue.bags.feature_names import check_feature_order
from miue.bags.fingerprint import fingerprint
from miue.bags.pixels import largest_pixel
from miue.common.errors import DataError, first_few
from miue.common.text import plural, say
from miue.common.user_warnings import warn_user
from miue.common.values import Option
from miue.io.splits.splits import Splits, check_patients
from miue.model.config import ModelConfig, check_saveable
from miue.model.contract import DataContract
from miue.model.feature_scores import check_saveable_distances, check_statistics, find_distances, part_of_distance
from miue.model.recipe import Recipe
from miue.model.training_bags import TrainingBags
from miue.settings import TrainingConfig

PARTS_USED = ("train", "validation")
NOT_OF_THE_TRAINING = {"extractor", "patch_scales", "pixels", "feature_names"}
"""What a contract says of bags that does not change what is trained on them."""
LARGEST_PIXEL = 32  # beyond what images have that are standardized to mean 0 and deviation 1


@dataclass(frozen=True)
class Plan:
    """All that decides what is trained; where no bags are held out, ``validation`` is ``train``."""

    recipe: Recipe
    train: BagDataset
    validation: BagDataset
    model_config: ModelConfig
    training_config: TrainingConfig
    contract: DataContract

    @classmethod
    def of(cls, recipe: Recipe, dataset: BagDataset, validation: BagDataset | None = None) -> Plan:
        """Return what the recipe makes of these bags.

        Raises:
            ConfigError: a name, option or setting that does not exist.
            DataError: bags that cannot be trained on, or without the image statistics that a distance needs.
        """
        training_bags, validation_bags = training_sets(dataset, validation, recipe.training_config(dataset))
        for bags in (training_bags, validation_bags):
            _check_instance_classes(bags, dataset.num_classes)
        check_statistics(find_distances(recipe.distances), training_bags)
        model_config, config = recipe.model_config(dataset.instance_shape), recipe.training_config(training_bags)
        check_augmentation(config.augmentation, dataset.instance_shape)
        return cls(recipe, training_bags, validation_bags, model_config, config, DataContract.of(dataset))

    def sentence(self, networks: int = 1) -> str:
        """Return how much is trained on, and for how long at most."""
        config, bags, instances = self.training_config, len(self.train), int(self.train.sizes.sum())
        each = f"{networks} networks, each " if networks > 1 else ""
        return (
            f"{plural(bags, 'bag')}, {plural(instances, 'instance')}: {each}at most "
            f"{plural(config.max_epochs, 'epoch')} "
            f"({plural(max(1, bags // config.bags_per_update), 'update')} each), "
            f"fewer if {config.stop_patience} bring no improvement"
        )

    def description(self, trainer_options: Mapping[str, Option]) -> dict[str, Any]:
        """Return all that must be the same for a run to be resumed."""
        training_bags, validation_bags = self.fingerprints
        return {
            "model": self.model_config.model_dump(mode="json"),
            "training": self.training_config.model_dump(mode="json"),
            "trainer": dict(trainer_options),
            "contract": self.contract.model_dump(mode="json", exclude=NOT_OF_THE_TRAINING),
            "distances": list(find_distances(self.recipe.distances)),
            "training_bags": training_bags,
            "validation_bags": validation_bags,
        }

    @property
    def is_own(self) -> bool:
        """Whether all parts are of miue, so that loading what is saved of them needs no trust."""
        return self.model_config.is_own and all(
            part_of_distance(distance).is_own for distance in self.recipe.distances
        )

    def check_saveable(self) -> None:
        """Raise unless another process can build the model again.

        Raises:
            ConfigError: a part without an import path, or a module that cannot be built again.
        """
        check_saveable(self.model_config, self.contract)
        check_saveable_distances(self.recipe.distances)

    @property
    def holds_out(self) -> bool:
        """Whether training stops by other bags than it learns from."""
        return self.validation is not self.train

    def splits(self, dataset: BagDataset) -> Splits:
        """Return which bags are trained on, which are validated on, and what ``dataset`` keeps for later."""
        parts = {"validation": self.validation, "train": self.train}  # of two bags of one name the latter counts
        learned = {name: split for split, part in parts.items() for name in part.ids}
        kept = zip(dataset.ids, dataset.splits, strict=True)
        later = {name: split for name, split in kept if split and split not in parts}
        return Splits("the run", ({**later, **learned},))

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        """What identifies training and validation bags."""
        return fingerprint(self.train), fingerprint(self.validation)


def question_negative_class(bags: BagDataset, recipe: Recipe) -> None:
    """Say where another class than the first is called as the negative one usually is, and none was named.

    Say, too, where labels of instances show that MIREL's negative class has bags of other instances.
    """
    doubt = doubt_about_negative_class(bags.class_names)
    if doubt and recipe.options.get("method.background") is None:
        say(f"Note: {doubt} (in Python: class_names, negative_class)", err=True)
    if recipe.method == "mirel" and (contradicted := _contradicted_background(bags, recipe)):
        say(f"Note: {contradicted}", err=True)


def _contradicted_background(bags: BagDataset, recipe: Recipe) -> str:
    """Return a sentence where labeled instances of the negative class's bags are of other classes, else ""."""
    number = recipe.options.get("method.background", 0)
    if not isinstance(number, int) or not bags.instance_labels.known.any():
        return ""
    labels = bags.own_instance_labels
    negative = bags.labels.known & (bags.labels.values == number) & ~bags.is_ood.out_of_distribution
    known = labels.known & negative[bags.bag_of_instance]
    others = known & (labels.values != number)
    if not others.any():
        return ""
    name = repr(bags.class_names[number]) if bags.class_names else str(number)
    return (
        f"MIREL takes every instance of a bag of the negative class, {name}, to be of this class, but "
        f"{others.sum():,} of {plural(int(known.sum()), 'labeled instance')} in such bags are not. If another "
        "class has bags of its own instances only, name it first (--classes, in Python class_names); if none has, "
        'pass --set method.background=none (in Python options={"method.background": None})'
    )


def warn_of_large_pixels(plan: Plan) -> None:
    """Warn where images are numbers far from 0 to 1, which encoders of miue take as they are."""
    largest = largest_pixel(plan.train)
    if largest > LARGEST_PIXEL and plan.model_config.encoder.part("encoder", trust=True).is_own:
        warn_user(
            f"images of numbers up to {largest:,.0f} are taken as they are, where encoders expect about 0 to 1: "
            "pass bytes (uint8), which are divided by 255, or divide the numbers",
        )


def warn_of_unlabeled(bags: BagDataset) -> None:
    """Warn of bags that are in no part since they have no label, where the bags came without parts."""
    unlabeled = [] if any(bags.splits) else np.flatnonzero(~bags.labels.known).tolist()
    if unlabeled:
        warn_user(
            f"{len(unlabeled):,} of {plural(len(bags), 'bag')} have no label, so that nothing is learned from "
            f"them: {first_few([bags.ids[row] for row in unlabeled])}",
        )


def warn_of_untrained_classes(plan: Plan) -> None:
    """Warn of classes that are named, but have no bag to train on: the model cannot learn them."""
    trained = set(plan.train.labels.values.tolist())
    without = [name for number, name in enumerate(plan.train.class_names) if number not in trained]
    if without:
        warn_user(
            f"no bag to train on is of class {first_few([repr(name) for name in without])}, so that the model "
            "cannot learn it: check how the labels are written, and the parts, or leave it out (--classes, in "
            "Python class_names)",
        )


def warn_of_same_bags(plan: Plan, bags: BagDataset) -> None:
    """Warn of bags that hold the same instances as another, so that one counts twice or leaks.

    Args:
        plan: which bags are trained and validated on.
        bags: all that the training was given, with those that are kept for later.
    """
    passed_alone = plan.holds_out and not set(plan.validation.ids) <= set(bags.ids)
    warn_of_copies((bags, plan.validation) if passed_alone else (bags,), plan.splits(bags).folds)


def say_parts_used(bags: BagDataset, plan: Plan) -> None:
    """Say how many bags are in each part that they came with, and which are not used; nothing without parts.

    Say, too, how many are held out where no part is there to validate on.
    """
    if not any(bags.splits):
        return
    counts = {name: bags.splits.count(name) for name in dict.fromkeys(bags.splits)}
    used = ", ".join(f"{name} {counts[name]:,}" for name in PARTS_USED if name in counts)
    others = [f"{name or 'of no part'} {count:,}" for name, count in counts.items() if name not in PARTS_USED]
    say(f"parts: {used}" + (f"; not used: {', '.join(others)}" if others else ""), err=True)
    held_out = len(plan.validation) if plan.holds_out and "validation" not in counts else 0
    if held_out and set(plan.validation.ids) <= set(bags.ids):  # else they were passed
        say(
            f"no part to validate on: {held_out:,} of the {plural(counts['train'], 'bag')} of train are held out "
            f"for it (validation_fraction {plan.training_config.validation_fraction:g})",
            err=True,
        )


def training_sets(
    dataset: BagDataset, validation: BagDataset | None, config: TrainingConfig
) -> tuple[BagDataset, BagDataset]:
    """Return training and validation bags: as passed, by split, or a stratified share of whole patients held out.

    Where none is to be held out, both are the same: training stops by the training bags.

    Raises:
        DataError: splits without one to train on, a patient in two, a bag without a label or out of distribution,
            one class only or too small to hold out from, or validation bags that are not like those to train on.
    """
    bags = dataset.split("train") if any(dataset.splits) else _labeled(dataset)
    if validation is not None:
        _refuse_trained_on(validation, bags)
    elif "validation" in dataset.splits:
        validation = dataset.split("validation")
    check_labels(bags, "training", classes_wanted=2)
    check_patients(dataset, "the bags")
    if validation is not None:
        return bags, _checked_validation(validation, dataset)
    if not config.validation_fraction:
        return bags, bags
    groups = None if bags.patients is None else group_by_patient(bags.patients)
    _check_classes_on_both_sides(bags, groups)
    kept, held_out = hold_out(bags.labels.values, config.validation_fraction, config.seed, groups=groups)
    return bags.subset(np.sort(kept)), bags.subset(np.sort(held_out))


def _check_classes_on_both_sides(bags: BagDataset, patients: np.ndarray | None) -> None:
    """Raise unless each class has a bag, or a patient where they are known, to learn from and one to hold out."""
    units = "bags" if patients is None else "patients"
    classes, counts = count_units(bags.labels.values, patients)
    if counts.min() >= 2:
        return
    rare, others = int(classes[counts.argmin()]), int((counts < 2).sum()) - 1
    fix = f"add {units} of this class, pass validation bags, or hold none out (validation_fraction=0)"
    if others and patients is None:
        fix += ", or make a few classes of measurements, such as above and below a value"
    raise DataError(
        item=f"class {bags.class_names[rare] if bags.class_names else rare} of the training set",
        wanted=f"at least 2 {units}, one to learn from and one to validate on",
        got=f"1, like {plural(others, 'other class')}" if others else "1",
        fix=fix,
    )


def _labeled(bags: BagDataset) -> BagDataset:
    """Return the bags that have a label, as a split that is drawn has no others; all where none has one."""
    known = np.flatnonzero(bags.labels.known)
    return bags.subset(known) if 0 < len(known) < len(bags) else bags


def check_labels(bags: BagDataset, what: str, *, classes_wanted: int) -> None:
    """Raise unless every bag is labeled, in distribution, and enough classes are there.

    Raises:
        DataError: a bag without a label or out of distribution, or too few classes.
    """
    missing = [name for name, known in zip(bags.ids, bags.labels.known, strict=True) if not known]
    if missing:
        raise DataError(
            item=f"bag {missing[0]!r} of the {what} set",
            wanted="a label for every bag",
            got=f"none for {len(missing):,} of {len(bags):,} bags",
            fix="give a table of labels with --labels, in Python load_bags(labels=TABLE), or take these bags out "
            f"of the {what} part, such as by 'miue data split' and --splits",
        )
    outside = [name for name, is_out in zip(bags.ids, bags.is_ood.out_of_distribution, strict=True) if is_out]
    if outside:
        raise DataError(
            item=f"bag {outside[0]!r} of the {what} set",
            wanted="bags in distribution",
            got=f"{len(outside):,} of {len(bags):,} bags marked as out of distribution",
            fix="leave them out of training; they are for testing",
        )
    classes = sorted(set(bags.labels.values.tolist()))
    if len(classes) < classes_wanted:
        raise DataError(
            item=f"the {what} set of {plural(len(bags), 'bag')}",
            wanted=f"bags of at least {classes_wanted} classes",
            got=f"class {[bags.class_names[c] for c in classes] if bags.class_names else classes} only",
            fix="add bags of another class, or check the label column",
        )
    gap = next((number for number, label in enumerate(classes) if label != number), None)
    if classes_wanted > 1 and not bags.class_names and gap is not None:
        raise DataError(
            item=f"the labels of the {what} set",
            wanted="classes numbered from 0, the negative one, without gaps, or names of classes",
            got=f"no bag of class {gap}, and {first_few(list(map(str, classes)))}",
            fix="number the classes from 0 on, or pass class_names",
        )


def _check_instance_classes(bags: BagDataset, count: int) -> None:
    """Raise where an instance has a label of a class that no bag has, and that the model would not have.

    Validation bags are predicted after the training, which would be refused then.

    Raises:
        DataError: such a label.
    """
    if bags.instance_labels.num_classes <= count:
        return
    labels = bags.own_instance_labels
    beyond = np.flatnonzero(labels.known & (labels.values >= count))
    if len(beyond):
        bag = bags.bag_of_instance[beyond[0]]
        raise DataError(
            item=f"the instance labels of bag {bags.ids[bag]!r}",
            wanted=f"classes from 0 to {count - 1}, as the bags have",
            got=f"class {labels.values[beyond[0]]}, and such labels of {plural(len(beyond), 'instance')} in all",
            fix="label instances with classes of bags, take these labels out, or name all classes (class_names)",
        )


def _refuse_trained_on(validation: BagDataset, bags: BagDataset) -> None:
    """Raise where bags that were passed to validate on are trained on, or others of their patients."""
    trained = TrainingBags.of(dict.fromkeys(bags.ids, "train"), bags)
    known = trained.compare(validation).or_of_their_patients("train")
    if known:
        raise DataError(
            item="the validation bags",
            wanted="other bags, of other patients, than those to train on",
            got=f"{plural(len(known), 'bag')} of which that does not hold: {first_few(sorted(known))}",
            fix="pass others, or none: a share is held out (validation_fraction=0 holds none out)",
        )


def _checked_validation(validation: BagDataset, dataset: BagDataset) -> BagDataset:
    """Return the validation bags, their classes numbered as in training; these are matched by name.

    Raises:
        DataError: other instances, or a label of another class, than the bags to train on have.
    """
    check_labels(validation, "validation", classes_wanted=1)
    if validation.instance_shape != dataset.instance_shape:
        raise DataError(
            item="the validation bags",
            wanted=f"instances of shape {dataset.instance_shape} as in training",
            got=str(validation.instance_shape),
            fix="use one feature extractor for all bags",
        )
    check_feature_order(validation.feature_names, dataset.feature_names, "the validation bags")
    if validation.class_names != dataset.class_names:
        return validation.with_classes(names_or_numbers(dataset.class_names, dataset.num_classes))
    if validation.num_classes > dataset.num_classes:
        raise DataError(
            item="the validation bags",
            wanted=f"classes from 0 to {dataset.num_classes - 1} as in training",
            got=f"class {validation.num_classes - 1}",
            fix="name all classes (class_names), or leave these bags out",
        )
    return validation
