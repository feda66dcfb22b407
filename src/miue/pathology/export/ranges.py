"""Where the color scale of each uncertainty ends: the same in every slide, in heatmaps and in reports."""

from __future__ import annotations

import math

import numpy as np
from torch import digamma, tensor

from miue.distributions import Dirichlet
from miue.predictions.table import PredictionTable


def highest_value(table: PredictionTable, name: str) -> float:
    """Return the upper end of the scale of an uncertainty, which begins at 0.

    Probabilities and vacuity end at 1, least confidence at 1 − 1 / C, entropies at log C. The mutual information
    of a Dirichlet without evidence (all alpha 1) is log C − ψ(C + 1) + ψ(2), where its range ends; that of draws
    can reach log C. A distance, or any other score, has no such end: its scale ends at the highest value of the
    table.

    Args:
        table: predictions of all instances that are drawn.
        name: "probability", or that of a measure or score of the table.
    """
    distribution = table.head.distribution
    classes = distribution.num_classes
    full = math.log(classes)
    flat = full - float(digamma(tensor(classes + 1.0)) - digamma(tensor(2.0)))
    ends = {"probability": 1.0, "vacuity": 1.0, "least_confidence": 1 - 1 / classes}
    ends |= {"entropy": full, "expected_entropy": full}
    ends["mutual_information"] = flat if isinstance(distribution, Dirichlet) else full
    if name in ends:
        return ends[name]
    values = np.asarray(table.uncertainty(name))
    values = values[np.isfinite(values)]
    return float(values.max()) if len(values) and values.max() > 0 else 1.0
