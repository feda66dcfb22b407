"""Which scores are distances, what the numbers of measures and scores say, and the color scale of each."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from torch import digamma, tensor

from miue.common.parts import DISTANCES
from miue.distributions import MEASURES, Dirichlet
from miue.predictions.instance_errors import ERROR_PROBABILITY
from miue.predictions.table import PredictionTable

MEAN, HIGH = "_mean", "_high"
FAR = "how far its features are from those of the training instances"
DISTANCE_TEXTS = {
    "knn": FAR,
    "statistics": "how different from the training images it looks: sharpness, noise, color",
    "typicality": "how unusual its features are, nearer or farther than those of training instances",
    "combined": "how different from the training data its appearance or its features are",
}
ERROR_TEXT = "probability that the predicted class is wrong, by bag and instances; fitted to the validation bags"


def distance_of(name: str, names: Collection[str]) -> str | None:
    """Return the distance that a score of instances or of bags is of, None for a score of another kind.

    A distance has a name of the registry, or is there as both mean and high quantile of bags, as a class of a
    user's own is.

    Args:
        name: of the score.
        names: of all scores, of bags and perhaps of their instances.

    >>> distance_of("knn_mean", ["knn_mean"]), distance_of("grade_mean", ["grade_mean"])
    ('knn', None)
    >>> distance_of("median_high", ["median_mean", "median_high"])
    'median'
    """
    summarized = next((name.removesuffix(end) for end in (MEAN, HIGH) if name.endswith(end)), name)
    for base in dict.fromkeys((name, summarized)):
        if base in DISTANCES or {base + MEAN, base + HIGH} <= set(names):
            return base
    return None


def describe_scores(names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the kind of each measure and score, and what its numbers say, by name."""
    described = {}
    for name in names:
        distance = distance_of(name, names)
        if name in MEASURES:
            kind, text = f"{MEASURES[name].kind} uncertainty", MEASURES[name].describes
        elif name == ERROR_PROBABILITY:
            kind, text = "total uncertainty", ERROR_TEXT
        elif distance is not None:
            kind, text = "distance", DISTANCE_TEXTS.get(distance, FAR)
        else:
            kind, text = "score", "a score that came with the predictions"
        described[name] = {"kind": kind, "text": text}
    return described


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
