"""Which scores are distances to the training instances: "knn" of instances, "knn_mean" and "knn_high" of bags."""

from __future__ import annotations

from collections.abc import Collection

from miue.common.parts import DISTANCES

MEAN, HIGH = "_mean", "_high"


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
