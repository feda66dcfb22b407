"""How predictions are exported, as a command says it."""

from __future__ import annotations

from pydantic import Field

from miue.common.settings import Location, Names, Settings
from miue.common.tasks.settings import ExecutorSettings
from miue.common.text import RUNNING


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
