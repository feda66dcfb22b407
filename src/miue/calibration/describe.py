"""What to know of a calibration beside what was fitted and what it promises, in words."""

from __future__ import annotations

from miue.calibration.calibration import Calibration
from miue.calibration.covariate_shift import CovariateShift
from miue.calibration.deferral import BELOW_THRESHOLD
from miue.common.errors import first_few
from miue.common.text import plural


def notes(calibration: Calibration) -> list[str]:
    """Return what else to know of the rules, a sentence or several each."""
    made_from, flags = calibration.made_from, calibration.instances
    said = []
    if made_from.left_out and calibration.has_rules_of_bags:
        said.append(
            f"one bag of each of {made_from.patients:,} patients was drawn, as bags of one patient are alike; "
            f"left out: {plural(made_from.left_out, 'further bag')}."
        )
    if flags is not None and flags.left_out:
        said.append(
            f"left out of the flags: {plural(flags.left_out, 'positive bag')} without labels of all instances, or "
            "without a positive one."
        )
    if calibration.class_mix is not None and calibration.class_mix.missing and calibration.has_rules_of_bags:
        names = first_few(calibration.class_names[label] for label in calibration.class_mix.missing)
        said.append(f"no calibration bag is of class {names}, so that nothing is promised for bags of that class.")
    said += _rare_classes(calibration)
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


def _rare_classes(calibration: Calibration) -> list[str]:
    """Return which classes are so rare that a promise over all bags holds even if all of their bags are wrong."""
    sets, deferral = calibration.prediction_sets, calibration.deferral
    said = []
    if sets is not None and sets.full == 1:
        said.append(
            "the set of every calibration bag holds all classes, which says nothing: lower --coverage or choose "
            "another --prediction-set (in Python PredictionSetGoal(error, score))."
        )
    if sets is not None and not sets.per_class and (rare := _as_rare_as(calibration, sets.error)):
        said.append(
            f"the sets may miss {100 * sets.error:g} % of all labels, which can be all bags of class {rare}; "
            "--per-class (in Python PredictionSetGoal(per_class=True)) promises sets for each class."
        )
    if deferral is not None and not deferral.refused and (rare := _as_rare_as(calibration, deferral.max_error)):
        said.append(
            f"{100 * deferral.max_error:g} % of accepted bags may be wrong, which can be all bags of class {rare}."
        )
    return said


def _as_rare_as(calibration: Calibration, share: float) -> str:
    """Return the classes that at most a share of the calibration bags are of, with their numbers; "" for none."""
    counts = [] if calibration.class_mix is None else list(map(sum, calibration.class_mix.confusion))
    named = zip(calibration.class_names, counts, strict=False)  # no counts where the bags were weighted
    bags = sum(counts)
    return first_few(f"{name} ({count:,} of {bags:,})" for name, count in named if 0 < count <= share * bags)


def _left_out_by_shift(shift: CovariateShift) -> str:
    sentences = (
        f"Left out: {shift.rules_left_out}; every bag is accepted." if shift.rules_left_out else "",
        f"Beyond the clip: {plural(shift.clipped, 'new bag')}." if shift.clipped else "",
        f"Not counted: {plural(shift.left_out, 'new bag')}, out of distribution or of patients that were counted "
        "already."
        if shift.left_out
        else "",
        f"Not finite everywhere, so unused: {', '.join(shift.unused)}." if shift.unused else "",
    )
    return " ".join(filter(None, sentences))
