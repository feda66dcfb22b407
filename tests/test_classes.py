"""The first class is the negative one; where its name says otherwise, it is questioned before training."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from made_bags import separable_bags

import miue
from miue.bags.classes import class_names, doubt_about_negative_class
from miue.bags.dataset import BagDataset
from miue.common.errors import DataError
from miue.io.splits.draw import make_folds
from miue.model.recipe import Recipe
from miue.selection.cross_validation import cross_validate
from miue.training.fit import Run
from miue.training.seeds import train_seeds


@pytest.mark.parametrize("labels", [["0", "1", "1.0", "1"], ["0", "01", "1"], ["no", "Tumor", "tumor"]])
def test_two_ways_to_write_a_class_are_one_only_where_nobody_names_both(labels: list[str]) -> None:
    with pytest.raises(DataError, match=r"in how a number is written, got '.*\(\d bags?\) and '.*; write"):
        class_names(labels, "labels.csv")
    both = tuple(sorted(set(labels)))
    assert class_names(labels, "labels.csv", both) == both


@pytest.mark.parametrize(
    "names, likely",
    [
        (("LUAD", "LUSC", "Normal"), "Normal"),
        (("cancer", "healthy"), "healthy"),
        (("mut", "wt"), "wt"),
        (("MSI-H", "MSS"), "MSS"),
        (("met", "non_met"), "non_met"),
        (("Tumor", "no tumor"), "no tumor"),
        (("high grade", "Low grade", "Benign "), "Benign "),
        (("EGFR mut", "EGFR wt"), "EGFR wt"),
        (("HER2+", "HER2-"), "HER2-"),
        (("carcinoma", "normal mucosa"), "normal mucosa"),
        (("dMMR", "pMMR"), "pMMR"),
    ],
)
def test_a_class_called_as_the_negative_one_is_named_where_another_is_first(
    names: tuple[str, ...], likely: str
) -> None:
    doubt = doubt_about_negative_class(names)
    assert f"is {names[0]!r}" in doubt and f"if it is {likely!r}" in doubt
    (order,) = shlex.split(doubt.split("--classes ")[1])
    names_in_order = order.split(",")
    assert names_in_order[0] == likely and sorted(names_in_order) == sorted(names)
    assert not doubt_about_negative_class(names_in_order)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("0", "1"),
        ("normal", "tumor"),
        ("LUAD", "LUSC"),
        ("negative", "normal", "positive"),
        ("tumor", "benign", "normal"),  # two such names: which is meant is not known
    ],
)
def test_nothing_is_asked_where_the_first_may_well_be_meant(names: tuple[str, ...]) -> None:
    assert not doubt_about_negative_class(names)


def named_bags() -> BagDataset:
    bags = separable_bags()
    arrays = [np.asarray(bags.batch([bag]).instances) for bag in range(len(bags))]
    return BagDataset.from_arrays(arrays, [("cancer", "healthy")[label] for label in bags.labels.values])


def test_every_training_asks_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bags, recipe = named_bags(), Recipe(settings={"max_epochs": 1}, distances=())
    asked = "the negative class is 'cancer', the first; if it is 'healthy'"
    for progress in (True, False):
        miue.train(bags, settings=recipe.settings, distances=(), progress=progress)
        assert capsys.readouterr().err.count(asked) == progress
        train_seeds(recipe, bags, [1, 2], Run(tmp_path / f"seeds-{progress}", progress=progress))
        assert capsys.readouterr().err.count(asked) == progress
        cross_validate(bags, make_folds(bags, 2), [1], tmp_path / f"folds-{progress}", recipe, progress=progress)
        assert capsys.readouterr().err.count(asked) == progress
