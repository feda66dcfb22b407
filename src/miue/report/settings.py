"""What a report shows, as a command says it."""

from __future__ import annotations

from pydantic import Field

from miue.common.settings import Names, Settings
from miue.common.text import OUTPUT, RUNNING


class ReportSettings(Settings):
    """What a report shows beside the predictions."""

    heading = OUTPUT

    names: Names = Field(
        default=(),
        description="Name of a method, once for each of the predictions in order; those of one name are its "
        "seeds.",
    )
    title: str = Field(default="Predictions and how sure they are", description="Heading of the page.")
    max_mb: float = Field(
        default=20.0, ge=0.1, description="Largest size of the file, in MB; fewer instances are shown if needed."
    )
    resamples: int = Field(
        default=1000,
        ge=10,
        description="Bootstrap resamples of bags behind the intervals.",
        json_schema_extra={"heading": RUNNING},
    )
    seed: int = Field(
        default=0, ge=0, description="Random seed of the resamples.", json_schema_extra={"heading": RUNNING}
    )
