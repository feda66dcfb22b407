"""The color scale of each uncertainty: the same in every slide, in heatmaps and in reports."""

from __future__ import annotations

import math

import numpy as np
from torch import digamma, tensor

from miue.distributions import Dirichlet
from miue.predictions.instance_errors import ERROR_PROBABILITY
from miue.predictions.table import PredictionTable


def color_range(table: PredictionTable, name: str) -> tuple[float, float]:
    """Return both ends of the scale of an uncertainty.

    It begins at 0. Probabilities, that of an error too, end at 1, least confidence at 1 − 1 / C, entropies at
    log C. The mutual information of a Dirichlet without evidence (all alpha 1) is log C − ψ(C + 1) + ψ(2), where
    its range ends; that of draws, or of a table where some alpha is below 1, can reach log C. A vacuity ends at 1,
    or at the highest value of the table if that is above. A distance, or any other score, has no such end: its
    scale ends at the highest value of the table, and begins at the lowest if that is negative, as an energy is.

    Args:
        table: predictions of all instances that are drawn.
        name: "probability", or that of a measure or score of the table.
    """
    distribution = table.head.distribution
    classes = distribution.num_classes
    full = math.log(classes)
    ends = {"probability": 1.0, ERROR_PROBABILITY: 1.0, "least_confidence": 1 - 1 / classes}
    ends |= {"entropy": full, "expected_entropy": full}
    if name in ends:
        return 0.0, ends[name]
    if name == "mutual_information":
        flat = full - float(digamma(tensor(classes + 1.0)) - digamma(tensor(2.0)))
        return 0.0, flat if _is_evidence_plus_1(table) else full
    values = np.asarray(table.uncertainty(name))
    if name == "vacuity":
        return 0.0, float(values.max(initial=1.0))
    values = values[np.isfinite(values)]
    lowest, highest = float(values.min(initial=0.0)), float(values.max(initial=-math.inf))
    return (lowest, highest) if highest > lowest else (lowest, lowest + 1.0)


def _is_evidence_plus_1(table: PredictionTable) -> bool:
    """Return whether every alpha is evidence + 1, as that of R-EDL and DAEDL is not."""
    return all(isinstance(one, Dirichlet) and bool((one.alpha >= 1).all()) for one in table.distributions())
