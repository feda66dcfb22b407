"""From the predictions of bags to those of patients who have several."""

from __future__ import annotations

import numpy as np
import torch

from miue.bags import Labels, OodFlags, Outcomes, group_by_patient
from miue.distributions import Draws
from miue.predictions.instance_errors import ERROR_PROBABILITY, probabilities_by_error
from miue.predictions.table import PredictionTable


def by_patient(bags: PredictionTable) -> PredictionTable | None:
    """Return one prediction per patient, or None where no patient has more than one bag.

    A patient's probabilities are the mean over the bags, data uncertainty is the mean of theirs, and what is
    left of the entropy of the mean is model uncertainty: it holds that of the bags, and how much they disagree.
    A bag of an unknown patient stands for itself, by its own name, with " (bag)" after that of a patient.
    Scores are means, and the error probability one minus the mean of what the bags give to the patient's class. A
    patient has a label where all bags with a label have the same one. A patient is out of
    distribution where all bags are, and in distribution where all bags are known to be so; else it is unknown.
    Where its bags are of several out-of-distribution sets, it is of the set that is called by all of them.

    Args:
        bags: predictions of bags whose patients are known, at least of some.
    """
    if bags.patients is None:
        return None
    groups = group_by_patient(bags.patients).astype(str)
    _, first, group_of_bag = np.unique(groups, return_index=True, return_inverse=True)
    if len(first) == len(bags):
        return None
    names = np.array(_names(bags.patients[first], bags.bag_ids[first]), object)
    order = names.astype(str).argsort(kind="stable")
    names, of_bag = names[order], order.argsort()[group_of_bag]
    counts = np.bincount(of_bag)

    def mean(values: np.ndarray) -> np.ndarray:
        rows = np.lexsort((values, of_bag))  # sums that depend on no order, so that classes that tie do so in all
        return np.bincount(of_bag[rows], values[rows]) / counts

    probabilities = np.stack([mean(column) for column in bags.probabilities.T], 1)
    data = mean(bags.distribution.expected_entropy().double().numpy())
    is_out, is_in = (
        np.bincount(of_bag, flags) == counts
        for flags in (bags.is_ood.out_of_distribution, bags.is_ood.in_distribution)
    )
    scores = {name: mean(values) for name, values in bags.scores.items()}
    if ERROR_PROBABILITY in scores:
        of_class = probabilities_by_error(bags)[np.arange(len(bags)), probabilities.argmax(1)[of_bag]]
        scores[ERROR_PROBABILITY] = 1 - mean(of_class)
    return PredictionTable(
        distribution=Draws(torch.from_numpy(probabilities), torch.from_numpy(data)),
        bag_ids=names,
        labels=_shared_labels(bags.labels, of_bag, len(names)),
        outcomes=None if bags.outcomes is None else _shared_outcomes(bags.outcomes, of_bag, len(names)),
        target=bags.target,
        is_ood=OodFlags(is_out, is_out | is_in),
        ood_sets=np.where(is_out, _shared_sets(bags.ood_sets, of_bag, len(names)), "").astype(object),
        scores=scores,
    )


def _names(patients: np.ndarray, bag_ids: np.ndarray) -> list[str]:
    """Return different names of patients and, where the patient is unknown, bags, of which each has one row."""
    taken = {str(patient) for patient in patients if patient}
    names = []
    for patient, bag in zip(patients.tolist(), bag_ids.tolist(), strict=True):
        name = str(patient or bag)
        while not patient and name in taken:
            name += " (bag)"
        taken.add(name)
        names.append(name)
    return names


def _shared_sets(sets: np.ndarray, of_bag: np.ndarray, count: int) -> np.ndarray:
    """Return the names of the sets of each patient's bags, " + " between several."""
    names: list[set[str]] = [set() for _ in range(count)]
    for patient, name in zip(of_bag.tolist(), sets.tolist(), strict=True):
        if name:
            names[patient].add(str(name))
    return np.array([" + ".join(sorted(of_patient)) for of_patient in names], object)


def _shared_outcomes(outcomes: Outcomes, of_bag: np.ndarray, count: int) -> Outcomes:
    """Return the number of each patient, known where all bags that have one have the same."""
    number = np.unique([outcomes.values, outcomes.observed], axis=1, return_inverse=True)[1].reshape(-1)
    shared = _shared_labels(Labels(number.astype(np.int64), outcomes.known), of_bag, count)
    first = np.array([np.argmax(number == one) for one in range(int(number.max(initial=0)) + 1)], np.int64)
    rows = first[shared.values]
    return Outcomes(np.where(shared.known, outcomes.values[rows], 0.0), shared.known, outcomes.observed[rows])


def _shared_labels(labels: Labels, of_bag: np.ndarray, count: int) -> Labels:
    highest, lowest = np.full(count, -1, np.int64), np.full(count, np.iinfo(np.int64).max)
    np.maximum.at(highest, of_bag[labels.known], labels.values[labels.known])
    np.minimum.at(lowest, of_bag[labels.known], labels.values[labels.known])
    known = highest == lowest
    return Labels(np.where(known, highest, 0), known)
