"""Datasets put together keep all that is known of their bags, and what no part knows stays unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import miue
from miue.bags import BagDataset, Coords, ItemColumns, Labels, OodFlags, concatenate
from miue.common.errors import DataError


def known_part() -> BagDataset:
    """Three bags of which everything is known."""
    bags = BagDataset.from_arrays(
        [np.full((n, 2), float(n)) for n in (3, 1, 2)],
        ["tumor", "normal", None],
        ids=["a", "b", "c"],
        is_ood=[False, True, None],
        patients=["p", None, "q"],
        coords=[np.full((n, 2), 100 * n) for n in (3, 1, 2)],
    )
    return replace(bags, patch_sizes=np.array([256, 512, 256]), splits=("train", "test", ""))


def bare_part() -> BagDataset:
    return BagDataset.from_arrays([np.zeros((2, 2)), np.ones((1, 2))], ["normal", "normal"], ids=["x", "y"])


def test_nothing_that_one_part_knows_is_lost() -> None:
    whole = concatenate([bare_part(), known_part().subset([2, 0])])
    assert whole.ids == ("x", "y", "c", "a")
    assert whole.patients == ("", "", "q", "p")
    assert whole.patch_sizes is not None and whole.patch_sizes.tolist() == [0, 0, 256, 256]
    assert whole.splits == ("", "", "", "train")
    assert [whole.class_names[v] for v in whole.labels.values[whole.labels.known]] == ["normal", "normal", "tumor"]
    assert whole.is_ood.in_distribution.tolist() == [False, False, False, True]
    assert whole.without_coords == ("x", "y")
    coords = whole.instance_columns.coords
    assert coords is not None and coords.values[coords.known][:, 0].tolist() == [200, 200, 300, 300, 300]
    assert whole.batch([2, 3]).instances[:, 0].tolist() == [2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("extractors", "kept"), [(("uni", "uni"), "uni"), (("uni", "virchow"), ""), (("", "uni"), "")]
)
def test_the_extractor_is_that_of_all_parts_or_none(extractors: tuple[str, str], kept: str) -> None:
    parts = [
        replace(part, extractor=name) for part, name in zip((bare_part(), known_part()), extractors, strict=True)
    ]
    assert concatenate(parts).extractor == kept


@pytest.mark.parametrize("field", ["patients", "coords", "patch_sizes"])
def test_what_no_part_knows_stays_unknown(field: str) -> None:
    assert getattr(concatenate([bare_part(), replace(bare_part(), ids=("u", "v"))]), field) is None


def test_stores_that_are_put_together_stay_on_disk(tmp_path: Path) -> None:
    miue.write_store(tmp_path / "a", known_part())
    miue.write_store(tmp_path / "b", bare_part())
    whole = concatenate([miue.read_store(tmp_path / "a"), miue.read_store(tmp_path / "b")])
    assert not isinstance(whole.instances, np.ndarray)
    wanted = concatenate([known_part(), bare_part()])
    assert torch.equal(whole.batch(range(5)).instances, wanted.batch(range(5)).instances)
    assert np.array_equal(np.asarray(whole.instances[2:5]), np.asarray(wanted.instances)[2:5])
    assert whole.instances[4:4].shape == (0, 2)
    order = np.array([7, 0, 6, 0, 5])
    assert np.array_equal(whole.instances[order], np.asarray(wanted.instances)[order])
    assert np.array_equal(np.array(whole.instances, np.float64), np.array(wanted.instances, np.float64))
    with pytest.raises(ValueError, match="cannot be one array uncopied"):
        np.array(whole.instances, copy=False)
    miue.write_store(tmp_path / "whole", whole)
    assert miue.read_store(tmp_path / "whole").patients == ("p", "b", "q", "x", "y")


def other_width() -> BagDataset:
    return BagDataset.from_arrays([np.zeros((2, 3))], ids=["z"])


def images() -> BagDataset:
    return BagDataset.from_arrays([np.zeros((2, 4, 4), np.uint8)], ids=["z"])


def named(bag: str, *features: str) -> BagDataset:
    return replace(BagDataset.from_arrays([np.zeros((2, len(features)))], ids=[bag]), feature_names=features)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "the parts: expected at least one dataset"),
        ([known_part(), known_part()], "bag 'a': expected each bag in one part"),
        (
            [bare_part(), other_width()],
            r"expected instances that are numbers of shape \(2,\).*got numbers of shape",
        ),
        ([bare_part(), images()], "got bytes of shape"),
        (
            [named("a", "area", "mean"), named("z", "mean", "area")],
            "the bags of z: .* got another order: 'mean' where",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[BagDataset], message: str) -> None:
    with pytest.raises(DataError, match=message):
        concatenate(parts)


def test_columns_are_chosen_and_put_together_alike_for_every_kind_of_item() -> None:
    bags = known_part()
    model = miue.train(
        BagDataset.from_arrays([np.full((2, 2), float(i % 2)) for i in range(12)], [i % 2 for i in range(12)]),
        settings={"max_epochs": 1, "distances": ()},
        progress=False,
    )
    predictions = model.predict(replace(bags, labels=Labels.unknown(3)))
    assert predictions.instances is not None
    for columns in (bags.columns, bags.instance_columns, predictions.bags.columns, predictions.instances.columns):
        count = len(columns)
        halves = [columns.subset(np.arange(count)[::2]), columns.subset(np.arange(count)[1::2])]
        again = ItemColumns.concatenate(halves).subset(
            np.argsort(np.r_[np.arange(count)[::2], np.arange(count)[1::2]])
        )
        for name, column in columns.columns().items():
            other = again.columns()[name]
            if isinstance(column, Labels | OodFlags | Coords):
                assert np.array_equal(column.values, other.values) and np.array_equal(column.known, other.known)
            else:
                assert (column is None and other is None) or column.tolist() == other.tolist()
