"""Predictions as commands take them, a folder or tables of any tool, and a warning where they have shifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from miue.common.errors import ConfigError
from miue.common.text import plural, say

if TYPE_CHECKING:
    from miue.predictions import Predictions, PredictionTable
    from miue.settings import GroupSettings


def read_given(path: Path, instances: Path | None = None, classes: Sequence[str] | None = None) -> Predictions:
    """Return the predictions in a folder or in tables, and say how the columns of a table were read.

    Raises:
        ConfigError: a folder beside a table of instances, or --classes that do not name its classes.
        StorageError, DataError: predictions that cannot be read.
    """
    from miue.predictions import read_predictions

    predictions = read_predictions(path, instances, classes=classes or ())
    if predictions.columns_read:
        say(f"note: {predictions.columns_read}", err=True)
    shard = predictions.provenance.shard
    if shard is not None:
        alone = f"{str(path)!r} holds shard {shard.number}/{shard.count} alone, and not the bags of the others"
        say(f"Note: {alone}; 'miue merge' joins them", err=True)
    return predictions


def labeled_by(predictions: Predictions, labels: Path | None, columns: Mapping[str, str]) -> Predictions:
    """Return the predictions of those bags alone that a table has a label of, with it.

    Args:
        predictions: of bags.
        labels: the table; None leaves them as they are.
        columns: names of its columns by what they mean.

    Raises:
        StorageError, DataError: a table that cannot be used, or without a label of these bags.
        ConfigError: a column that does not exist, or predictions of numbers.
    """
    if labels is None:
        return predictions
    from miue.io import read_labels_for
    from miue.targets import IntervalTarget

    bags, classes = predictions.bags, predictions.provenance.classes
    if isinstance(bags.target, IntervalTarget):
        wanted, fix = "predictions of classes or grades", "predict the bags again with these labels"
        raise ConfigError(item="labels", wanted=wanted, got=bags.target.kind, fix=fix)
    names, count = bags.bag_ids.astype(str).tolist(), bags.distribution.num_classes
    read = read_labels_for(names, labels, columns, classes, count)
    known = [name for name, is_known in zip(names, read.known, strict=True) if is_known]
    say(f"labels: those of {len(known):,} of {plural(len(names), 'bag')}, in {str(labels)!r}", err=True)
    return replace(predictions, bags=replace(bags, labels=read)).of_bags(known)


def groups_of(tables: Sequence[PredictionTable], groups: GroupSettings) -> dict[str, str] | None:
    """Return the group of each bag of some predictions that the table of groups lists; None without a table."""
    from miue.io.groups import read_groups

    if groups.groups is None or groups.group_column is None:
        return None
    names = list(dict.fromkeys(name for one in tables for name in one.bag_ids.tolist()))
    patient_of = {
        name: patient
        for one in tables
        if one.patients is not None
        for name, patient in zip(one.bag_ids.tolist(), one.patients.tolist(), strict=True)
        if patient
    }
    column, id_column = groups.group_column, groups.id_column
    return read_groups(groups.groups, column, names, id_column=id_column, patient_of=patient_of)


ADVICE = {
    False: "check scanner, stain, focus, features and the mix of cases, and calibrate again if any of these has "
    "changed",
    True: "weight the calibration for these bags: miue calibrate RUN STORE --like PREDICTIONS",
}


def warn_of_shift(predictions: Predictions) -> None:
    """Warn, on the standard error, where the decided bags together differ from the calibration bags."""
    from miue.calibration import applied_calibration

    shift = predictions.provenance.dataset_shift
    if shift:
        say(f"Warning: {shift}. {shift.meaning}: {ADVICE[shift.weighted]}.", err=True)
        calibration, table = applied_calibration(predictions.provenance), predictions.bags
        if calibration and (note := calibration.made_from.describe_missing_patients(table.patients, len(table))):
            say(f"Note: {note}", err=True)
