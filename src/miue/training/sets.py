"""Which bags are trained and validated on, and the checks that a model can be trained on them."""

from __future__ import annotations

import numpy as np

from miue.bags import BagDataset, count_units, group_by_patient, hold_out
from miue.bags.classes import names_or_numbers
from miue.bags.frames import check_feature_order
from miue.common.errors import ConfigError, DataError, first_few
from miue.common.returned import class_name
from miue.common.text import plural
from miue.io import check_patients
from miue.methods import Method
from miue.model import TrainingBags
from miue.settings import TrainingConfig


def training_sets(
    dataset: BagDataset, validation: BagDataset | None, config: TrainingConfig
) -> tuple[BagDataset, BagDataset]:
    """Return training and validation bags: as passed, by split, or a stratified share of whole patients held out.

    Where none is to be held out, both are the same: training stops by the training bags.

    Raises:
        DataError: splits without one to train on, a patient in two, a bag without a label or out of distribution,
            one class only or too small to hold out from, or validation bags that are not like those to train on.
    """
    if any(dataset.splits):
        bags = dataset.split("train")
    else:
        known = np.flatnonzero(dataset.labels.known)
        bags = dataset.subset(known) if 0 < len(known) < len(dataset) else dataset
    if validation is not None:
        _refuse_trained_on(validation, bags)
    elif "validation" in dataset.splits:
        validation = dataset.split("validation")
    check_labels(bags, "training", classes_wanted=2)
    check_patients(dataset, "the bags")
    if validation is not None:
        return bags, _as_in_training(validation, dataset)
    if not config.validation_fraction:
        return bags, bags
    groups = None if bags.patients is None else group_by_patient(bags.patients)
    drawn_from = bags.with_own_intervals()  # low and high among these, whatever other bags are there
    _check_classes_on_both_sides(drawn_from, groups)
    kept, held_out = hold_out(drawn_from.strata, config.validation_fraction, config.seed, groups=groups)
    return bags.subset(np.sort(kept)), bags.subset(np.sort(held_out))


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
            fix=f"give a table of labels, or take these bags out of the {what} part",
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


def check_censoring(method: Method, bags: BagDataset) -> None:
    """Raise where labels are lower bounds, which a method does not learn from.

    Raises:
        ConfigError: such a method.
    """
    if bags.outcomes is None or not bags.is_censored or method.takes_censoring:
        return
    raise ConfigError(
        item=f"method {class_name(method)!r}",
        wanted="one that learns from times without an event",
        got=plural(int((~bags.outcomes.observed).sum()), "such time"),
        fix="choose 'softmax', 'cumulative-links', 'deep-ensemble', 'mc-dropout', 'sngp' or 'laplace'",
    )


def check_instance_classes(bags: BagDataset, count: int) -> None:
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
        raise DataError(
            item=f"the instance labels of bag {bags.ids[bags.bag_of_instance[beyond[0]]]!r}",
            wanted=f"classes from 0 to {count - 1}, as the bags have",
            got=f"class {labels.values[beyond[0]]}, and such labels of {plural(len(beyond), 'instance')} in all",
            fix="label instances with classes of bags, take these labels out, or name all classes (class_names)",
        )


def _check_classes_on_both_sides(bags: BagDataset, patients: np.ndarray | None) -> None:
    """Raise unless each class has a bag, or a patient where they are known, to learn from and one to hold out."""
    units = "bags" if patients is None else "patients"
    classes, counts = count_units(bags.strata, patients)
    if counts.min() < 2:
        rare, others = int(classes[counts.argmin()]), int((counts < 2).sum()) - 1
        raise DataError(
            item=f"class {bags.stratum_names[rare]} of the training set",
            wanted=f"at least 2 {units}, one to learn from and one to validate on",
            got=f"1, like {plural(others, 'other class')}" if others else "1",
            fix=f"add {units} of this class, pass validation bags, or hold none out (validation_fraction=0)",
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


def _as_in_training(validation: BagDataset, dataset: BagDataset) -> BagDataset:
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
