"""How good predictions are: of classes, and of their own uncertainty. Reads predictions, never a network."""

from __future__ import annotations

from miue.evaluation.bootstrap import owners_of_items, paired_differences, patients_by_bag, resample
from miue.evaluation.class_metrics import (
    METRICS,
    NAMED_METRICS,
    OwnMetric,
    check_own_metrics,
    is_built_in,
    own_metrics,
    units,
)
from miue.evaluation.decisions import INTERVAL, RISK, DecisionEvaluation, GroupEvaluation, evaluate_decisions
from miue.evaluation.evaluate import evaluate, evaluate_groups
from miue.evaluation.evaluation import Evaluation
from miue.evaluation.instances import (
    FLAG_TITLES,
    FLAGS_IN_PERCENT,
    FROC_TITLES,
    FlagEvaluation,
    applied_negative_class,
    evaluate_flags,
    evaluate_froc,
    froc,
)
from miue.evaluation.intervals import LEVEL, Auc, Interval, metric_intervals, percentile_intervals, wide_shares
from miue.evaluation.labels import LabelEvaluations
from miue.evaluation.level import (
    Items,
    LevelEvaluation,
    ResampledLevel,
    detection_score,
    error_measure,
    evaluate_level,
)
from miue.evaluation.metrics import NO_LABEL, RECALL, Metric, Owners
from miue.evaluation.ranking import Ranking
from miue.evaluation.tables import OF_DECISIONS

__all__ = [
    "FLAGS_IN_PERCENT",
    "FLAG_TITLES",
    "FROC_TITLES",
    "INTERVAL",
    "LEVEL",
    "METRICS",
    "NAMED_METRICS",
    "NO_LABEL",
    "OF_DECISIONS",
    "RECALL",
    "RISK",
    "Auc",
    "DecisionEvaluation",
    "Evaluation",
    "FlagEvaluation",
    "GroupEvaluation",
    "Interval",
    "Items",
    "LabelEvaluations",
    "LevelEvaluation",
    "Metric",
    "OwnMetric",
    "Owners",
    "Ranking",
    "ResampledLevel",
    "applied_negative_class",
    "check_own_metrics",
    "detection_score",
    "error_measure",
    "evaluate",
    "evaluate_decisions",
    "evaluate_flags",
    "evaluate_froc",
    "evaluate_groups",
    "evaluate_level",
    "froc",
    "is_built_in",
    "metric_intervals",
    "own_metrics",
    "owners_of_items",
    "paired_differences",
    "patients_by_bag",
    "percentile_intervals",
    "resample",
    "units",
    "wide_shares",
]
