"""What a column of labels means: a class, a grade, a number or a time. Classes alone need no target."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from miue.targets.base import MetricName, Target
from miue.targets.figures import Figure
from miue.targets.intervals import IntervalTarget, intervals_for
from miue.targets.kaplan_meier import KaplanMeier, concordance
from miue.targets.multi_label import BETWEEN, NONE, UNKNOWN, MultiLabel
from miue.targets.ordinal import Ordinal
from miue.targets.regression import Regression
from miue.targets.survival import Survival
from miue.targets.weighted import Weighted

TARGETS: dict[str, type[Target]] = {
    "multi-label": MultiLabel,
    "ordinal": Ordinal,
    "regression": Regression,
    "survival": Survival,
}
"""Each target by its name. A new target is one file and one line here, and one in ``AnyTarget``."""
OWN_METRICS = {name: one for kind in TARGETS.values() for name, one in kind.own_metrics.items()}
"""What tables call the metrics of targets."""
AnyTarget = Annotated[MultiLabel | Ordinal | Regression | Survival, Field(discriminator="kind")]

__all__ = [
    "BETWEEN",
    "NONE",
    "OWN_METRICS",
    "TARGETS",
    "UNKNOWN",
    "AnyTarget",
    "Figure",
    "IntervalTarget",
    "KaplanMeier",
    "MetricName",
    "MultiLabel",
    "Ordinal",
    "Regression",
    "Survival",
    "Target",
    "Weighted",
    "concordance",
    "intervals_for",
]
