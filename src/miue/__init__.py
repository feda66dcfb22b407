"""Multi-instance uncertainty estimation: bag and instance predictions that know when they are unsure.

>>> import miue
>>> sorted(miue.METHODS)
['bayes-mil', 'deep-ensemble', 'deterministic', 'edl', 'i-edl', 'mc-dropout', 'mirel']
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "ACTIVATIONS": "miue.evidence",
    "BagDataset": "miue.bags",
    "Calibration": "miue.calibration",
    "Categorical": "miue.distributions",
    "DISTANCES": "miue.distances",
    "Dirichlet": "miue.distributions",
    "Draws": "miue.distributions",
    "ENCODERS": "miue.encoders",
    "MEASURES": "miue.measures",
    "FalseAlarmGoal": "miue.calibration",
    "LabelSetGoal": "miue.calibration",
    "METHODS": "miue.methods",
    "MILUncertaintyClassifier": "miue.estimator",
    "MiueError": "miue.errors",
    "Model": "miue.model",
    "NETWORKS": "miue.networks",
    "Predictions": "miue.predictions",
    "ReferralGoal": "miue.calibration",
    "Segments": "miue.segments",
    "TORCHMIL_NETWORKS": "miue.networks",
    "TrainingConfig": "miue.config",
    "calibrate": "miue.calibration",
    "decide": "miue.calibration",
    "evaluate": "miue.evaluation",
    "read_predictions": "miue.predictions",
    "read_store": "miue.data",
    "train": "miue.api",
    "train_seeds": "miue.api",
    "write_store": "miue.data",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used, so that ``miue --help`` need not load PyTorch."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'miue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__doc__"]
