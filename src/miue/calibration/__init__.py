"""Calibrated probabilities and decisions with a stated guarantee, from predictions alone."""

from __future__ import annotations

from miue.calibration.calibrate import calibrate, check_names
from miue.calibration.calibration import (
    Calibration,
    CalibrationBags,
    applied_calibration,
    applied_flags,
    describe_flags,
)
from miue.calibration.class_mix import ClassMix, MixEstimate, estimate_mix
from miue.calibration.covariate_shift import CovariateShift
from miue.calibration.dataset_shift import find_shift
from miue.calibration.decide import decide
from miue.calibration.deferral import DeferralGoal
from miue.calibration.false_alarms import FalseAlarmGoal
from miue.calibration.instance_flags import GUARANTEES, InstanceFlags, InstanceGoal
from miue.calibration.needs import Goals, check_bags
from miue.calibration.prediction_sets import SET_SCORES, PredictionSetGoal
from miue.predictions.provenance import DatasetShift

__all__ = [
    "GUARANTEES",
    "SET_SCORES",
    "Calibration",
    "CalibrationBags",
    "ClassMix",
    "CovariateShift",
    "DatasetShift",
    "DeferralGoal",
    "FalseAlarmGoal",
    "Goals",
    "InstanceFlags",
    "InstanceGoal",
    "MixEstimate",
    "PredictionSetGoal",
    "applied_calibration",
    "applied_flags",
    "calibrate",
    "check_bags",
    "check_names",
    "decide",
    "describe_flags",
    "estimate_mix",
    "find_shift",
]
