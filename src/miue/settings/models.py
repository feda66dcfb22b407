"""How a trained model is used."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from miue.common.settings import DeviceSettings, Location, Names
from miue.common.tasks.executor import ExecutorSettings
from miue.common.text import OUTPUT, RULES, RUNNING
from miue.common.values import Precision

Estimator = Literal["residual", "bag-of-one", "attention"]


class UseSettings(DeviceSettings):
    """Where a model computes, and whether code that it names is run."""

    trust: bool = Field(
        default=False,
        description="Run third-party code that the model names by import path, from packages installed here.",
    )


class RefitSettings(ExecutorSettings, UseSettings):
    """How a trained model is trained again."""


class RunRuleSettings(UseSettings):
    """What a calibration of a trained model is made from, beside what is asked of the rules."""

    heading = RULES

    part: str | None = Field(
        default=None,
        description="Part of the bags to calibrate on, or all; by default calibration, else validation, else the "
        "bags that training held out.",
    )
    estimator: Estimator | None = Field(default=None, description="With RUN: estimator of instances.")


class PredictSettings(ExecutorSettings, UseSettings):
    """What is predicted, and what is written: the settings of ``miue predict``."""

    heading = OUTPUT

    part: str | None = Field(
        default=None,
        description="Part of the bags to predict, or all; by default test if there is one, else all that the "
        "model did not learn from.",
    )
    estimator: Estimator | None = Field(default=None, description="Estimator of instances.")
    export: Names = Field(
        default=(), description="Also export arrays, geojson, geoparquet, heatmap or ome-tiff into the folder."
    )
    slides: Location | None = Field(
        default=None, description="Folder of slides: drawn under heatmaps, and to subtract bounds from overlays."
    )
    table_format: Literal["parquet", "csv"] = Field(
        default="parquet",
        description="Format of the instances: parts in Parquet, which are read one at a time, or one table in "
        "CSV.",
    )
    seed: int = Field(
        default=0, ge=0, description="Random seed of methods that draw.", json_schema_extra={"heading": RUNNING}
    )
    precision: Precision = Field(
        default="float32",
        description="Precision of the encoder; bf16-mixed is faster where the device has it.",
        json_schema_extra={"heading": RUNNING},
    )
    shard: str | None = Field(
        default=None,
        description="K/N: compute only the K-th of N parts, from 1, of whole batches of bags; slurm: the part "
        "of this job of a Slurm array.",
        json_schema_extra={"heading": RUNNING},
    )
