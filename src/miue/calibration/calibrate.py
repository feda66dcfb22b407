"""From predictions of held-out labelled bags to a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from miue.calibration.calibration import Calibration
from miue.calibration.dataset_shift import usual_values
from miue.calibration.false_alarms import PREFERRED_SCORES, FalseAlarmGoal, FalseAlarms, fit_false_alarms
from miue.calibration.label_sets import LabelSetGoal, fit_label_sets
from miue.calibration.patients import counted_bags
from miue.calibration.referral import ReferralGoal, fit_referral
from miue.calibration.scaling import fit_scaling
from miue.decisions import RESERVED
from miue.errors import ConfigError, DataError, unknown_name
from miue.prediction_table import PredictionTable
from miue.predictions import Predictions


def calibrate(
    predictions: Predictions,
    *,
    scaling: bool = True,
    referral: ReferralGoal | None = ReferralGoal(),  # noqa: B008  (frozen)
    label_sets: LabelSetGoal | None = LabelSetGoal(),  # noqa: B008
    false_alarms: FalseAlarmGoal | None = FalseAlarmGoal(),  # noqa: B008
    class_names: Sequence[str] = (),
    bags_of_patient: str = "one",
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
) -> Calibration:
    """Return a calibration made from predictions of bags that took no part in training.

    Thresholds are set on the predictions as they are; the scaling changes the probabilities that are shown
    and nothing else, so that each guarantee holds although all parts share the bags.

    Args:
        predictions: of labelled in-distribution bags; instances are not used.
        scaling: fit a temperature.
        referral: the error among the kept; None leaves the part out, as for the next two.
        label_sets: the coverage of label sets.
        false_alarms: the rate of false alarms of the out-of-distribution threshold.
        class_names: in the order of the probabilities; "0", "1", … where none are given.
        bags_of_patient: "one", drawn at random, counts where patients are known; or "all".
        seed: of the bags that choose which referral thresholds are tested, and of those drawn of patients.
        about: which bags these are, for a reader.

    Raises:
        ConfigError: nothing to calibrate, or names that do not fit.
        DataError: bags that cannot be used, or too few for what is asked.
    """
    table = predictions.bags
    names = _class_names(class_names, table.distribution.num_classes)
    needs_labels = scaling or referral is not None or label_sets is not None
    if not needs_labels and false_alarms is None:
        raise ConfigError(item="the calibration", wanted="at least one part", got="none", fix="leave one part in")
    _check_bags(table, needs_labels)
    counted, of_patients = counted_bags(table, bags_of_patient, seed)
    try:
        return _fitted(
            replace(predictions, bags=table.subset(counted)),
            names,
            (scaling, referral, label_sets, false_alarms),
            {**of_patients, **(about or {}), **_caveats(of_patients, about or {})},
            seed,
        )
    except DataError as error:
        if len(counted) == len(table):
            raise
        got = f"{error.got} (one bag of each of {len(counted)} patients, of {len(table)} bags)"
        raise DataError(item=error.item, wanted=error.wanted, got=got, fix=error.fix) from error


def _fitted(
    predictions: Predictions,
    names: tuple[str, ...],
    parts: tuple[bool, ReferralGoal | None, LabelSetGoal | None, FalseAlarmGoal | None],
    about: Mapping[str, Any],
    seed: int,
) -> Calibration:
    table, (scaling, referral, label_sets, false_alarms) = predictions.bags, parts
    uncertainties = table.uncertainties()
    alarms = None
    if false_alarms is not None:
        score = false_alarms.score or next(name for name in PREFERRED_SCORES if name in uncertainties)
        alarms = fit_false_alarms(_uncertainty(uncertainties, score), score, false_alarms)
    labels, correct = table.labels.values, table.predicted == table.labels.values
    inside = _strictly_inside(uncertainties, alarms, len(table))
    return Calibration(
        class_names=names,
        scaling=fit_scaling(table.distribution, labels) if scaling else None,
        referral=None
        if referral is None
        else fit_referral(_uncertainty(uncertainties, referral.measure)[inside], correct[inside], referral, seed),
        label_sets=None if label_sets is None else fit_label_sets(table.probabilities, labels, label_sets),
        false_alarms=alarms,
        usual=usual_values(table),
        about={
            "bags": len(table),
            "of class": np.bincount(labels[table.labels.known], minlength=len(names)).tolist(),
            **about,
        },
        weights_sha256=predictions.about.get("weights_sha256"),
    )


def _caveats(*told: Mapping[str, Any]) -> dict[str, str]:
    caveats = [str(one["caveat"]) for one in told if "caveat" in one]
    return {"caveat": "; ".join(caveats)} if caveats else {}


def _strictly_inside(
    uncertainties: Mapping[str, np.ndarray], alarms: FalseAlarms | None, count: int
) -> Bool[np.ndarray, "n"]:
    """Return the bags strictly below the out-of-distribution threshold.

    Given an order statistic, the values below it are independent draws of the distribution cut off there:
    the law of bags that will pass the threshold. The bag at the threshold itself is no such draw.
    """
    return np.ones(count, bool) if alarms is None else uncertainties[alarms.score] < alarms.threshold


def _uncertainty(uncertainties: Mapping[str, np.ndarray], name: str) -> Float64[np.ndarray, "n"]:
    if name not in uncertainties:
        raise unknown_name("uncertainty", name, uncertainties)
    return np.asarray(uncertainties[name], np.float64)


def _class_names(given: Sequence[str], count: int) -> tuple[str, ...]:
    names = tuple(given) or tuple(str(c) for c in range(count))
    wrong = [name for name in names if name in RESERVED]
    if len(names) != count or len(set(names)) < count or wrong:
        raise ConfigError(
            item="the class names",
            wanted=f"{count} different names, none of them {' or '.join(map(repr, RESERVED))}",
            got=", ".join(names),
            fix="give one name for each probability column, in their order",
        )
    return names


def _check_bags(table: PredictionTable, needs_labels: bool) -> None:
    """Raise where a bag is known to be out of distribution or, where labels are needed, has none."""
    foreign = np.flatnonzero(table.is_ood.out_of_distribution)
    if len(foreign):
        raise DataError(
            item=f"bag {str(table.bag_ids[foreign[0]])!r}",
            wanted="calibration bags that are in distribution",
            got=f"{len(foreign)} of {len(table)} marked out of distribution",
            fix="leave them out: the guarantees speak of bags like the calibration bags",
        )
    unknown = np.flatnonzero(~table.labels.known)
    if needs_labels and len(unknown):
        raise DataError(
            item=f"bag {str(table.bag_ids[unknown[0]])!r}",
            wanted="a label for every calibration bag",
            got=f"{len(unknown)} of {len(table)} without one",
            fix="give labels with --labels TABLE, or leave these bags out; the out-of-distribution threshold "
            "alone needs no label",
        )
