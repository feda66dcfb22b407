"""Settings of commands and functions, one class for flags, Python and TOML. Loads no PyTorch."""

from __future__ import annotations

from miue.settings.bags import VALIDATION_SHARE, GroupSettings, LoadSettings, ReadFile, SplitSettings
from miue.settings.decisions import CalibrateSettings, CountSettings, Limits
from miue.settings.models import PredictSettings, RefitSettings, RunRuleSettings
from miue.settings.predictions import DrawnSettings, ExportSettings, ReportSettings, TableSettings, ViewSettings
from miue.settings.slides import ShiftSettings, TileSettings
from miue.settings.training import (
    DEFAULT_DISTANCES,
    DEFAULT_ENCODER,
    DEFAULT_METHOD,
    DEFAULT_NETWORK,
    METHOD_OF_TIMES,
    RunSettings,
    TrainingConfig,
    TrainSettings,
)

__all__ = [
    "DEFAULT_DISTANCES",
    "DEFAULT_ENCODER",
    "DEFAULT_METHOD",
    "DEFAULT_NETWORK",
    "METHOD_OF_TIMES",
    "VALIDATION_SHARE",
    "CalibrateSettings",
    "CountSettings",
    "DrawnSettings",
    "ExportSettings",
    "GroupSettings",
    "Limits",
    "LoadSettings",
    "PredictSettings",
    "ReadFile",
    "RefitSettings",
    "ReportSettings",
    "RunRuleSettings",
    "RunSettings",
    "ShiftSettings",
    "SplitSettings",
    "TableSettings",
    "TileSettings",
    "TrainSettings",
    "TrainingConfig",
    "ViewSettings",
]
