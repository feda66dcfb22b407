"""How predictions of any tool are read, as a command says it."""

from __future__ import annotations

from pydantic import Field

from miue.common.settings import Location, Names, Settings
from miue.common.text import LABELS


class TableSettings(Settings):
    """What is said of predictions that are a table."""

    heading = LABELS

    instances: Location | None = Field(
        default=None, description="Instance table of any tool, where the predictions are a bag table."
    )
    classes: Names = Field(default=(), description="Classes in order; the first is the negative one.")
