"""Which scores are distances to the training instances, and what the numbers of measures and scores say."""

from __future__ import annotations

from collections.abc import Collection

from miue.common.parts import DISTANCES
from miue.distributions.measures import MEASURES
from miue.predictions.instance_errors import ERROR_PROBABILITY

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
