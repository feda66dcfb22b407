"""Flags of instances: what may be promised of them, the rule that was fitted, and its promise in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, get_args

import numpy as np
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict, Field

from miue.bags.cells import one_form
from miue.calibration.compared import round_scores
from miue.calibration.ranks import exact
from miue.common.errors import DataError, out_of_range, unknown_name
from miue.common.text import is_or_are, plural
from miue.common.values import Guarantee, check_fields
from miue.predictions import ERROR_PROBABILITY, PredictionTable, Provenance, probabilities_by_error

GUARANTEES: tuple[str, ...] = get_args(Guarantee)
OF_NEGATIVES = ("no-false-flag", "false-positives")
"""Guarantees that negative bags calibrate; positive bags calibrate the others."""
PROBABILITY = "probability"
"""The score 1 − p of the negative class."""
POSTERIOR = "posterior_probability"
"""The probability of being positive given the bag, from the error probability; other scores are columns."""


@dataclass(frozen=True)
class InstanceGoal:
    """What is asked of flagged instances.

    Attributes:
        guarantee: "no-false-flag", chance that more than ``allowed`` instances of a negative bag are flagged;
            "false-positives", mean number of flagged instances of a negative bag, more than ``cap`` counted as
            ``cap``; "detection", chance that no instance of a positive bag is flagged; "recall", mean share of
            the positive instances of a positive bag that are not flagged, which needs instance labels.
        level: the chance, number or share that may not be exceeded.
        score: "probability" (1 − p of the negative class), "posterior_probability" (that given the bag), or a
            measure or score of the instances, higher where more suspicious.
        negative_class: name of the class whose bags have negative instances only; None for that of the model, if
            it has one (``method.background``), else the first.
        allowed: r ≥ 0, flags of a negative bag that "no-false-flag" lets pass.
        cap: B ≥ 1, the most that a bag counts for "false-positives".
    """

    guarantee: str = "no-false-flag"
    level: float = 0.1
    score: str = PROBABILITY
    negative_class: str | None = None
    allowed: Annotated[int, Field(ge=0)] = 0
    cap: Annotated[int, Field(ge=1)] = 10

    def __post_init__(self) -> None:
        check_fields(self)
        if self.guarantee not in GUARANTEES:
            raise unknown_name("guarantee for instances", self.guarantee, GUARANTEES)
        if not 0 < self.level < self.highest_loss:
            raise out_of_range("level", f"a number between 0 and {self.highest_loss}", self.level)

    @property
    def of_negatives(self) -> bool:
        """Whether negative bags calibrate it; positive bags do otherwise."""
        return self.guarantee in OF_NEGATIVES

    @property
    def highest_loss(self) -> int:
        """The largest loss of a bag."""
        return self.cap if self.guarantee == "false-positives" else 1

    @property
    def needed(self) -> int:
        """The least number of patients, or bags where patients are not known: ⌈highest loss / level⌉ − 1."""
        return ceil(self.highest_loss / exact(self.level)) - 1

    @property
    def needed_bags(self) -> str:
        """Which bags it needs, in words."""
        which = "negative" if self.of_negatives else "positive"
        return f"{which} bags with all instances labeled" if self.guarantee == "recall" else f"{which} bags"

    def with_negative_class_of(self, provenance: Provenance, class_names: Sequence[str]) -> InstanceGoal:
        """Return the goal with the negative class of the model that predicted, where none is named."""
        number = provenance.negative_class
        if self.negative_class is not None or number is None:
            return self
        return replace(self, negative_class=class_names[number])

    def find_negative_class(self, class_names: Sequence[str]) -> int:
        """Return the number of the negative class.

        Raises:
            ConfigError: no such class.
        """
        if self.negative_class is None:
            return 0
        forms, name = list(map(one_form, class_names)), one_form(self.negative_class)
        if name not in forms:
            raise unknown_name("negative class", self.negative_class, class_names)
        return forms.index(name)


class InstanceFlags(BaseModel):
    """An instance whose ``score`` is at least ``threshold`` is flagged.

    Attributes:
        guarantee: a name of ``GUARANTEES``.
        level: the chance, number or share that is not exceeded.
        score: what is compared.
        negative_class: number of the negative class.
        threshold: of the score, exact.
        allowed: flags of a negative bag that "no-false-flag" lets pass.
        cap: the most that a bag counts for "false-positives".
        bags: that set the threshold.
        patients: that they are of, None where patients are not known.
        left_out: further positive bags without labels of all instances, for "recall".
        measured: mean loss of the calibration bags at the threshold.
        estimator: what the instances were predicted from, None where that is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    guarantee: Guarantee
    level: float
    score: str
    negative_class: int = Field(ge=0)
    threshold: float
    allowed: int
    cap: int
    bags: int
    patients: int | None
    left_out: int
    measured: float
    estimator: str | None

    def flag(self, instances: PredictionTable) -> PredictionTable:
        """Return the instances with a flag for each.

        Raises:
            DataError: no such score, or one that is not a number.
        """
        scores = instance_scores(instances, self.score, self.negative_class)
        return replace(instances, flagged=scores >= self.threshold)

    def check_estimator(self, estimator: str | None) -> None:
        """Raise where instances are predicted by another estimator than the calibrated one.

        Args:
            estimator: of the instances; None where it is not known, which is let pass.

        Raises:
            DataError: another one.
        """
        if None not in (estimator, self.estimator) and estimator != self.estimator:
            raise DataError(
                item="the flags of instances",
                wanted=f"instances predicted by the estimator {self.estimator!r}, which was calibrated",
                got=f"{estimator!r}",
                fix=f"predict with the estimator {self.estimator}, or calibrate with {estimator}",
            )

    @property
    def rule(self) -> str:
        """Which instances are flagged, in words."""
        is_probability = self.score in (PROBABILITY, POSTERIOR)
        if is_probability and self.threshold > 1:
            return f"{self.score} > 1, that is nowhere"
        near_one = is_probability and 0.9999 < self.threshold < 1
        return f"{self.score} ≥ {f'1 − {1 - self.threshold:.2g}' if near_one else f'{self.threshold:.4g}'}"

    @property
    def fitted(self) -> str:
        """The rule as a sentence says it."""
        return f"flagged where {self.rule}"

    @property
    def bags_used(self) -> str:
        """Which bags set the threshold, in words."""
        if self.guarantee in OF_NEGATIVES:
            return plural(self.bags, "negative bag")
        with_labels = " with all instances labeled" if self.guarantee == "recall" else ""
        return plural(self.bags, "positive bag") + with_labels

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        of = " drawn from a new patient" if self.patients is not None else ""
        if self.guarantee == "no-false-flag":
            more = f"more than {plural(self.allowed, 'instance')} {is_or_are(self.allowed)}"
            what = "any instance is" if self.allowed == 0 else more
            return f"on a new negative bag{of}, {what} flagged with chance at most {self.level:g}"
        if self.guarantee == "false-positives":
            capped = f"more than {self.cap} counted as {self.cap}"
            most = "1 instance is" if self.level == 1 else f"{self.level:g} instances are"
            return f"on a new negative bag{of}, at most {most} flagged on average ({capped})"
        if self.guarantee == "detection":
            return f"on a new positive bag{of}, nothing is flagged with chance at most {self.level:g}"
        missed = f"at most {self.level:g} of the positive instances are not flagged, on average over bags"
        return f"on a new positive bag{of}, {missed}"

    @property
    def assumption(self) -> str:
        """What the promise needs, in words."""
        of = "" if self.patients is None else f" of {self.patients:,} patients"
        alike = f"new ones are drawn like the {self.bags:,} of the calibration{of}"
        if self.guarantee in OF_NEGATIVES:
            return (
                f"negative bags have negative instances only, and {alike}; a positive instance missed among these "
                "makes the promise conservative"
            )
        if self.guarantee == "detection":
            return f"of positive bags, {alike}; that something is flagged, not that it is right"
        return f"of positive bags, {alike}, which were not chosen for labeling by how clear they are"


