"""A trained model: what it is made of, how it predicts, how it is saved. Loads no trainer."""

from __future__ import annotations

from miue.model.build import build_method, check_saveable, member_seeds
from miue.model.config import ModelConfig
from miue.model.contract import DataContract
from miue.model.feature_scores import (
    DistanceLike,
    check_statistics,
    find_distances,
    fit_distances,
    part_of_distance,
)
from miue.model.folder import MODEL_FILES, InitialWeights, SavedConfig, check_companions, read_config
from miue.model.mixture import learns_from, mix, mixes
from miue.model.model import Model
from miue.model.part import PartLike, find_part
from miue.model.predict import BATCH_INSTANCES
from miue.model.recipe import Recipe
from miue.model.training_bags import PartsOfRun, TrainingBags, parts_of_run

__all__ = [
    "BATCH_INSTANCES",
    "MODEL_FILES",
    "DataContract",
    "DistanceLike",
    "InitialWeights",
    "Model",
    "ModelConfig",
    "PartLike",
    "PartsOfRun",
    "Recipe",
    "SavedConfig",
    "TrainingBags",
    "build_method",
    "check_companions",
    "check_saveable",
    "check_statistics",
    "find_distances",
    "find_part",
    "fit_distances",
    "learns_from",
    "member_seeds",
    "mix",
    "mixes",
    "part_of_distance",
    "parts_of_run",
    "read_config",
]
