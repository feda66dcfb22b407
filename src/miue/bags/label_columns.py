"""Label leakage: columns of a table that are taken for features though they hold labels of bags or instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

from miue.bags.labels import Labels
from miue.common.errors import first_few

FEWEST_BAGS = 10
"""With fewer labeled bags, a feature agrees with them too easily by chance."""


def label_columns(
    bags: Sequence[Shaped[np.ndarray, "_ D"]], labels: Labels, feature_names: Sequence[str]
) -> list[str]:
    """Return the features that give away the class of every labeled bag by their highest or lowest value in it.

    Each class has one such value, and no other class has it: so does a column with the class of each instance or
    bag, whatever numbers stand for the classes.

    Args:
        bags: features of the instances of each.
        labels: of the bags.
        feature_names: of the D features.

    >>> bags = [np.array([[0, 3.1], [bag % 2, 0.5 * bag]]) for bag in range(10)]
    >>> label_columns(bags, Labels.of([0, 1] * 5), ["is_tumor", "area"])
    ['is_tumor']
    """
    classes = np.unique(labels.values[labels.known])
    if labels.known.sum() < FEWEST_BAGS or len(classes) < 2:
        return []
    leaks = np.zeros(len(feature_names), bool)
    for extreme in (np.max, np.min):
        of_bags = np.stack([extreme(bag, axis=0) for bag in bags])
        of_class = [of_bags[labels.known & (labels.values == number)] for number in classes]
        highest, lowest = np.stack([own.max(0) for own in of_class]), np.stack([own.min(0) for own in of_class])
        leaks |= (highest == lowest).all(0) & (np.diff(np.sort(highest, 0), axis=0) > 0).all(0)
    return [name for name, leaking in zip(feature_names, leaks, strict=True) if leaking]


def describe_label_columns(found: Sequence[str], how_to_choose: str) -> str:
    """Return what to do about features that give away the class of every labeled bag.

    Args:
        found: their names.
        how_to_choose: how a user says which columns are features.
    """
    return (
        "taken for features, but telling the class of every labeled bag by one number for each class: "
        f"{first_few(map(repr, found))}; if that is a label, learn without it: rename a label of instances to "
        f"instance_label, or choose the features ({how_to_choose})"
    )
