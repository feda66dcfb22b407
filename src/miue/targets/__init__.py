"""What a column of labels means: a class, a grade, a number or a time. Classes alone need no target."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from miue.targets.base import Target, intervals_for
from miue.targets.ordinal import Ordinal, median_class
from miue.targets.regression import INTERVAL, Regression
from miue.targets.survival import Survival, concordance

CLASS = "class"
TARGETS: dict[str, type[Target]] = {"ordinal": Ordinal, "regression": Regression, "survival": Survival}
"""Each target by its name. A new target is one file and one line here, and one in ``AnyTarget``."""
TARGET_TITLES = {
    "kappa": "Quadratic kappa",
    "mae": "Mean absolute error",
    "rmse": "Root mean squared error",
    "r2": "R²",
    "coverage": "Coverage of the 90 % interval",
    "width": "Width of the 90 % interval",
    "c_index": "C-index (Harrell)",
    "c_index_uno": "C-index (Uno)",
    "integrated_brier": "Integrated Brier score",
}
"""What tables call the metrics of targets."""
AnyTarget = Annotated[Ordinal | Regression | Survival, Field(discriminator="kind")]

__all__ = [
    "CLASS",
    "INTERVAL",
    "TARGETS",
    "TARGET_TITLES",
    "AnyTarget",
    "Ordinal",
    "Regression",
    "Survival",
    "Target",
    "concordance",
    "intervals_for",
    "median_class",
]
