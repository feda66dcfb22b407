"""What is asked of a calibration and of a worklist."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from miue.common.settings import Settings, for_python
from miue.common.text import RULES, RUNNING
from miue.common.values import Guarantee

Part = Literal["scaling", "deferral", "sets", "ood"]


class CountSettings(Settings):
    """Which bags count."""

    heading = RULES

    bags_of_patient: Literal["one", "all"] = Field(
        default="one",
        description="Bags of each patient to count, if patients are known: one drawn at random, or all.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="Random seed of the bags that choose deferral thresholds, and of those drawn of patients.",
        json_schema_extra={"heading": RUNNING},
    )
    allow_training_bags: bool = for_python(
        False, "Calibrate although the model was trained on some of these bags: no guarantee holds."
    )


class BagRuleSettings(CountSettings):
    """What is asked of the rules for bags."""

    max_error: float = Field(
        default=0.05, gt=0, lt=1, description="Largest share of wrong predictions among accepted bags."
    )
    confidence: float = Field(default=0.9, gt=0, lt=1, description="Confidence that this error is not exceeded.")
    measure: str | None = Field(
        default=None,
        description="Uncertainty by which bags are deferred for review; by default error_probability if "
        "available, else least_confidence.",
    )
    coverage: float = Field(
        default=0.9, gt=0, lt=1, description="Probability that a prediction set has the true label."
    )
    prediction_set: Literal["lac", "aps"] = Field(
        default="lac", description="Kind of prediction sets: lac (smallest) or aps (adaptive)."
    )
    per_class: bool = Field(default=False, description="Reach the coverage for each class.")
    false_alarms: float = Field(
        default=0.05, gt=0, lt=1, description="Largest share of in-distribution bags called OOD."
    )
    ood_score: str | None = Field(
        default=None,
        description="Score that is compared with the OOD threshold; by default combined_mean or knn_mean if "
        "available, else vacuity or similar.",
    )
    ood_confidence: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Confidence that the share of false alarms holds; by default it holds on average.",
    )
    without: Annotated[tuple[Part, ...], Strict(False)] = Field(default=(), description="Rule to leave out.")


class CalibrateSettings(BagRuleSettings):
    """What is asked of all rules: the settings of ``miue calibrate``."""

    heading = "Flags of instances"

    instances: Guarantee | None = Field(
        default=None,
        description="Also flag instances, with this promise: no flag on a negative bag, few flags on a negative "
        "bag, a flag on a positive bag, or most positive instances flagged (needs instance labels).",
    )
    instance_level: float = Field(
        default=0.1,
        description="Largest chance, mean number of flags, or share of misses that the promise allows.",
    )
    instance_score: str = Field(
        default="probability",
        description="Score of instances, higher where more suspicious: probability, posterior_probability (that "
        "given the bag), a measure or a distance.",
    )
    negative_class: str | None = Field(
        default=None,
        description="Class whose bags have negative instances only; by default the model's, or the first.",
    )
    allowed_flags: int = Field(
        default=0, description="For no-false-flag: flags of a negative bag that are allowed."
    )
    flags_cap: int = Field(default=10, description="For false-positives: more flags of a bag count as this many.")


class Limits(Settings):
    """Where each reason begins, for predictions without a calibration; None takes it from the validation bags."""

    heading = "Limits"

    min_probability: float | None = Field(
        default=None, ge=0, le=1, description="In between classes: predicted class less probable than this."
    )
    max_epistemic: float | None = Field(
        default=None, ge=0, description="Model unsure: mutual information above this, in nats."
    )
    max_distance: float | None = Field(default=None, description="Far from training data: distance above this.")
    min_patches: int | None = Field(default=None, ge=0, description="Few instances: fewer than this.")
    quantile: float = Field(
        default=0.95,
        ge=0.5,
        le=1,
        description="Quantile of the validation bags that replaces each limit not set.",
    )
