"""Decisions for predictions, by a calibration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float64

from miue.bags.classes import numbered_classes
from miue.calibration.calibration import Calibration
from miue.calibration.compared import compared_uncertainty, find_shift
from miue.calibration.deferral import Deferral
from miue.calibration.time_bounds import TimeBound
from miue.common.errors import DataError
from miue.common.values import checked
from miue.predictions import (
    DEFERRED,
    OUT_OF_DISTRIBUTION,
    Decisions,
    Predictions,
    PredictionTable,
    StoredInstances,
)
from miue.targets import Survival


@checked()
def decide(predictions: Predictions, calibration: Calibration) -> Predictions:
    """Return the predictions with a decision for each bag and, where instances were calibrated, their flags.

    A bag is first compared with the out-of-distribution threshold, then with the deferral threshold; one below
    both gets its most probable class. Where bags are deferred, so is one that equals the out-of-distribution
    threshold: the error among the accepted was tested strictly below it. The prediction set does not depend on the
    decision. All bags together are compared with those of the calibration; ``provenance`` keeps rules and
    comparison.

    Raises:
        ConfigError: no predictions.
        DataError: other classes, an uncertainty that the predictions do not have, or instances predicted by
            another estimator than the calibrated one.
        ModelError: predictions of a model with other weights than the calibrated ones.
    """
    calibration.check_weights(predictions.provenance.weights_sha256)
    table = predictions.bags
    classes = match_classes(predictions, calibration)
    names = np.array(classes, object)
    decision = names[table.predicted]
    part = "class" if table.has_classes else "interval"
    reason = np.array([f"{names[c]} is the most probable {part}" for c in table.predicted], object)
    if calibration.deferral is not None:
        deferred, reason = _deferred(table, calibration.deferral)
        decision[deferred] = DEFERRED
    if calibration.false_alarms is not None:
        alarm = calibration.false_alarms
        values = compared_uncertainty(table, alarm.score)
        if calibration.deferral is not None:
            for row in np.flatnonzero((values == alarm.threshold) & (decision != DEFERRED)):
                decision[row] = DEFERRED
                reason[row] = (
                    f"{alarm.score} equals the out-of-distribution threshold {alarm.threshold:.4g}: the error "
                    "among the accepted was tested below it only"
                )
        for row in np.flatnonzero(values > alarm.threshold):
            decision[row] = OUT_OF_DISTRIBUTION
            reason[row] = (
                f"{alarm.score} {values[row]:.4g} is above {alarm.threshold:.4g}, "
                f"a threshold that at most {100 * alarm.rate:g} % of in-distribution bags exceed"
            )
    sets, scaling = calibration.prediction_sets, calibration.scaling
    decisions = Decisions(
        decision=decision,
        reason=reason,
        prediction_sets=None if sets is None else sets.of(table.probabilities, in_order=table.target is not None),
        calibrated=None if scaling is None else scaling.apply(table.distribution),
        time_bound=_time_bound(table, calibration.time_bound),
    )
    weighted = calibration.covariate_shift is not None
    provenance = predictions.provenance.model_copy(
        update={
            "classes": classes,
            "calibration": calibration.model_dump(mode="json", exclude={"usual", "class_mix"}),
            "dataset_shift": find_shift(table, calibration.usual, weighted=weighted)
            if calibration.usual
            else None,
        }
    )
    return Predictions(replace(table, decisions=decisions), _flagged(predictions, calibration), provenance)


def _time_bound(table: PredictionTable, rule: TimeBound | None) -> Float64[np.ndarray, "n"] | None:
    """Return the time before which no event comes with the promised chance; 1e-9 earlier, against rounding."""
    if rule is None or not isinstance(table.target, Survival):
        return None
    return table.target.times_at(table.probabilities, rule.level) * (1 - 1e-9)


def _flagged(predictions: Predictions, calibration: Calibration) -> PredictionTable | None:
    """Return the instances with flags, if there are both; stored ones get theirs as they are read."""
    rule, instances = calibration.instances, predictions.instances
    if rule is None or instances is None:
        return instances
    rule.check_estimator(predictions.provenance.estimator)
    return instances.flagged_by(rule.flag) if isinstance(instances, StoredInstances) else rule.flag(instances)


def _deferred(table: PredictionTable, rule: Deferral) -> tuple[Bool[np.ndarray, "n"], np.ndarray]:
    """Return which bags are deferred to a person, and why each bag does or does not."""
    values = compared_uncertainty(table, rule.measure)
    promise = (
        f"at most {100 * rule.max_error:g} % of the accepted bags are wrong, at confidence {rule.confidence:g}"
    )
    if rule.refused:
        return np.ones(len(table), bool), np.full(len(table), "no bag is accepted", object)
    if rule.threshold is None:
        return np.zeros(len(table), bool), np.full(len(table), f"all bags are accepted: {promise}", object)
    deferred = values > rule.threshold
    limit = f"{rule.threshold:.4g}"
    reasons = [
        f"{rule.measure} {v:.4g} is above {limit}, the threshold up to which {promise}"
        if above
        else f"{rule.measure} {v:.4g} is at most {limit}: {promise}"
        for above, v in zip(deferred, values, strict=True)
    ]
    return deferred, np.array(reasons, object)


def match_classes(predictions: Predictions, calibration: Calibration) -> tuple[str, ...]:
    """Return the names that the calibration or the predictions know; "0", "1", … are the names of neither.

    Raises:
        DataError: predictions of other classes, or of the same in another order.
    """
    calibrated, count = calibration.class_names, predictions.bags.distribution.num_classes
    classes = predictions.provenance.classes or calibrated
    numbers = numbered_classes(count)
    swapped = classes != calibrated and set(classes) == set(calibrated)
    same = classes == calibrated or numbers in (classes, calibrated)
    if count == len(calibrated) == len(classes) and same and not swapped:
        return classes if calibrated == numbers else calibrated
    raise DataError(
        item="the predictions",
        wanted=f"the classes that were calibrated: {', '.join(calibrated)}",
        got=", ".join(classes) if classes != calibrated else f"{count} classes",
        fix="decide on predictions of the model that was calibrated, or calibrate with the classes in "
        "the order of the model",
    )
