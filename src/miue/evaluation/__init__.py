"""How good predictions are: of classes, and of their own uncertainty. Reads predictions, never a network."""

from __future__ import annotations

from miue.evaluation.evaluate import evaluate
from miue.evaluation.evaluation import Evaluation
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import Metric

__all__ = ["Evaluation", "LevelEvaluation", "Metric", "evaluate"]
