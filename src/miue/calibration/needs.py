"""How many bags each part of a calibration needs, compared with those that there are, before any prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from miue.bags.drawing import group_by_patient
from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.calibration.deferral import DeferralGoal, needed_for_deferral
from miue.calibration.false_alarms import FalseAlarmGoal, needed_for_false_alarms, rank_of_threshold
from miue.calibration.instance_flags import InstanceGoal
from miue.calibration.patients import counted_rows
from miue.calibration.prediction_sets import PredictionSetGoal
from miue.calibration.ranks import needed_for_rank
from miue.common.errors import ConfigError, DataError
from miue.common.text import plural
from miue.settings import CalibrateSettings


@dataclass(frozen=True)
class Goals:
    """What is asked of a calibration; a part that is None or False is left out.

    Attributes:
        scaling: fit a temperature.
        deferral: the error among the bags that are accepted.
        prediction_sets: the coverage of prediction sets.
        false_alarms: the rate of false alarms of the out-of-distribution threshold.
        instances: the promise for flagged instances.
    """

    scaling: bool = True
    deferral: DeferralGoal | None = DeferralGoal()  # noqa: RUF009  (frozen)
    prediction_sets: PredictionSetGoal | None = PredictionSetGoal()  # noqa: RUF009
    false_alarms: FalseAlarmGoal | None = FalseAlarmGoal()  # noqa: RUF009
    instances: InstanceGoal | None = None

    @classmethod
    def of(cls, settings: CalibrateSettings) -> Goals:
        """Return what settings ask for.

        Raises:
            ConfigError: a number out of its range, or no rule at all.
        """
        deferral = DeferralGoal(settings.max_error, settings.confidence, settings.measure)
        error = round(1 - settings.coverage, 12)
        sets = PredictionSetGoal(error, settings.prediction_set, settings.per_class)
        alarms = FalseAlarmGoal(settings.false_alarms, settings.ood_score, settings.ood_confidence)
        flags = None
        if settings.instances is not None:
            score, negative_class = settings.instance_score, settings.negative_class
            allowed, cap = settings.allowed_flags, settings.flags_cap
            flags = InstanceGoal(settings.instances, settings.instance_level, score, negative_class, allowed, cap)
        return cls(
            "scaling" not in settings.without,
            None if "deferral" in settings.without else deferral,
            None if "sets" in settings.without else sets,
            None if "ood" in settings.without else alarms,
            flags,
        )

    def __post_init__(self) -> None:
        if not self.needs_labels and self.false_alarms is None:
            raise ConfigError(
                item="the calibration", wanted="at least one part", got="none", fix="leave one part in"
            )

    def keep_weighted(self) -> tuple[Goals, str]:
        """Return the goals that hold for weighted bags, and in words which are left out.

        Raises:
            ConfigError: flags of instances, or none of the goals holds.
        """
        why = {
            "instances": "flags of instances hold for bags that count alike",
            "deferral": "the deferral, whose exact binomial tests do not hold for weighted bags",
            "false_alarms": "the out-of-distribution threshold, which would no longer detect what has changed",
        }
        if self.instances is not None or not (self.scaling or self.prediction_sets):
            raise ConfigError(
                item="a calibration for bags of another mix (--like, in Python like)",
                wanted="prediction sets or scaling, and no flags of instances",
                got=why["instances"] if self.instances is not None else "neither",
                fix="leave out --instances (in Python instances)"
                if self.instances is not None
                else "leave one of the two in",
            )
        left_out = [why[name] for name in ("deferral", "false_alarms") if getattr(self, name) is not None]
        return replace(self, deferral=None, false_alarms=None), ", and ".join(left_out)

    @property
    def needs_labels(self) -> bool:
        """Whether a part is asked for that reads labels."""
        return bool(self.labeled_parts) or self.instances is not None

    @property
    def labeled_parts(self) -> list[str]:
        """The parts asked for that read labels, as ``--without`` names them."""
        asked = {"scaling": self.scaling, "deferral": self.deferral, "sets": self.prediction_sets}
        return [name for name, goal in asked.items() if goal]


@dataclass(frozen=True)
class _Problem:
    wanted: str
    got: str
    fix: str
    arguments: tuple[str, ...] = ()  # of ``calibrate``, that change what is asked


def check_bags(
    ids: Sequence[str] | np.ndarray,
    labels: Labels,
    is_ood: OodFlags,
    patients: Sequence[str] | np.ndarray | None,
    goals: Goals,
    *,
    class_names: Sequence[str],
    bags_of_patient: str = "one",
    seed: int = 0,
) -> None:
    """Raise unless these bags can be calibrated on and are enough for every part, and name all that is missing.

    Args:
        ids: of the bags.
        labels: of the bags.
        is_ood: whether each bag is out of distribution, where that is known.
        patients: of the bags, where known.
        goals: what is asked.
        class_names: in the order of the labels.
        bags_of_patient: "one" or "all", as ``calibrate`` counts them.
        seed: of the draw of one bag for each patient.

    Raises:
        DataError: bags out of distribution or without a label, or too few for a part; all of it in one message.
        ConfigError: another way to count bags of a patient.
    """
    problems = []
    known_ood = is_ood.out_of_distribution
    out, unlabeled = np.flatnonzero(known_ood), np.flatnonzero(~labels.known)
    if len(out):
        problems.append(
            _Problem(
                "calibration bags that are in distribution",
                f"{len(out):,} of {len(ids):,} marked out of distribution ({str(ids[out[0]])!r} first)",
                "leave these out: the guarantees speak of bags like the calibration bags",
            )
        )
    if goals.needs_labels and len(unlabeled):
        parts = " ".join(f"--without {part}" for part in goals.labeled_parts)
        problems.append(
            _Problem(
                "a label for every calibration bag",
                f"{len(unlabeled):,} of {len(ids):,} without one ({str(ids[unlabeled[0]])!r} first)",
                "label them (--labels), leave them out"
                + (f", or calibrate without labels: {parts}" if parts else ""),
                tuple({"sets": "prediction_sets"}.get(part, part) for part in goals.labeled_parts),
            )
        )
    rows = counted_rows(patients, len(ids), bags_of_patient, seed)
    usable = rows[~known_ood[rows]]
    known = labels[usable[labels.known[usable]]]
    add = "add bags" if len(rows) == len(ids) else "add bags of other patients"
    problems += _too_few(goals, len(usable), known, class_names, of=_of(rows, ids), add=add)
    if goals.instances is not None:
        whose = None if patients is None or bags_of_patient == "all" else group_by_patient(patients)
        problems += _too_few_of_class(goals.instances, labels, ~known_ood, whose, class_names)
    if problems:
        raise DataError(
            item="the calibration",
            wanted="; ".join(problem.wanted for problem in problems),
            got="; ".join(dict.fromkeys(problem.got for problem in problems)),
            fix="; ".join(dict.fromkeys(problem.fix for problem in problems)) + _in_python(problems),
        )


def _in_python(problems: Sequence[_Problem]) -> str:
    """Return which arguments of ``calibrate`` the options are that the problems name."""
    names = dict.fromkeys(name for problem in problems for name in problem.arguments)
    arguments = "argument" if len(names) == 1 else "arguments"
    return f" (in Python the {arguments} {', '.join(names)} of calibrate)" if names else ""


def _too_few(
    goals: Goals, count: int, labels: Labels, names: Sequence[str], *, of: str, add: str
) -> list[_Problem]:
    """Return what is wanted of the number of bags, part by part; more bags of the same patients do not count."""
    problems = []
    fewer = f"{add}, or "
    if goals.deferral is not None:
        goal, least = goals.deferral, needed_for_deferral(goals.deferral)
        needed = _needed_for_deferral(goal, goals.false_alarms)
        below = f", {least} of them below the out-of-distribution threshold" if needed > least else ""
        if len(labels) < needed:
            problems.append(
                _Problem(
                    f"at least {plural(needed, 'labeled bag')} for the deferral (error {goal.max_error:g} at "
                    f"confidence {goal.confidence:g}{below})",
                    f"{len(labels):,} labeled{of}",
                    f"{fewer}raise --max-error, lower --confidence or drop the deferral: --without deferral",
                    ("deferral",),
                )
            )
    if goals.prediction_sets is not None:
        sets, needed = goals.prediction_sets, needed_for_rank(goals.prediction_sets.error)
        counts = {"": len(labels)}
        if sets.per_class:
            of_class = np.bincount(labels.values, minlength=len(names))
            counts = {f" of class {name}": int(of_class[c]) for c, name in enumerate(names)}
        marginal = ", ask for marginal coverage (no --per-class)" if sets.per_class else ""
        problems += [
            _Problem(
                f"at least {plural(needed, 'labeled bag')}{which} for prediction sets "
                f"(coverage {1 - sets.error:g})",
                f"{there} labeled{which}{of}",
                f"{fewer}lower --coverage{marginal} or drop the prediction sets: --without sets",
                ("prediction_sets",),
            )
            for which, there in counts.items()
            if there < needed
        ]
    if goals.false_alarms is not None:
        alarms, needed = goals.false_alarms, needed_for_false_alarms(goals.false_alarms)
        sure = "" if alarms.confidence is None else f" at confidence {alarms.confidence:g}"
        if count < needed:
            problems.append(
                _Problem(
                    f"at least {needed} in-distribution bags for the out-of-distribution threshold "
                    f"(false alarms {alarms.rate:g}{sure})",
                    f"{count} in-distribution{of}",
                    f"{fewer}raise --false-alarms or drop the threshold: --without ood",
                    ("false_alarms",),
                )
            )
    return problems


def _too_few_of_class(
    goal: InstanceGoal,
    labels: Labels,
    usable: np.ndarray,
    whose: np.ndarray | None,
    names: Sequence[str],
) -> list[_Problem]:
    """Return what is wanted of the number of negative or positive patients, or bags where these are not known."""
    of_class = (labels.values == goal.find_negative_class(names)) == goal.of_negatives
    rows = np.flatnonzero(labels.known & usable & of_class)
    count = len(rows) if whose is None else len(set(whose[rows]))
    if count >= goal.needed:
        return []
    which = "negative" if goal.of_negatives else "positive"
    unit = f"{which} bags" if whose is None else f"patients with {which} bags"
    lower = ", lower --flags-cap" if goal.highest_loss > 1 else ""
    return [
        _Problem(
            f"at least {goal.needed} {unit} for flags of instances ({goal.guarantee} {goal.level:g})",
            f"{count} {unit}",
            f"add bags{'' if whose is None else ' of other patients'}, raise --instance-level{lower} or leave out "
            "--instances",
            ("instances",),
        )
    ]


def _needed_for_deferral(goal: DeferralGoal, alarms: FalseAlarmGoal | None) -> int:
    needed = least = needed_for_deferral(goal)
    while alarms is not None and rank_of_threshold(needed, alarms) <= least:
        needed += 1  # if no two bags tie, one less than the rank are strictly below the threshold
    return needed


def needed_by_default() -> int:
    """Return how many labeled bags in distribution are enough for every part that nobody has to ask for."""
    alarms = FalseAlarmGoal()
    return max(
        _needed_for_deferral(DeferralGoal(), alarms),
        needed_for_rank(PredictionSetGoal().error),
        needed_for_false_alarms(alarms),
    )


def _of(rows: np.ndarray, ids: Sequence[str] | np.ndarray) -> str:
    return (
        ""
        if len(rows) == len(ids)
        else f" (one bag of each of {plural(len(rows), 'patient')}, of {len(ids):,} bags)"
    )
