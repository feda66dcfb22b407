"""What a column of labels means: a class, a grade, a number or a time. Classes alone need no target."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from miue.targets.base import Target, intervals_for
from miue.targets.ordinal import Ordinal
from miue.targets.regression import Regression
from miue.targets.survival import Survival, concordance

TARGETS: dict[str, type[Target]] = {"ordinal": Ordinal, "regression": Regression, "survival": Survival}
"""Each target by its name. A new target is one file and one line here, and one in ``AnyTarget``."""
TARGET_TITLES = {name: title for kind in TARGETS.values() for name, title in kind.titles.items()}
"""What tables call the metrics of targets."""
AnyTarget = Annotated[Ordinal | Regression | Survival, Field(discriminator="kind")]

__all__ = [
    "TARGETS",
    "TARGET_TITLES",
    "AnyTarget",
    "Ordinal",
    "Regression",
    "Survival",
    "Target",
    "concordance",
    "intervals_for",
]
