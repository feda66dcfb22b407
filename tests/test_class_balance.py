"""Training on as many bags of each class, where one class is rare."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_bags import labeled, separable_bags

import miue
from miue.bags import BagDataset, shuffled_batches
from miue.common.errors import ConfigError
from miue.model.recipe import settings_by_size
from miue.settings import TrainingConfig
from miue.training.learner import EpochSums, TrainingData, validation_weights

BALANCED = TrainingConfig.model_validate({**settings_by_size(30, 90), "class_balanced": True})
AS_THEY_ARE = TrainingConfig.model_validate(settings_by_size(30, 90))


def bags_of(labels: list[int], classes: int = 2) -> BagDataset:
    names = [f"class {number}" for number in range(classes)]
    return BagDataset.from_arrays([np.full((2, 3), float(label)) for label in labels], labels, class_names=names)


def drawn(bags: BagDataset, epoch: int = 0, **more: int) -> np.ndarray:
    batches = shuffled_batches(bags, 1, seed=3, epoch=epoch, class_balanced=True, **more)
    return np.concatenate(batches.groups)


@given(counts=st.lists(st.integers(0, 30), min_size=2, max_size=4).filter(lambda c: sum(n > 0 for n in c) > 1))
def test_each_class_is_drawn_as_often_and_each_of_its_bags_too(counts: list[int]) -> None:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    order = drawn(bags_of(labels, len(counts)))
    assert len(order) == len(labels)
    of_class = Counter(labels[bag] for bag in order)
    assert set(of_class) == set(labels)
    assert max(of_class.values()) - min(of_class.values()) <= 1
    of_bag = Counter(order.tolist())
    for label in set(labels):
        times = [of_bag[bag] for bag in range(len(labels)) if labels[bag] == label]
        assert max(times) - min(times) <= 1


def test_other_epochs_take_other_bags_of_the_frequent_class() -> None:
    bags = bags_of([0] * 18 + [1] * 2)
    assert drawn(bags, 0).tolist() == drawn(bags, 0).tolist()
    epochs = [set(drawn(bags, epoch)[drawn(bags, epoch) < 18].tolist()) for epoch in range(20)]
    assert all(len(chosen) == 10 for chosen in epochs)
    assert set.union(*epochs) == set(range(18))


def test_processes_share_the_batches_of_one() -> None:
    bags = bags_of([0] * 18 + [1] * 6)
    shares = []
    for rank, processes in ((0, 1), (0, 2), (1, 2)):
        shares.append(TrainingData(bags, bags, BALANCED, processes=processes, rank=rank).updates(4).groups)
    for whole, one, two in zip(*shares, strict=True):
        assert sorted([*one, *two]) == sorted(whole)
    assert 10 <= np.count_nonzero(np.concatenate(shares[0]) >= 18) <= 14


def test_validation_counts_classes_and_not_bags() -> None:
    bags = bags_of([0, 0, 0, 1], classes=3)
    weights = validation_weights(bags, BALANCED)
    assert weights.tolist() == [4 / 2 / 3, 4 / 2 / 1, 0]
    assert validation_weights(bags, AS_THEY_ARE).tolist() == [1, 1, 1]
    p = torch.tensor([[0.9, 0.1, 0], [0.8, 0.2, 0], [0.4, 0.6, 0], [0.7, 0.3, 0]], dtype=torch.float64)
    sums = EpochSums(weights)
    sums.add_update(1.0)
    sums.add_validation(p.log(), labeled(torch.tensor([0, 0, 0, 1])))
    found = sums.values(1, "lower it")
    nll = (-np.log([0.9, 0.8, 0.4]).mean() - np.log(0.3)) / 2
    assert found["validation_nll"] == pytest.approx(nll)
    assert found["validation_error"] == pytest.approx((1 / 3 + 1) / 2)


def test_the_note_on_a_training_that_learned_nothing_counts_as_validation_does() -> None:
    bags = separable_bags(80).subset([*range(1, 80, 2), *range(0, 20, 2)])  # ten of fifty are positive
    settings = {"max_epochs": 1, "learning_rate": 1e-12}
    for balanced, constant in ((False, 0.5004 + 0.2), (True, np.log(2) + 0.5)):
        chosen = {**settings, "class_balanced": balanced, "validation_fraction": 0}
        model = miue.train(bags, encoder="mlp", settings={**chosen, "distances": ()}, progress=False)
        assert model.training is not None
        assert model.training.constant_criterion == pytest.approx(constant, abs=1e-4)
        of_classes = r"class-balanced NLL \+ error is .* and equal shares of the classes as prediction of"
        of_bags = r"NLL \+ error is .* and the class shares as prediction of"
        assert re.search(of_classes if balanced else of_bags, model.training.warning)


@pytest.mark.long
def test_a_rare_class_is_predicted_more_often() -> None:
    random = np.random.default_rng(0)
    labels = [0] * 90 + [1] * 10
    arrays = [random.normal(0.8 * label, 1.0, (3, 4)).astype(np.float32) for label in labels]
    bags, new = (BagDataset.from_arrays(arrays[part::2], labels[part::2]) for part in (0, 1))
    positive = []
    for balanced in (False, True):
        settings = {"max_epochs": 10, "validation_fraction": 0, "class_balanced": balanced}
        model = miue.train(
            bags, encoder="mlp", method="softmax", settings={**settings, "distances": ()}, progress=False
        )
        positive.append(model.predict(new).bags.probabilities[:, 1].mean())
    assert positive[0] < 0.2
    assert positive[1] > 1.5 * positive[0]


def test_only_truth_values_are_taken() -> None:
    with pytest.raises(ConfigError, match="class_balanced"):
        miue.train(separable_bags(8), settings={"class_balanced": "positive"}, progress=False)
