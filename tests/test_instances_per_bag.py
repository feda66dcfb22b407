"""Training on a few instances of each bag, drawn anew in each epoch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import separable_bags, train_with

import miue
from miue.bags import BagBatch, BagDataset, PackedBatches, shuffled_batches
from miue.bags.arrays import ChainedInstances
from miue.common.errors import ConfigError, DataError
from miue.training.learner import TrainingData

SIZES = (2, 11, 3, 7, 13, 5)


@pytest.fixture
def numbered() -> BagDataset:
    """Bags of which each instance is its own number."""
    instances = np.arange(sum(SIZES), dtype=np.float32)[:, None]
    bags = BagDataset.from_arrays(np.split(instances, np.cumsum(SIZES)[:-1]), [0, 1] * 3)
    return replace(bags, instances=ChainedInstances([instances[:20], instances[20:]]))


def by_bag(batches: PackedBatches) -> dict[int, list[float]]:
    """The instances of each bag that an epoch reads."""
    read: list[BagBatch] = list(batches)
    return {
        int(bag): part.flatten().tolist()
        for group, batch in zip(batches.groups, read, strict=True)
        for bag, part in zip(group, batch.segments.split(batch.instances), strict=True)
    }


def test_each_epoch_draws_other_instances_of_large_bags_and_all_of_small_ones(numbered: BagDataset) -> None:
    first, second = (
        by_bag(shuffled_batches(numbered, 2, seed=1, epoch=epoch, instances_per_bag=5)) for epoch in (0, 1)
    )
    for bag, size in enumerate(SIZES):
        own = range(int(numbered.starts[bag]), int(numbered.starts[bag]) + size)
        for drawn in (first[bag], second[bag]):
            assert drawn == sorted(set(drawn)) and len(drawn) == min(5, size) and set(drawn) <= set(own)
        assert (first[bag] == second[bag]) == (size <= 5)


def test_what_is_drawn_of_a_bag_depends_on_neither_its_batch_nor_the_processes(numbered: BagDataset) -> None:
    draw: dict[str, Any] = {"seed": 1, "epoch": 3, "instances_per_bag": 4}
    alone = by_bag(shuffled_batches(numbered, 1, **draw))
    shares = [by_bag(shuffled_batches(numbered, 6, rank=rank, processes=2, **draw)) for rank in (0, 1)]
    assert alone == by_bag(shuffled_batches(numbered, 3, **draw)) == shares[0] | shares[1]
    assert alone != by_bag(shuffled_batches(numbered, 1, **{**draw, "seed": 2}))


def test_validation_sees_all_instances(numbered: BagDataset) -> None:
    config = miue.Recipe(settings={"instances_per_bag": 2}).training_config(numbered)
    data = TrainingData(numbered, numbered, config)
    assert {len(rows) for rows in by_bag(data.updates(0)).values()} == {2}
    assert [len(by_bag(data.validation())[bag]) for bag in range(6)] == list(SIZES)


def test_the_number_of_epochs_follows_from_the_instances_that_are_read() -> None:
    bags = BagDataset.packed(np.zeros((1, 1)), np.full(32, 1_000_000), [str(number) for number in range(32)])
    epochs = [
        miue.Recipe(settings=some).training_config(bags).max_epochs for some in ({}, {"instances_per_bag": 9})
    ]
    assert epochs == [50, 500]


def test_a_value_that_is_not_finite_is_named_by_its_row_in_the_whole_bag() -> None:
    bags = BagDataset.from_arrays([np.zeros((9, 2)), np.ones((9, 2))], [0, 1], ids=["a", "b"])
    np.asarray(bags.instances)[13] = np.nan
    with pytest.raises(DataError, match="bag 'b', row 4: "):
        bags.batch([0, 1], rows=[np.array([1]), np.array([2, 4])])


@pytest.mark.parametrize("settings", [{"instances_per_bag": 0}, {"instances_per_bag": -3}])
def test_less_than_one_instance_is_refused(settings: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="instances_per_bag: expected greater than or equal to 1 or None, got"):
        miue.train(separable_bags(8), settings=settings, progress=False)


def test_more_than_any_bag_has_changes_nothing_and_is_said_once() -> None:
    bags, quick = separable_bags(16), {"max_epochs": 2, "device": "cpu", "distances": (), "progress": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        limited = train_with(bags, instances_per_bag=7, **quick)
    assert [str(one.message) for one in caught] == [
        "instances_per_bag=7 changes nothing: no bag is larger than 7 instances, so that all are used"
    ]
    wanted = train_with(bags, **quick).method.state_dict()
    assert all(torch.equal(weight, wanted[name]) for name, weight in limited.method.state_dict().items())
    fewer = train_with(bags, instances_per_bag=2, **quick).method.state_dict()
    assert not all(torch.equal(fewer[name], wanted[name]) for name in wanted)
