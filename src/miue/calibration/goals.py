"""What is asked of a calibration, and how many bags each part of it needs, compared with those that there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from miue.bags import Labels, OodFlags, group_by_patient
from miue.calibration.compared import counted_rows
from miue.calibration.deferral import DeferralGoal, needed_for_deferral
from miue.calibration.false_alarms import FalseAlarmGoal, needed_for_false_alarms, rank_of_threshold
from miue.calibration.instance_flags import InstanceGoal
from miue.calibration.prediction_sets import PredictionSetGoal
from miue.calibration.ranks import needed_for_rank
from miue.calibration.time_bounds import TimeBoundGoal
from miue.common.errors import ConfigError, DataError
from miue.settings import CalibrateSettings
from miue.targets import IntervalTarget, Target


@dataclass(frozen=True)
class Goals:
    """What is asked of a calibration; a part that is None or False is left out.

    Attributes:
        scaling: fit a temperature.
        deferral: the error among the bags that are accepted.
        prediction_sets: the coverage of prediction sets.
        false_alarms: the rate of false alarms of the out-of-distribution threshold.
        instances: the promise for flagged instances.
        time_bound: the chance that a time is before its bound; of times, as ``prediction_sets`` ask if None.
    """

    scaling: bool = True
    deferral: DeferralGoal | None = DeferralGoal()  # noqa: RUF009  (frozen)
    prediction_sets: PredictionSetGoal | None = PredictionSetGoal()  # noqa: RUF009
    false_alarms: FalseAlarmGoal | None = FalseAlarmGoal()  # noqa: RUF009
    instances: InstanceGoal | None = None
    time_bound: TimeBoundGoal | None = None

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

    def for_target(self, target: Target | None) -> Goals:
        """Return the goals that have a meaning: of numbers, sets of their intervals and the threshold alone.

        Of times, some of which are lower bounds, a bound of the time takes the place of the sets.

        Raises:
            ConfigError: flags of instances by numbers, a bound of what is no time, or nothing that has a meaning.
        """
        has_times = isinstance(target, IntervalTarget) and target.has_censoring
        if self.time_bound is not None and not has_times:
            kind = "classes" if target is None else target.kind
            raise ConfigError(
                item="a bound of the time", wanted="labels that are times", got=kind, fix="leave it out"
            )
        if not isinstance(target, IntervalTarget):
            return self
        if self.instances is not None:
            wanted, fix = "labels that are classes", "leave them out"
            raise ConfigError(item="flags of instances", wanted=wanted, got=target.kind, fix=fix)
        if not has_times:
            return replace(self, scaling=False, deferral=None)
        bound = self.time_bound
        if bound is None and self.prediction_sets is not None:
            bound = TimeBoundGoal(self.prediction_sets.error)
        return replace(self, scaling=False, deferral=None, prediction_sets=None, time_bound=bound)

    def keep_weighted(self) -> tuple[Goals, str]:
        """Return the goals that hold for weighted bags, and in words which are left out.

        Raises:
            ConfigError: flags of instances, or none of the goals holds.
        """
        why = {
            "deferral": "the deferral, whose exact binomial tests do not hold for weighted bags",
            "false_alarms": "the out-of-distribution threshold, which would no longer detect what has changed",
        }
        if self.instances is not None or not (self.scaling or self.prediction_sets):
            raise ConfigError(
                item="a calibration for bags of another mix",
                wanted="prediction sets or scaling, and no flags of instances",
                got="flags of instances" if self.instances is not None else "neither",
                fix="ask for prediction sets or scaling alone",
            )
        left_out = [why[name] for name in why if getattr(self, name) is not None]
        return replace(self, deferral=None, false_alarms=None), ", and ".join(left_out)

    @property
    def needs_labels(self) -> bool:
        """Whether a part is asked for that reads labels."""
        return bool(self.labeled_parts) or self.instances is not None

    @property
    def labeled_parts(self) -> list[str]:
        """The parts for bags asked for that read labels, in words."""
        asked: dict[str, object] = {"scaling": self.scaling, "deferral": self.deferral}
        asked |= {"prediction sets": self.prediction_sets, "the bound of the time": self.time_bound}
        return [name for name, goal in asked.items() if goal]


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
    known_ood = is_ood.out_of_distribution
    rows = counted_rows(patients, len(ids), bags_of_patient, seed)
    usable = rows[~known_ood[rows]]
    known = labels[usable[labels.known[usable]]]
    problems = []  # (wanted, got, fix)
    for wanted, wrong, what, fix in (
        (
            "calibration bags that are in distribution",
            np.flatnonzero(known_ood),
            "marked out of distribution",
            "leave these out: the guarantees speak of bags like the calibration bags",
        ),
        (
            "a label for every calibration bag",
            np.flatnonzero(~labels.known & goals.needs_labels),
            "without one",
            f"label them, or leave out these bags, or {', '.join(goals.labeled_parts) or 'flags of instances'}",
        ),
    ):
        if len(wrong):
            got = f"{len(wrong):,} of {len(ids):,} {what} ({str(ids[wrong[0]])!r} first)"
            problems.append((wanted, got, fix))
    of = "" if len(rows) == len(ids) else f" (one bag of each of {len(rows):,} patients, of {len(ids):,} bags)"
    more = "" if len(rows) == len(ids) else " of other patients"
    whose = None if patients is None or bags_of_patient == "all" else group_by_patient(patients)
    needs = [(need, of) for need in _needs(goals, len(usable), known, class_names)]
    if goals.instances is not None:
        needs.append((_need_of_flags(goals.instances, labels, ~known_ood, whose, class_names), ""))
    for need, counted in needs:
        if need.there < need.needed:
            wanted = f"at least {need.needed:,} {need.bags} for {need.part}"
            got = f"{need.there:,} {need.bags}{counted}"
            part = need.part.partition(" (")[0]
            problems.append((wanted, got, f"add bags{more}, ask for less, or leave out {part}"))
    if problems:
        wanted, got, fix = ("; ".join(dict.fromkeys(parts)) for parts in zip(*problems, strict=True))
        raise DataError(item="the calibration", wanted=wanted, got=got, fix=fix)


@dataclass(frozen=True)
class _Need:
    """How many of some bags a part needs, and how many there are."""

    part: str
    bags: str
    needed: int
    there: int


def _needs(goals: Goals, count: int, labels: Labels, names: Sequence[str]) -> Iterator[_Need]:
    """Yield what each part for bags needs; more bags of the same patients do not count."""
    if (goal := goals.deferral) is not None:
        least, needed = needed_for_deferral(goal), _needed_for_deferral(goal, goals.false_alarms)
        below = f", {least} of them below the out-of-distribution threshold" if needed > least else ""
        part = f"the deferral (error {goal.max_error:g} at confidence {goal.confidence:g}{below})"
        yield _Need(part, "labeled bags", needed, len(labels))
    if (sets := goals.prediction_sets) is not None:
        part, needed = f"prediction sets (coverage {1 - sets.error:g})", needed_for_rank(sets.error)
        counts = {"labeled bags": len(labels)}
        if sets.per_class:
            of_class = np.bincount(labels.values, minlength=len(names))
            counts = {f"labeled bags of class {name}": int(of_class[c]) for c, name in enumerate(names)}
        yield from (_Need(part, bags, needed, there) for bags, there in counts.items())
    if (bound := goals.time_bound) is not None:
        part = f"the bound of the time (chance {bound.error:g})"
        yield _Need(part, "labeled bags", needed_for_rank(bound.error), len(labels))
    if (alarms := goals.false_alarms) is not None:
        sure = "" if alarms.confidence is None else f" at confidence {alarms.confidence:g}"
        part = f"the out-of-distribution threshold (false alarms {alarms.rate:g}{sure})"
        yield _Need(part, "in-distribution bags", needed_for_false_alarms(alarms), count)


def _need_of_flags(
    goal: InstanceGoal,
    labels: Labels,
    usable: np.ndarray,
    whose: np.ndarray | None,
    names: Sequence[str],
) -> _Need:
    """Return the need of negative or positive patients, or of bags where these are not known."""
    of_class = (labels.values == goal.find_negative_class(names)) == goal.of_negatives
    rows = np.flatnonzero(labels.known & usable & of_class)
    count = len(rows) if whose is None else len(set(whose[rows]))
    bags = "negative bags" if goal.of_negatives else "positive bags"
    part = f"flags of instances ({goal.guarantee} {goal.level:g})"
    return _Need(part, bags if whose is None else f"patients with {bags}", goal.needed, count)


def _needed_for_deferral(goal: DeferralGoal, alarms: FalseAlarmGoal | None) -> int:
    needed = least = needed_for_deferral(goal)
    while alarms is not None and rank_of_threshold(needed, alarms) <= least:
        needed += 1  # if no two bags tie, one less than the rank are strictly below the threshold
    return needed


def needed_by_default(target: Target | None = None) -> int:
    """Return how many labeled bags in distribution are enough for every part that nobody has to ask for."""
    goals = Goals().for_target(target)
    needs = _needs(goals, 0, Labels.unknown(0), ())
    return max(need.needed for need in needs)
