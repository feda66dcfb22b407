"""The scikit-learn estimators of bags."""

from miue.sklearn.classifier import MILUncertaintyClassifier
from miue.sklearn.per_bag import BagScorer, BagSplitter
from miue.sklearn.regressor import MILSurvivalEstimator, MILUncertaintyRegressor

__all__ = [
    "BagScorer",
    "BagSplitter",
    "MILSurvivalEstimator",
    "MILUncertaintyClassifier",
    "MILUncertaintyRegressor",
]
