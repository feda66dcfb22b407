"""The scikit-learn estimators of bags."""

from miue.sklearn.classifier import MILUncertaintyClassifier
from miue.sklearn.regressor import MILSurvivalEstimator, MILUncertaintyRegressor

__all__ = ["MILSurvivalEstimator", "MILUncertaintyClassifier", "MILUncertaintyRegressor"]
