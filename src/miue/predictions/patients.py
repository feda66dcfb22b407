"""From the predictions of bags to those of patients who have several."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Int64

from miue.bags.drawing import group_by_patient
from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.distributions import Draws
from miue.predictions.instance_errors import ERROR_PROBABILITY
from miue.predictions.table import PredictionTable


def by_patient(bags: PredictionTable) -> PredictionTable | None:
    """Return one prediction per patient, or None where no patient has more than one bag.

    A patient's probabilities are the mean over the bags, data uncertainty is the mean of theirs, and what is
    left of the entropy of the mean is model uncertainty: it holds that of the bags, and how much they disagree.
    A bag of an unknown patient stands for itself, by its own name.
    Scores are means, and the error probability one minus the mean of what the bags give to the patient's class. A
    patient has a label where all bags with a label have the same one. A patient is out of
    distribution where all bags are, and in distribution where all bags are known to be so; else it is unknown.
    Where its bags are of several out-of-distribution sets, it is of the set that is called by all of them.

    Args:
        bags: predictions of bags that tell their patients.
    """
    if bags.patients is None:
        return None
    groups = group_by_patient(bags.patients).astype(str)
    _, first, group_of_bag = np.unique(groups, return_index=True, return_inverse=True)
    if len(first) == len(bags):
        return None
    names = np.array([str(bags.patients[row] or bags.bag_ids[row]) for row in first], object)
    order = names.astype(str).argsort(kind="stable")
    names, first, of_bag = names[order], first[order], order.argsort()[group_of_bag]
    counts = np.bincount(of_bag)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(of_bag, values) / counts

    probabilities = np.stack([mean(column) for column in bags.probabilities.T.astype(np.float64)], 1)
    data = mean(bags.distribution.expected_entropy().double().numpy())
    is_out, is_in = (
        np.bincount(of_bag, flags) == counts
        for flags in (bags.is_ood.out_of_distribution, bags.is_ood.in_distribution)
    )
    scores = {name: mean(values) for name, values in bags.scores.items()}
    if ERROR_PROBABILITY in scores:
        scores[ERROR_PROBABILITY] = 1 - mean(_probabilities_of(probabilities.argmax(1)[of_bag], bags))
    return PredictionTable(
        distribution=Draws(torch.from_numpy(probabilities), torch.from_numpy(data)),
        bag_ids=names,
        labels=_shared_labels(bags.labels, of_bag, len(names)),
        is_ood=OodFlags(is_out, is_out | is_in),
        ood_sets=np.where(is_out, _shared_sets(bags.ood_sets, of_bag, len(names)), "").astype(object),
        scores=scores,
    )


def _probabilities_of(classes: Int64[np.ndarray, "B"], bags: PredictionTable) -> Float64[np.ndarray, "B"]:
    """Return how probable one class is for each bag, by its error probability.

    It is that of all classes but the predicted one; of several, each has its share by the bag's probabilities.
    """
    wrong = np.asarray(bags.scores[ERROR_PROBABILITY], np.float64)
    rows, number = np.arange(len(bags)), bags.distribution.num_classes
    others = bags.probabilities.astype(np.float64)
    others[rows, bags.predicted] = 0  # the sum is not 1 − p where p is nearly 1
    total = others.sum(1)
    even = np.full(len(bags), 1 / (number - 1))
    shares = np.divide(others[rows, classes], total, out=even, where=total > 0)
    return np.where(classes == bags.predicted, 1 - wrong, wrong * shares)


def _shared_sets(sets: np.ndarray, of_bag: np.ndarray, count: int) -> np.ndarray:
    """Return the names of the sets of each patient's bags, " + " between several."""
    names: list[set[str]] = [set() for _ in range(count)]
    for patient, name in zip(of_bag.tolist(), sets.tolist(), strict=True):
        if name:
            names[patient].add(str(name))
    return np.array([" + ".join(sorted(of_patient)) for of_patient in names], object)


def _shared_labels(labels: Labels, of_bag: np.ndarray, count: int) -> Labels:
    highest, lowest = np.full(count, -1, np.int64), np.full(count, np.iinfo(np.int64).max)
    np.maximum.at(highest, of_bag[labels.known], labels.values[labels.known])
    np.minimum.at(lowest, of_bag[labels.known], labels.values[labels.known])
    known = highest == lowest
    return Labels(np.where(known, highest, 0), known)