def describe_negative_class(class_names: Sequence[str], number: int) -> list[str]:
    """Return what "negative" and "positive" mean where there are more than two classes; nothing for two.

    >>> describe_negative_class(["normal", "benign", "tumor"], 0)
    ["Negative: the class 'normal'; positive: every other class."]
    """
    if len(class_names) <= 2:
        return []
    return [f"Negative: the class {class_names[number]!r}; positive: every other class."]


def score_names(instances: PredictionTable) -> list[str]:
    """Return the scores by which instances can be flagged."""
    names = instances.uncertainty_names
    return [PROBABILITY, *([POSTERIOR] if ERROR_PROBABILITY in names else []), *names]


def instance_scores(instances: PredictionTable, score: str, negative_class: int) -> Float64[np.ndarray, "n"]:
    """Return the score of each instance, higher where more suspicious.

    Columns are rounded to float32, as ``round_scores`` does. The posterior probability of an instance that is
    predicted negative is its error probability, else one minus what the error leaves for the negative class.

    Args:
        instances: a table that is in memory.
        score: one of ``score_names``.
        negative_class: whose probability is subtracted from one.

    Raises:
        DataError: no such score, or one that is not a finite number.
    """
    if score == PROBABILITY:
        values = 1 - instances.probabilities[:, negative_class]
    elif score == POSTERIOR and ERROR_PROBABILITY in instances.scores:
        rounded = {ERROR_PROBABILITY: round_scores(instances.scores[ERROR_PROBABILITY])}
        values = 1 - probabilities_by_error(replace(instances, scores=rounded))[:, negative_class]
    elif score in instances.uncertainty_names:
        values = round_scores(instances.uncertainty(score))
    else:
        raise DataError(
            item="the instances",
            wanted=f"the score {score!r}",
            got=", ".join(score_names(instances)),
            fix="choose one of these, or predict with all scores of the model",
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            item=f"{score} of an instance of bag {str(instances.bag_ids[bad[0]])!r}",
            wanted="a finite number",
            got=f"{values[bad[0]]} ({len(bad):,} such instances)",
            fix="mend the score, or choose another",
        )
    return values
