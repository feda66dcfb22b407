"""The measures by which errors and out-of-distribution items are detected unless others are chosen."""

from __future__ import annotations

from miue.calibration.deferral import PREFERRED_MEASURES
from miue.calibration.false_alarms import PREFERRED_SCORES
from miue.distributions import Dirichlet
from miue.predictions.table import PredictionTable


def default_measures(table: PredictionTable) -> tuple[str, str]:
    """Return the measures behind Conf. and OOD that the paper uses for this kind of distribution."""
    if isinstance(table.head.distribution, Dirichlet):
        return "inverse_max_alpha", "vacuity"
    return "least_confidence", "least_confidence"


def error_measure(table: PredictionTable) -> str:
    """Return the measure that ``calibrate`` defers bags by unless another is chosen, of bags or of instances."""
    return next(name for name in PREFERRED_MEASURES if name in table.uncertainty_names)


def detection_score(table: PredictionTable) -> str:
    """Return the score by which ``calibrate`` calls bags out of distribution unless another is chosen.

    Of instances it is the one that corresponds: "knn" to the bags' "knn_mean".
    """
    known = table.uncertainty_names
    names = (name for preferred in PREFERRED_SCORES for name in (preferred, preferred.removesuffix("_mean")))
    return next(name for name in names if name in known)
