"""Options of the rules that ``miue calibrate`` fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.options import MANY, RULES, separate
from miue.common.errors import unknown_name

if TYPE_CHECKING:
    from miue.calibration import Goals

FLAGS = "Flags of instances"
"""Heading of their options."""

_PARTS = ("scaling", "deferral", "sets", "ood")


def _rule(metavar: str, help_text: str) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=RULES)


def flag_option(metavar: str, help_text: str) -> Any:
    """Return an option under the heading of flags of instances."""
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=FLAGS)


@dataclass(frozen=True)
class RuleOptions:
    """What the options of a command ask of the rules."""

    max_error: Annotated[float, _rule("SHARE", "Largest share of wrong predictions among accepted bags.")] = 0.05
    confidence: Annotated[float, _rule("SHARE", "Confidence that this error is not exceeded.")] = 0.9
    measure: Annotated[
        str | None,
        _rule(
            "NAME",
            "Uncertainty by which bags are deferred for review; by default error_probability if available, else "
            "least_confidence.",
        ),
    ] = None
    coverage: Annotated[float, _rule("SHARE", "Probability that a prediction set has the true label.")] = 0.9
    prediction_set: Annotated[
        str, _rule("lac|aps", "Kind of prediction sets: lac (smallest) or aps (adaptive).")
    ] = "lac"
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Reach --coverage for each class.", rich_help_panel=RULES)
    ] = False
    false_alarms: Annotated[float, _rule("SHARE", "Largest share of in-distribution bags called OOD.")] = 0.05
    ood_score: Annotated[
        str | None,
        _rule(
            "NAME",
            "Score that is compared with the OOD threshold; by default combined_mean or knn_mean if available, "
            "else vacuity or similar.",
        ),
    ] = None
    ood_confidence: Annotated[
        float | None, _rule("SHARE", "Confidence that --false-alarms holds; by default it holds on average.")
    ] = None
    instances: Annotated[
        str | None,
        flag_option(
            "no-false-flag|false-positives|detection|recall",
            "Also flag instances, with this promise: no flag on a negative bag, few flags on a negative bag, "
            "a flag on a positive bag, or most positive instances flagged (needs instance labels).",
        ),
    ] = None
    instance_level: Annotated[
        float,
        flag_option("NUMBER", "Largest chance, mean number of flags, or share of misses that --instances allows."),
    ] = 0.1
    instance_score: Annotated[
        str,
        flag_option(
            "NAME",
            "Score of instances, higher where more suspicious: probability, posterior_probability (that given the "
            "bag), a measure or a distance.",
        ),
    ] = "probability"
    negative_class: Annotated[
        str | None,
        flag_option(
            "NAME", "Class whose bags have negative instances only; by default the model's, or the first."
        ),
    ] = None
    allowed_flags: Annotated[
        int, flag_option("COUNT", "For no-false-flag: flags of a negative bag that are allowed.")
    ] = 0
    flags_cap: Annotated[
        int, flag_option("COUNT", "For false-positives: more flags of a bag count as this many.")
    ] = 10
    bags_of_patient: Annotated[
        str, _rule("one|all", "Bags of each patient to count, if patients are known: one drawn at random, or all.")
    ] = "one"
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(_PARTS), help=f"Rule to leave out. {MANY}", callback=separate, rich_help_panel=RULES
        ),
    ] = None

    def goals(self) -> Goals:
        """Return what is asked of the calibration.

        Raises:
            ConfigError: a rule or a promise that does not exist, a number out of its range, or no rule at all.
        """
        from miue.calibration import DeferralGoal, FalseAlarmGoal, Goals, InstanceGoal, PredictionSetGoal

        without = set(self.without or ())
        for name in without - set(_PARTS):
            raise unknown_name("rule", name, _PARTS)
        deferral = sets = alarms = flags = None
        if "deferral" not in without:
            deferral = DeferralGoal(self.max_error, self.confidence, self.measure)
        if "sets" not in without:
            sets = PredictionSetGoal(round(1 - self.coverage, 12), self.prediction_set, self.per_class)
        if "ood" not in without:
            alarms = FalseAlarmGoal(self.false_alarms, self.ood_score, self.ood_confidence)
        if self.instances is not None:
            score, negative_class = self.instance_score, self.negative_class
            allowed, cap = self.allowed_flags, self.flags_cap
            flags = InstanceGoal(self.instances, self.instance_level, score, negative_class, allowed, cap)
        return Goals("scaling" not in without, deferral, sets, alarms, flags)
