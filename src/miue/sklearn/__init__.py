"""The scikit-learn classifier of bags."""

from miue.sklearn.classifier import MILUncertaintyClassifier

__all__ = ["MILUncertaintyClassifier"]
