"""Multi-instance uncertainty estimation: bag and instance predictions that know when they are unsure.

>>> import miue
>>> "mirel" in miue.METHODS, "attention" in miue.NETWORKS
(True, True)
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "ACTIVATIONS": "miue.evidence",
    "BagDataset": "miue.bags.dataset",
    "Calibration": "miue.calibration",
    "Categorical": "miue.distributions",
    "DISTANCES": "miue.scores",
    "Dirichlet": "miue.distributions",
    "Draws": "miue.distributions",
    "ENCODERS": "miue.networks.encoders",
    "MEASURES": "miue.distributions.measures",
    "FalseAlarmGoal": "miue.calibration",
    "LabelSetGoal": "miue.calibration",
    "METHODS": "miue.methods",
    "MILUncertaintyClassifier": "miue.sklearn.classifier",
    "MiueError": "miue.common.errors",
    "Model": "miue.model.model",
    "NETWORKS": "miue.networks",
    "Predictions": "miue.predictions.folder",
    "ReferralGoal": "miue.calibration",
    "Segments": "miue.bags.segments",
    "TrainingConfig": "miue.model.config",
    "calibrate": "miue.calibration",
    "decide": "miue.calibration",
    "evaluate": "miue.evaluation",
    "read_predictions": "miue.predictions.folder",
    "read_store": "miue.io.store",
    "train": "miue.training.train",
    "train_seeds": "miue.training.train",
    "write_store": "miue.io.store",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used, so that ``miue --help`` need not load PyTorch."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'miue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__doc__"]
