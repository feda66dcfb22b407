"""The scikit-learn estimators of bags."""

from miue.sklearn.classifier import MILUncertaintyClassifier
from miue.sklearn.multi_label import MILMultiLabelClassifier
from miue.sklearn.per_bag import BagScorer, BagSplitter
from miue.sklearn.regressor import MILSurvivalEstimator, MILUncertaintyRegressor

__all__ = [
    "BagScorer",
    "BagSplitter",
    "MILMultiLabelClassifier",
    "MILSurvivalEstimator",
    "MILUncertaintyClassifier",
    "MILUncertaintyRegressor",
]
