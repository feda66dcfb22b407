"""From bags to patients, against a loop over the patients."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import torch
from scipy.special import digamma

from miue.bags import Labels, OodFlags
from miue.distributions import Categorical, Dirichlet
from miue.predictions import PredictionTable, by_patient


def table_of(
    patients: list[str], labels: list[int | None], ids: list[str] | None = None, seed: int = 0
) -> PredictionTable:
    """Two classes, two scores, and flags of which some are unknown or of no set."""
    random = np.random.default_rng(seed)
    count = len(patients)
    is_ood = OodFlags.of([(None, False, True)[kind] for kind in random.integers(3, size=count)])
    sets = np.where(is_ood.out_of_distribution, random.choice(["", "a", "b"], size=count), "").astype(object)
    return PredictionTable(
        Dirichlet(torch.from_numpy(random.gamma(2, 3, size=(count, 2)))),
        np.array(ids or [f"bag {row * 7 % count:02d}" for row in range(count)], object),
        Labels.of(labels),
        is_ood,
        sets,
        scores={"knn_mean": random.normal(size=count), "error_probability": random.random(count) / 2},
        patients=np.array(patients, object),
    )


def test_each_patient_is_what_a_loop_over_its_bags_gives() -> None:
    random = np.random.default_rng(1)
    whose = [str(name) for name in random.choice(["", "p", "q", "r", "bag 99", "a"], size=60)]
    labels: list[int | None] = [(None, 0, 1, 150)[kind] for kind in random.integers(4, size=60)]
    for row, name in enumerate(whose):  # all known ones alike
        labels[row] = {"q": 150 if labels[row] else None, "r": 1 if labels[row] else None}.get(name, labels[row])
    bags = table_of(whose, labels)
    patients = by_patient(bags)
    assert patients is not None
    names = [name or bag for name, bag in zip(whose, bags.bag_ids, strict=True)]
    assert patients.bag_ids.tolist() == sorted(set(names))
    alpha = bags.distribution.alpha.numpy()  # type: ignore[attr-defined]
    probabilities = alpha / alpha.sum(1, keepdims=True)
    aleatoric = -(probabilities * (digamma(alpha + 1) - digamma(alpha.sum(1, keepdims=True) + 1))).sum(1)
    error = bags.scores["error_probability"]
    for row, name in enumerate(patients.bag_ids):
        mine = [other for other, whose_bag in enumerate(names) if whose_bag == name]
        np.testing.assert_allclose(patients.probabilities[row], probabilities[mine].mean(0))
        measures = patients.uncertainties()
        np.testing.assert_allclose(measures["expected_entropy"][row], aleatoric[mine].mean())
        np.testing.assert_allclose(measures["knn_mean"][row], bags.scores["knn_mean"][mine].mean())
        is_predicted = probabilities[mine].argmax(1) == probabilities[mine].mean(0).argmax()
        of_class = np.where(is_predicted, 1 - error[mine], error[mine])
        np.testing.assert_allclose(measures["error_probability"][row], 1 - of_class.mean(), atol=1e-6)
        known = {labels[other] for other in mine} - {None}
        assert list(patients.labels)[row] == (known.pop() if len(known) == 1 else None)
        flags = {list(bags.is_ood)[other] for other in mine}
        flag = flags.pop() if len(flags) == 1 else None
        assert list(patients.is_ood)[row] == flag
        sets = sorted({str(bags.ood_sets[other]) for other in mine} - {""})
        assert patients.ood_sets[row] == (" + ".join(sets) if flag else "")


def test_a_set_without_a_name_is_none_of_those_of_a_patient() -> None:
    bags = table_of(["P", "P"], [None, None])
    named = PredictionTable(
        bags.distribution, bags.bag_ids, bags.labels, OodFlags.of([True, True]), np.array(["", "far"], object)
    )
    patients = by_patient(PredictionTable(**{**vars(named), "patients": bags.patients}))
    assert patients is not None and patients.ood_sets.tolist() == ["far"]


def test_bags_of_unknown_patients_keep_names_of_their_own() -> None:
    bags = table_of(["A", "", "A", "A (bag)", ""], [None] * 5, ["1", "A", "2", "3", "A (bag) (bag)"])
    patients = by_patient(bags)
    assert patients is not None and len(set(patients.bag_ids)) == 4
    assert {"A", "A (bag)"} < set(patients.bag_ids)
    row = patients.bag_ids.tolist().index("A")
    np.testing.assert_allclose(patients.probabilities[row], bags.probabilities[[0, 2]].mean(0))


def test_a_patient_whose_bags_tie_is_predicted_the_same_in_whatever_order_they_are() -> None:
    votes = torch.tensor(
        [[0.2, 0.0, 0.8], [0.0, 0.8, 0.2], [0.6, 0.2, 0.2], [0.4, 0.4, 0.2], [0.6, 0.4, 0.0]], dtype=torch.float64
    )  # of five members: the mean of two classes is 0.36, and their sums in this order are not the same float
    count = len(votes)
    bags = PredictionTable(
        Categorical(votes),
        np.array([f"bag {row}" for row in range(count)], object),
        Labels.unknown(count),
        OodFlags.unknown(count),
        np.full(count, "", object),
        scores={"knn_mean": votes[:, 0].numpy()},
        patients=np.full(count, "P", object),
    )
    first = by_patient(bags)
    assert first is not None and first.predicted.tolist() == [0]
    for order in permutations(range(count)):
        patients = by_patient(bags.subset(np.array(order)))
        assert patients is not None
        np.testing.assert_array_equal(patients.probabilities, first.probabilities)
        for name, values in patients.uncertainties().items():
            np.testing.assert_array_equal(values, first.uncertainty(name), name)
