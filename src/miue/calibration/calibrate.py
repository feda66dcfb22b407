"""From predictions of held-out labeled bags to a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.bags import Labels
from miue.bags.cells import one_form
from miue.bags.classes import numbered_classes, read_class_names
from miue.calibration.calibration import Calibration, CalibrationBags
from miue.calibration.class_mix import fit_class_mix
from miue.calibration.compared import (
    ALL_COUNTED,
    compared_uncertainties,
    count_patients,
    counted_rows,
    usual_values,
)
from miue.calibration.covariate_shift import weigh_bags
from miue.calibration.deferral import (
    BELOW_THRESHOLD,
    PREFERRED_MEASURES,
    Deferral,
    DeferralGoal,
    fit_deferral,
    needed_for_deferral,
    refuse_all,
)
from miue.calibration.false_alarms import PREFERRED_SCORES, FalseAlarmGoal, FalseAlarms, fit_false_alarms
from miue.calibration.goals import Goals, check_bags
from miue.calibration.instance_flags import POSTERIOR, InstanceGoal, score_names
from miue.calibration.instance_thresholds import fit_instance_flags
from miue.calibration.prediction_sets import PredictionSetGoal, fit_prediction_sets
from miue.calibration.scaling import fit_scaling
from miue.calibration.time_bounds import TimeBound, TimeBoundGoal, fit_time_bound
from miue.common.errors import ConfigError, DataError, unknown_name
from miue.common.text import plural
from miue.common.values import checked
from miue.predictions import ERROR_PROBABILITY, RESERVED, Predictions, PredictionTable
from miue.settings import CountSettings
from miue.targets import Survival

STOPPED_EARLY = (
    "these bags also chose the epoch that training kept, so that the guarantees hold nearly, not exactly; "
    "a split of their own, named calibration, mends this"
)
FITTED_TO_THEM = (
    "error_probability was fitted to the labels of these bags, and looks better on them than on new ones"
)


@checked()
def calibrate(
    predictions: Predictions,
    *,
    scaling: bool = True,
    deferral: DeferralGoal | None = DeferralGoal(),  # noqa: B008  (frozen)
    prediction_sets: PredictionSetGoal | None = PredictionSetGoal(),  # noqa: B008
    false_alarms: FalseAlarmGoal | None = FalseAlarmGoal(),  # noqa: B008
    instances: InstanceGoal | None = None,
    time_bound: TimeBoundGoal | None = None,
    like: Predictions | None = None,
    class_names: Sequence[str] = (),
    made_from: CalibrationBags = CalibrationBags(),  # noqa: B008
    settings: CountSettings | Mapping[str, Any] | None = None,
) -> Calibration:
    """Return a calibration made from predictions of bags that took no part in training.

    Of numbers, prediction sets and the out-of-distribution threshold are fitted alone: a set is of intervals that
    follow each other, and misses the number with the chance that it misses a class with. Of times, a lower bound
    takes the place of the sets.

    Thresholds are set on the predictions as they are; the scaling changes the probabilities that are shown
    and nothing else, so that each guarantee holds although all parts share the bags. Where no deferral threshold
    passes its tests, every bag is deferred and the other parts are fitted all the same.

    Args:
        predictions: of labeled in-distribution bags; their instances are used for flags of instances only.
        scaling: fit a temperature.
        deferral: the error among the accepted; None leaves the part out, as for the next two.
        prediction_sets: the coverage of prediction sets.
        false_alarms: the rate of false alarms of the out-of-distribution threshold.
        instances: the promise for flagged instances.
        time_bound: the chance that a time is before its lower bound; of times, that of the sets if None.
        like: new bags, labeled or not, for which scaling and prediction sets are weighted; deferral and
            out-of-distribution threshold are then left out. None for bags like those of ``predictions``.
        class_names: in the order of the probabilities; where none are passed, as the predictions have them, else
            "0", "1", ….
        made_from: which bags these are, as far as the predictions do not say it.
        settings: which bags count, ``CountSettings`` or its fields by name, such as {"bags_of_patient": "all"}:
            of each patient one bag, drawn at random, or for flags of instances the mean over the patient's bags.

    Raises:
        ConfigError: no predictions, nothing to calibrate, or names of classes or uncertainties that do not fit.
        DataError: bags that cannot be used, or too few for what is asked: every part that lacks bags is named.
        ModelError: ``like`` was predicted by a model with other weights.
    """
    counting = CountSettings.of(settings)
    bags_of_patient, seed = counting.bags_of_patient, counting.seed
    table = predictions.bags
    names = _class_names(class_names, predictions)
    if instances is not None:
        instances = instances.with_negative_class_of(predictions.provenance, names)
    goals = Goals(scaling, deferral, prediction_sets, false_alarms, instances, time_bound).for_target(table.target)
    if like is not None:
        goals, rules_left_out = goals.keep_weighted()
        fix = "predict bags that are new to the model, or pass allow_training_bags=True"
        if not counting.allow_training_bags:
            like.bags.refuse_training_bags("calibrate for", fix)
    trained_on = check_unseen(predictions.bags, allowed=counting.allow_training_bags)
    of_bags = (table.bag_ids, table.labels, table.is_ood, table.patients)
    check_bags(*of_bags, goals, class_names=names, bags_of_patient=bags_of_patient, seed=seed)
    check_names(predictions, goals)
    rows = counted_rows(table.patients, len(table), bags_of_patient, seed)
    patients = count_patients(table.patients)
    of_patients = ALL_COUNTED if patients is not None and patients < len(rows) else ""
    by_errors = goals.deferral is not None and goals.deferral.measure == ERROR_PROBABILITY
    by_errors |= instances is not None and instances.score in (POSTERIOR, ERROR_PROBABILITY)
    fitted_to = FITTED_TO_THEM if by_errors and _stopped_training(table) else ""
    caveats = dict.fromkeys(filter(None, (of_patients, made_from.caveat, trained_on, fitted_to)))
    counted = table.subset(rows)
    is_exact = counted.outcomes is None or bool(counted.outcomes.observed.all())
    of_class = counted.labels.counts(len(names)) if is_exact else np.zeros(0, np.int64)
    description = {
        "bags": len(counted),
        "of_class": tuple(of_class.tolist()),
        "patients": patients,
        "left_out": len(table) - len(counted),
        "caveat": "; ".join(caveats),
    }
    bags = made_from.model_copy(update=description)
    held = replace(predictions, bags=counted)
    if like is not None:
        shift, new, weights = weigh_bags(held, like, bags_of_patient=bags_of_patient, seed=seed)
        shift = shift.model_copy(update={"rules_left_out": rules_left_out})
        unstated = bags.describe_missing_patients(like.bags.patients, len(like.bags)).removesuffix(".")
        said = filter(None, (bags.caveat, str(shift), unstated if bags_of_patient == "one" else ""))
        bags = bags.model_copy(update={"caveat": "; ".join(said)})
        fitted = _fitted(held, names, goals, bags, seed, weights, shift.largest)
        new = replace(new, labels=Labels.unknown(len(new)))
        mix = fit_class_mix(new, names)
        return fitted.model_copy(update={"covariate_shift": shift, "usual": usual_values(new), "class_mix": mix})
    fitted = _fitted(held, names, goals, bags, seed)
    if instances is None:
        return fitted
    flags = fit_instance_flags(predictions, instances, names, bags_of_patient=bags_of_patient)
    return fitted.model_copy(update={"instances": flags})


def check_unseen(table: PredictionTable, *, allowed: bool = False) -> str:
    """Raise where the model was trained on some of these bags, or on their patients; return a caveat or "".

    Args:
        table: predictions of bags.
        allowed: go on all the same, with a caveat.

    Raises:
        DataError: it was.
    """
    fix = "keep patients for calibration apart (a split of their own), or pass allow_training_bags=True"
    if not allowed:
        table.refuse_training_bags("calibrate on", fix)
    if trained := int(table.trained_on.sum()):
        return f"the model was trained on {trained:,} of these bags: no guarantee holds"
    return STOPPED_EARLY if _stopped_training(table) else ""


def _stopped_training(table: PredictionTable) -> bool:
    """Return whether some of the bags are validation bags of the model."""
    return table.training_parts is not None and "validation" in table.training_parts


def check_names(predictions: Predictions, goals: Goals) -> None:
    """Raise unless the predictions have the uncertainties that the goals name.

    Args:
        predictions: of bags, and of their instances where the goals ask for flags.
        goals: what is asked.

    Raises:
        ConfigError: the first that they lack.
    """
    alarms = goals.false_alarms
    asked = (goals.deferral.measure if goals.deferral else None, alarms.score if alarms else None)
    known = predictions.bags.uncertainty_names
    for name in asked:
        if name is not None and name not in known:
            raise unknown_name("uncertainty", name, known)
    scores = None if predictions.instances is None else score_names(predictions.instances)
    if goals.instances is not None and scores is not None and goals.instances.score not in scores:
        raise unknown_name("score of instances", goals.instances.score, scores)


def _fitted(
    predictions: Predictions,
    names: tuple[str, ...],
    goals: Goals,
    made_from: CalibrationBags,
    seed: int,
    weights: Float64[np.ndarray, "n"] | None = None,
    own: float = 1.0,
) -> Calibration:
    """Return all parts, each fitted whatever the others came to: a part that is kept only where another succeeded
    would be made from calibration bags that look better than new ones."""
    table = predictions.bags
    uncertainties = compared_uncertainties(table)
    alarms = None
    if goals.false_alarms is not None:
        score = goals.false_alarms.score or next(name for name in PREFERRED_SCORES if name in uncertainties)
        alarms = fit_false_alarms(uncertainties[score], score, goals.false_alarms)
    labels = table.labels.values
    temperature, impossible = None, ""
    if goals.scaling:
        try:
            temperature = fit_scaling(table.distribution, labels, weights)
        except DataError as error:
            impossible = error.got
    return Calibration(
        class_names=names,
        scaling=temperature,
        deferral=None if goals.deferral is None else _deferral(table, uncertainties, goals.deferral, alarms, seed),
        prediction_sets=None
        if goals.prediction_sets is None
        else fit_prediction_sets(table.probabilities, labels, goals.prediction_sets, weights, own, names),
        false_alarms=alarms,
        time_bound=None if goals.time_bound is None else _time_bound(table, goals.time_bound),
        usual=usual_values(table),
        class_mix=None if goals.time_bound is not None else fit_class_mix(table, names),
        made_from=made_from,
        scaling_left_out=impossible,
        weights_sha256=predictions.provenance.weights_sha256,
    )


def _time_bound(table: PredictionTable, goal: TimeBoundGoal) -> TimeBound:
    assert isinstance(table.target, Survival)
    assert table.outcomes is not None
    levels = table.target.levels(table.probabilities, table.outcomes.values)
    return fit_time_bound(levels, table.outcomes.observed, goal)


def _deferral(
    table: PredictionTable,
    uncertainties: Mapping[str, Float64[np.ndarray, "n"]],
    goal: DeferralGoal,
    alarms: FalseAlarms | None,
    seed: int,
) -> Deferral:
    """Return the deferral tested on the bags strictly below the out-of-distribution threshold.

    Given an order statistic, the values below it are independent draws of the distribution cut off there. A bag
    that equals the threshold is no such draw; ``decide`` accepts none that does. The error model
    knows the labels of validation bags, so that it orders those only where it is asked to.
    """
    unfitted = set(uncertainties) - ({ERROR_PROBABILITY} if _stopped_training(table) else set())
    measure = goal.measure or next(name for name in PREFERRED_MEASURES if name in unfitted)
    inside = np.ones(len(table), bool) if alarms is None else uncertainties[alarms.score] < alarms.threshold
    count, needed = int(inside.sum()), needed_for_deferral(goal)
    if alarms is not None and count < needed:
        at = int((uncertainties[alarms.score] == alarms.threshold).sum())
        below = f"{plural(count, 'bag')} {BELOW_THRESHOLD}"
        why = f"{below}, where {needed} are needed; {at} equal it"
        return refuse_all(measure, goal, count, why)
    correct = table.predicted == table.labels.values
    return fit_deferral(uncertainties[measure][inside], correct[inside], measure, goal, seed)


def _class_names(names: Sequence[str], predictions: Predictions) -> tuple[str, ...]:
    """Return the names of the classes: as passed, else as the predictions have them, else numbers."""
    count, of_predictions = predictions.bags.distribution.num_classes, predictions.provenance.classes
    numbers = numbered_classes(count)
    names = read_class_names(names) or of_predictions or numbers
    if names == tuple(map(one_form, of_predictions)):
        names = of_predictions
    wrong = [name for name in names if name in RESERVED]
    if len(names) != count or wrong:
        raise ConfigError(
            item="the class names",
            wanted=f"{count} different names, none of them {' or '.join(map(repr, RESERVED))}",
            got=", ".join(names),
            fix="give one name for each probability column, in their order",
        )
    if of_predictions not in ((), numbers, names) and names != numbers:
        raise ConfigError(
            item="the class names",
            wanted=f"{', '.join(of_predictions)}, in this order, as in the predictions",
            got=", ".join(names),
            fix="leave class_names out",
        )
    return names
