"""A calibration in words: what was fitted, what it promises, and what to know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from miue.calibration.deferral import BELOW_THRESHOLD
from miue.common.errors import first_few
from miue.common.plural import plural
from miue.common.result_table import ResultTable

if TYPE_CHECKING:
    from miue.calibration.calibration import Calibration
    from miue.calibration.covariate_shift import CovariateShift
    from miue.calibration.deferral import Deferral
    from miue.calibration.false_alarms import FalseAlarms
    from miue.calibration.prediction_sets import PredictionSets
    from miue.calibration.scaling import Scaling


def rules_table(calibration: Calibration) -> ResultTable:
    """Return a row for each part of a calibration: what was fitted, and what it promises."""
    rows = []
    if calibration.scaling is not None:
        rows.append(("scaling", *_scaling(calibration.scaling)))
    if calibration.deferral is not None:
        rows.append(("deferral", *_deferral(calibration.deferral)))
    if calibration.prediction_sets is not None:
        rows.append(("prediction sets", *_prediction_sets(calibration.prediction_sets)))
    if calibration.false_alarms is not None:
        rows.append(("out of distribution", *_false_alarms(calibration.false_alarms)))
    flags, shift = calibration.instances, calibration.covariate_shift
    if flags is not None:
        rows.append(("instances", f"flagged where {flags.rule}", flags.promise))
    if shift is None:
        holds = "For bags like these" + ("." if flags is not None else ", and not for instances.")
    else:
        size = f"effective sample size {shift.effective_sample_size:.1f}, clip {shift.clip:g}"
        holds = f"For bags like the {shift.bags:,} new ones, by weights: {size}."
    below = [f"From {bags_used(calibration) or '? bags'}. {holds}"]
    if flags is not None:
        below.append(f"Assumed for flags of instances: {flags.assumption}.")
    return ResultTable(("part", "fitted", "promise"), tuple(rows), tuple(below), is_prose=True)


def bags_used(calibration: Calibration) -> str:
    """Return how many bags the rules were fitted on, flags of instances on some of them alone; "" if not known."""
    count, flags = calibration.made_from.bags, calibration.instances
    every = "" if count is None else plural(count, "bag")
    if flags is None:
        return every
    if not _has_rules_of_bags(calibration):
        return flags.bags_used
    return ", flags of instances ".join(filter(None, (every, f"from {flags.bags_used}")))


def _has_rules_of_bags(calibration: Calibration) -> bool:
    of_bags = (calibration.scaling, calibration.deferral, calibration.prediction_sets, calibration.false_alarms)
    return any(rule is not None for rule in of_bags)


def notes(calibration: Calibration) -> list[str]:
    """Return what else to know of the rules, a sentence or several each."""
    made_from, flags = calibration.made_from, calibration.instances
    said = []
    if made_from.left_out and _has_rules_of_bags(calibration):
        said.append(
            f"one bag of each of {made_from.patients:,} patients was drawn, as bags of one patient are alike; "
            f"left out: {plural(made_from.left_out, 'further bag')}."
        )
    if flags is not None and flags.left_out:
        said.append(
            f"left out of the flags: {plural(flags.left_out, 'positive bag')} without labels of all instances, or "
            "without a positive one."
        )
    if calibration.class_mix is not None and calibration.class_mix.missing and _has_rules_of_bags(calibration):
        names = first_few(calibration.class_names[label] for label in calibration.class_mix.missing)
        said.append(f"no calibration bag is of class {names}, so that nothing is promised for bags of that class.")
    if calibration.covariate_shift is not None:
        said.append(_left_out_by_shift(calibration.covariate_shift))
    if calibration.scaling_left_out:
        said.append(f"no temperature was fitted: {calibration.scaling_left_out}.")
    if made_from.caveat:
        said.append(f"{made_from.caveat}.")
    return [note for note in said if note]


def warning(calibration: Calibration) -> str:
    """Return why every bag will be deferred, and what to do; "" where some may be accepted."""
    if calibration.deferral is None or not calibration.deferral.refused:
        return ""
    deferral = calibration.deferral
    other = (
        "compare another score with the out-of-distribution threshold (--ood-score) or leave it out "
        "(--without ood), "
        if BELOW_THRESHOLD in deferral.refused
        else ""
    )
    return (
        f"{deferral.refused}. Every bag will be deferred; {other}raise --max-error, lower --confidence, add bags, "
        "or leave the deferral out: --without deferral (in Python DeferralGoal(max_error, confidence), "
        f"deferral=None{', FalseAlarmGoal(score=NAME), false_alarms=None' if other else ''})."
    )


def _scaling(scaling: Scaling) -> tuple[str, str]:
    fitted = f"{scaling.kind}: T = {scaling.temperature:.4g}"
    changed = f"none; NLL of these bags {scaling.nll_before:.4f} before, {scaling.nll_after:.4f} after"
    return fitted, "; ".join(filter(None, (changed, scaling.note)))


def _deferral(deferral: Deferral) -> tuple[str, str]:
    accepted = f"{deferral.accepted} accepted of {plural(deferral.bags, 'test bag')}"
    tested = f"{plural(deferral.errors, 'error')} among {accepted}"
    if deferral.refused:
        fitted, tested = "defer all", "no threshold passed"
    elif deferral.threshold is None:
        fitted = "accept all"
    else:
        fitted = f"accept where {deferral.measure} ≤ {deferral.threshold:.4g}"
    promise = f"error among the accepted ≤ {deferral.max_error:g} at confidence {deferral.confidence:g}"
    return fitted, f"{promise}; {tested}"


def _prediction_sets(sets: PredictionSets) -> tuple[str, str]:
    limits = sets.thresholds if sets.per_class else sets.thresholds[:1]
    fitted = f"{sets.score} ≤ {', '.join(f'{limit:.4g}' for limit in limits)}"
    over = "for each class" if sets.per_class else "over all bags"
    return fitted, f"a set misses the label with chance ≤ {sets.error:g}, {over}"


def _false_alarms(alarms: FalseAlarms) -> tuple[str, str]:
    sure = "on average" if alarms.confidence is None else f"at confidence {alarms.confidence:g}"
    return (
        f"out of distribution where {alarms.score} > {alarms.threshold:.4g}",
        f"false alarms ≤ {alarms.rate:g} {sure}",
    )


def _left_out_by_shift(shift: CovariateShift) -> str:
    sentences = (
        f"Left out: {shift.rules_left_out}; every bag is accepted." if shift.rules_left_out else "",
        f"Beyond the clip: {plural(shift.clipped, 'new bag')}." if shift.clipped else "",
        f"Not counted: {plural(shift.left_out, 'new bag')}." if shift.left_out else "",
        f"Not finite everywhere, so unused: {', '.join(shift.unused)}." if shift.unused else "",
    )
    return " ".join(filter(None, sentences))
