"""Calibrated probabilities and decisions with a stated guarantee, from predictions alone."""

from __future__ import annotations

from miue.calibration.calibrate import STOPPED_EARLY, calibrate, check_names
from miue.calibration.calibration import (
    CALIBRATION,
    PARTS,
    Calibration,
    CalibrationBags,
    applied_calibration,
    applied_flags,
    describe_flags,
)
from miue.calibration.class_mix import ClassMix, MixEstimate, estimate_mix
from miue.calibration.compared import count_patients, find_shift
from miue.calibration.covariate_shift import CovariateShift
from miue.calibration.decide import decide, match_classes
from miue.calibration.deferral import PREFERRED_MEASURES, DeferralGoal
from miue.calibration.false_alarms import PREFERRED_SCORES, FalseAlarmGoal
from miue.calibration.goals import Goals, check_bags, needed_by_default
from miue.calibration.instance_flags import (
    GUARANTEES,
    PROBABILITY,
    InstanceFlags,
    InstanceGoal,
    describe_negative_class,
    instance_scores,
)
from miue.calibration.instance_thresholds import refuse_positive_instances
from miue.calibration.prediction_sets import SET_SCORES, PredictionSetGoal
from miue.calibration.ranks import grouped_error_interval, grouped_error_intervals
from miue.calibration.scaling import fit_temperature
from miue.calibration.time_bounds import TimeBoundGoal
from miue.calibration.worklist import Worklist, limits_file, worklist, write_worklist
from miue.predictions import DatasetShift

__all__ = [
    "CALIBRATION",
    "GUARANTEES",
    "PARTS",
    "PREFERRED_MEASURES",
    "PREFERRED_SCORES",
    "PROBABILITY",
    "SET_SCORES",
    "STOPPED_EARLY",
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
    "TimeBoundGoal",
    "Worklist",
    "applied_calibration",
    "applied_flags",
    "calibrate",
    "check_bags",
    "check_names",
    "count_patients",
    "decide",
    "describe_flags",
    "describe_negative_class",
    "estimate_mix",
    "find_shift",
    "fit_temperature",
    "grouped_error_interval",
    "grouped_error_intervals",
    "instance_scores",
    "limits_file",
    "match_classes",
    "needed_by_default",
    "refuse_positive_instances",
    "worklist",
    "write_worklist",
]
