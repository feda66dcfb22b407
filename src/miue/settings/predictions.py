"""How predictions are read, exported and reported."""

from __future__ import annotations

from getpass import getuser

from pydantic import Field

from miue.common.settings import Location, Names, Settings
from miue.common.tasks.executor import ExecutorSettings
from miue.common.text import LABELS, OUTPUT, RUNNING


class ExportSettings(ExecutorSettings):
    """What all exports share."""

    heading = "Patches"

    ids: Location | None = Field(
        default=None,
        description="Slides to export: a text file with one id per line, or a table with ids in its first column.",
        json_schema_extra={"heading": "Options"},
    )
    patch_size: int | None = Field(
        default=None,
        ge=1,
        description="Side of a patch in level-0 pixels; by default as the slide's features state it, else its "
        "grid step.",
    )
    skip_bad: bool = Field(
        default=False,
        description="Go on after a slide that fails; list it at the end.",
        json_schema_extra={"heading": RUNNING},
    )


class DrawnSettings(Settings):
    """Which patches are drawn as objects of QuPath, and where."""

    heading = "Patches"

    chosen_classes: Names = Field(default=(), description="Class to export, by name or number; by default all.")
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Least probability of a patch's (chosen) class; by default its predicted class is exported.",
    )
    merge: bool = Field(default=False, description="Merge neighboring patches of one class into regions.")
    slides: Location | None = Field(
        default=None,
        description="Folder of slides: subtracts their OpenSlide bounds-x/y, as QuPath shows them.",
    )
    bounds: str | None = Field(
        default=None, description="Bounds X,Y to subtract, instead of reading them from slides."
    )


class TableSettings(Settings):
    """What is said of predictions that are a table."""

    heading = LABELS

    instances: Location | None = Field(
        default=None, description="Instance table of any tool, where the predictions are a bag table."
    )
    classes: Names = Field(default=(), description="Classes in order; the first is the negative one.")


class ReportSettings(Settings):
    """What a report shows beside the predictions."""

    heading = OUTPUT

    names: Names = Field(
        default=(),
        description="Name of a method, once for each of the predictions in order; those of one name are its "
        "seeds.",
    )
    title: str = Field(default="Predictions and how sure they are", description="Heading of the page.")
    view: str | None = Field(
        default=None, description="Address that 'miue view' prints: each bag of the report links to it there."
    )
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


class ViewSettings(Settings):
    """What a person sees of predictions, and where verdicts go."""

    heading = OUTPUT

    slides: Location | None = Field(
        default=None,
        description="Folder of the slides; by default the map of patches is shown.",
        json_schema_extra={"heading": "Patches"},
    )
    patch_size: int | None = Field(
        default=None,
        ge=1,
        description="Side of a patch in level-0 pixels; by default as the slide's features state it, else its "
        "grid step.",
        json_schema_extra={"heading": "Patches"},
    )
    verdicts: Location | None = Field(
        default=None,
        description="CSV file to which verdicts are added; by default PREDICTIONS.verdicts.csv.",
    )
    person: str = Field(default="", description="Who says the verdicts; by default the user of this machine.")
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port to serve at; 0 for a free one.",
        json_schema_extra={"heading": RUNNING},
    )

    @property
    def reviewer(self) -> str:
        """Who says the verdicts."""
        return self.person or getuser()
