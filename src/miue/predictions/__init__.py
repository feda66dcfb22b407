"""Predictions as tables: distributions, decisions, patients; written and read."""

from __future__ import annotations

from miue.predictions.decisions import DEFERRED, OUT_OF_DISTRIBUTION, RESERVED, Decisions
from miue.predictions.decode import numbers_or_nan
from miue.predictions.error_model import ERROR_MODEL, ErrorInputs, ErrorModel
from miue.predictions.folder import (
    Predictions,
    PredictionStream,
    check_not_empty,
    check_table_format,
    count_known,
)
from miue.predictions.instance_errors import ERROR_PROBABILITY, probabilities_by_error
from miue.predictions.patients import by_patient
from miue.predictions.provenance import (
    UNKNOWN,
    VALIDATION,
    WEIGHTED_FOR,
    DatasetShift,
    Provenance,
    ShardOf,
    TrainingRecord,
    ValidationQuantiles,
)
from miue.predictions.read import read_predictions
from miue.predictions.scores import HIGH, MEAN, color_range, describe_scores, distance_of
from miue.predictions.stored_instances import StoredInstances
from miue.predictions.table import OTHER_NAMES, PART_ROWS, PredictionTable, uncertainty_column

__all__ = [
    "DEFERRED",
    "ERROR_MODEL",
    "ERROR_PROBABILITY",
    "HIGH",
    "MEAN",
    "OTHER_NAMES",
    "OUT_OF_DISTRIBUTION",
    "PART_ROWS",
    "RESERVED",
    "UNKNOWN",
    "VALIDATION",
    "WEIGHTED_FOR",
    "DatasetShift",
    "Decisions",
    "ErrorInputs",
    "ErrorModel",
    "PredictionStream",
    "PredictionTable",
    "Predictions",
    "Provenance",
    "ShardOf",
    "StoredInstances",
    "TrainingRecord",
    "ValidationQuantiles",
    "by_patient",
    "check_not_empty",
    "check_table_format",
    "color_range",
    "count_known",
    "describe_scores",
    "distance_of",
    "numbers_or_nan",
    "probabilities_by_error",
    "read_predictions",
    "uncertainty_column",
]
