"""Multi-instance uncertainty estimation: bag and instance predictions that know when they are unsure.

>>> import miue
>>> "mirel" in miue.METHODS, "attention" in miue.NETWORKS
(True, True)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers read; the same names as below, which a test compares
    from miue.bags import BagDataset as BagDataset
    from miue.bags import Segments as Segments
    from miue.bags import concatenate as concatenate
    from miue.bags import join_features as join_features
    from miue.bags import merge_bags as merge_bags
    from miue.bags import with_covariates as with_covariates
    from miue.calibration import Calibration as Calibration
    from miue.calibration import DeferralGoal as DeferralGoal
    from miue.calibration import FalseAlarmGoal as FalseAlarmGoal
    from miue.calibration import InstanceGoal as InstanceGoal
    from miue.calibration import PredictionSetGoal as PredictionSetGoal
    from miue.calibration import TimeBoundGoal as TimeBoundGoal
    from miue.calibration import calibrate as calibrate
    from miue.calibration import decide as decide
    from miue.common.errors import MiueError as MiueError
    from miue.distributions import MEASURES as MEASURES
    from miue.distributions import Categorical as Categorical
    from miue.distributions import Dirichlet as Dirichlet
    from miue.distributions import Draws as Draws
    from miue.evaluation import evaluate as evaluate
    from miue.evidence import ACTIVATIONS as ACTIVATIONS
    from miue.io import load_bags as load_bags
    from miue.io import make_folds as make_folds
    from miue.io import make_split as make_split
    from miue.io import read_store as read_store
    from miue.io import write_store as write_store
    from miue.methods import METHODS as METHODS
    from miue.model import Model as Model
    from miue.model import Recipe as Recipe
    from miue.networks import NETWORKS as NETWORKS
    from miue.networks.encoders import ENCODERS as ENCODERS
    from miue.pathology.export.folders import export as export
    from miue.predictions import Predictions as Predictions
    from miue.predictions import read_predictions as read_predictions
    from miue.report.report import write_report as write_report
    from miue.scores import DISTANCES as DISTANCES
    from miue.selection import check_mil as check_mil
    from miue.selection import check_vanishing as check_vanishing
    from miue.selection import choose as choose
    from miue.selection import compare as compare
    from miue.selection import cross_validate as cross_validate
    from miue.settings import TrainingConfig as TrainingConfig
    from miue.sklearn import MILMultiLabelClassifier as MILMultiLabelClassifier
    from miue.sklearn import MILSurvivalEstimator as MILSurvivalEstimator
    from miue.sklearn import MILUncertaintyClassifier as MILUncertaintyClassifier
    from miue.sklearn import MILUncertaintyRegressor as MILUncertaintyRegressor
    from miue.training.train import train as train

    __version__: str

_PUBLIC = {
    "ACTIVATIONS": "miue.evidence",
    "BagDataset": "miue.bags",
    "Calibration": "miue.calibration",
    "Categorical": "miue.distributions",
    "DISTANCES": "miue.scores",
    "Dirichlet": "miue.distributions",
    "Draws": "miue.distributions",
    "ENCODERS": "miue.networks.encoders",
    "MEASURES": "miue.distributions",
    "FalseAlarmGoal": "miue.calibration",
    "InstanceGoal": "miue.calibration",
    "PredictionSetGoal": "miue.calibration",
    "TimeBoundGoal": "miue.calibration",
    "METHODS": "miue.methods",
    "MILMultiLabelClassifier": "miue.sklearn",
    "MILSurvivalEstimator": "miue.sklearn",
    "MILUncertaintyClassifier": "miue.sklearn",
    "MILUncertaintyRegressor": "miue.sklearn",
    "MiueError": "miue.common.errors",
    "Model": "miue.model",
    "NETWORKS": "miue.networks",
    "Predictions": "miue.predictions",
    "Recipe": "miue.model",
    "DeferralGoal": "miue.calibration",
    "Segments": "miue.bags",
    "TrainingConfig": "miue.settings",
    "calibrate": "miue.calibration",
    "check_mil": "miue.selection",
    "check_vanishing": "miue.selection",
    "concatenate": "miue.bags",
    "choose": "miue.selection",
    "compare": "miue.selection",
    "cross_validate": "miue.selection",
    "decide": "miue.calibration",
    "evaluate": "miue.evaluation",
    "export": "miue.pathology.export.folders",
    "join_features": "miue.bags",
    "load_bags": "miue.io",
    "make_folds": "miue.io",
    "make_split": "miue.io",
    "merge_bags": "miue.bags",
    "read_predictions": "miue.predictions",
    "read_store": "miue.io",
    "train": "miue.training.train",
    "with_covariates": "miue.bags",
    "write_report": "miue.report.report",
    "write_store": "miue.io",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used, so that ``miue --help`` need not load PyTorch."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("miue")
    raise AttributeError(f"module 'miue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__version__"]
