"""How good predictions are: of classes, and of their own uncertainty. Reads predictions, never a network."""

from __future__ import annotations

from miue.evaluation.class_metrics import METRICS, OwnMetric, check_own_metrics, is_built_in, own_metrics, units
from miue.evaluation.decisions import DecisionEvaluation, evaluate_decisions
from miue.evaluation.evaluate import evaluate
from miue.evaluation.evaluation import Evaluation, GroupEvaluation
from miue.evaluation.instances import FlagEvaluation, froc
from miue.evaluation.intervals import Auc, Interval
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import Metric

__all__ = [
    "METRICS",
    "Auc",
    "DecisionEvaluation",
    "Evaluation",
    "FlagEvaluation",
    "GroupEvaluation",
    "Interval",
    "LevelEvaluation",
    "Metric",
    "OwnMetric",
    "check_own_metrics",
    "evaluate",
    "evaluate_decisions",
    "froc",
    "is_built_in",
    "own_metrics",
    "units",
]
