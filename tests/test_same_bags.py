"""Bags that hold the same instances as another, under another name."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import pytest
from commands import run
from made_bags import train_with

import miue
from miue.bags import find_same_bags
from miue.io import load_bags
from miue.model.recipe import Recipe
from miue.model.training_bags import TrainingBags
from miue.sklearn import MILUncertaintyClassifier
from miue.training.job import Job
from miue.training.run import Run
from miue.training.train import train_seeds

ONE_EPOCH = Recipe(settings={"max_epochs": 1})
QUICK: dict[str, Any] = {"settings": {"max_epochs": 1}, "progress": False, "device": "cpu"}


def arrays(count: int = 24) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(3 + number % 2, 2)).astype(np.float32) + number % 2 for number in range(count)]


def test_the_same_array_twice_is_warned_of_and_which_parts_have_it() -> None:
    bags = [*arrays(), arrays()[4], arrays()[7]]
    with pytest.warns(UserWarning, match=r"'bag_4' \((train|validation)\) = 'bag_24' .*'bag_7' .*= 'bag_25'"):
        train_with(bags, [number % 2 for number in range(24)] + [0, 1], **QUICK)
    with pytest.warns(UserWarning, match="'bag_4' = 'bag_24'|keep one of them"):
        MILUncertaintyClassifier(max_epochs=1, device="cpu").fit(bags, [n % 2 for n in range(24)] + [0, 1])


@pytest.mark.parametrize(("part", "message"), [("test", "also learned from"), ("train", "each counts as often")])
def test_copies_across_parts_are_said_to_leak(part: str, message: str) -> None:
    bags = miue.BagDataset.from_arrays([*arrays(), arrays()[1]], [*([0, 1] * 12), 1])
    parts = ("train",) * 16 + ("validation",) * 4 + ("test",) * 4 + (part,)
    with pytest.warns(UserWarning, match=rf"'bag_1' \(train\) = 'bag_24' \({part}\); .*{message}"):
        train_with(replace(bags, splits=parts), **QUICK)


def test_copies_with_different_labels_are_said_to_have_them() -> None:
    with pytest.warns(UserWarning, match="with different labels"):
        train_with([*arrays(), arrays()[1]], [*([0, 1] * 12), 0], **QUICK)


@pytest.mark.long
def test_several_trainings_of_the_same_bags_warn_once(tmp_path: Path) -> None:
    bags = miue.BagDataset.from_arrays([*arrays(), arrays()[1]], [*([0, 1] * 12), 1])
    folds = miue.make_folds(bags, 3, seed=1)
    with pytest.warns(UserWarning) as shown:
        miue.cross_validate(bags, folds, [1, 2], tmp_path / "folds", ONE_EPOCH, progress=False)
    (text,) = [str(one.message) for one in shown if "hold the same" in str(one.message)]
    assert text.startswith("bags hold the same instances as others: 'bag_1' = 'bag_24'; what is held out is also")
    with pytest.warns(UserWarning) as shown:
        train_seeds(Job(ONE_EPOCH, bags), [1, 2], Run(tmp_path / "seeds", progress=False))
    assert len([one for one in shown if "hold the same" in str(one.message)]) == 1


def test_bags_to_validate_on_that_are_trained_on_under_another_name_are_warned_of() -> None:
    bags = miue.BagDataset.from_arrays(arrays(), [0, 1] * 12)
    other = miue.BagDataset.from_arrays(arrays()[:4], [0, 1] * 2, ids=["w", "x", "y", "z"])
    with pytest.warns(UserWarning, match=r"'bag_0' \(train\) = 'w' \(validation\)"):
        train_with(bags, validation=other, **QUICK)


def test_bags_that_share_some_instances_are_not_the_same() -> None:
    first, *others = arrays()
    shared = np.vstack([first[:-1], [[7.0, 7.0]]]).astype(np.float32)
    assert find_same_bags(miue.BagDataset.from_arrays([first, shared, first[::-1].copy(), *others])) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_with([first, *others, shared], [*([0, 1] * 12), 1], **QUICK)


def test_bags_of_a_single_instance_may_be_alike_by_chance() -> None:
    """As rows of a table of few values are, and slides without anything on them."""
    alike = [np.ones((1, 2)), np.ones((1, 2)), np.zeros((4, 2)), np.zeros((4, 2))]
    assert find_same_bags(miue.BagDataset.from_arrays(alike)) == []


def test_of_many_copies_a_few_are_named() -> None:
    bags = [*arrays(), *([arrays()[0]] * 6)]
    with pytest.warns(
        UserWarning, match=r"'bag_0' \(\w+\) = 'bag_24' \(\w+\) = 'bag_25' \(\w+\) = 'bag_26' \(\w+\) = …;"
    ):
        train_with(bags, [0, 1] * 12 + [0] * 6, **QUICK)


def test_copies_of_feature_files_are_named(tmp_path: Path) -> None:
    for number in range(20):
        features = made_files.features_of(4 + number % 3, seed=number % 19, positive=number % 2 == 1)
        made_files.trident(tmp_path / "slides", f"s{number:02}", features if number else features[:4])
    copied = made_files.features_of(5, seed=99)
    for name in ("copy 1", "copy 2"):
        made_files.trident(tmp_path / "slides", name, copied)
    names = [*(f"s{number:02}" for number in range(20)), "copy 1", "copy 2"]
    rows = "".join(f"{name},{number % 2}\n" for number, name in enumerate(names))
    (tmp_path / "labels.csv").write_text("slide_id,label\n" + rows)
    assert [len(group) for group in find_same_bags(load_bags(tmp_path / "slides").bags)] == [2]
    with pytest.warns(UserWarning, match=r"'copy 1' .*= 'copy 2' .*with different labels"):
        given = (
            "--labels",
            tmp_path / "labels.csv",
            "--out",
            tmp_path / "run",
            "--set",
            "max_epochs=1",
            "--quiet",
        )
        run("train", tmp_path / "slides", *given)


def test_bags_drawn_from_few_images_are_not_taken_for_those_of_the_training() -> None:
    """Of bags without names the content counts, and bags of one pool of images may begin with the same."""
    pool = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32)
    rng = np.random.default_rng(2)
    drawn = [pool[rng.integers(0, 20, 8)] for _ in range(200)]
    of_training = miue.BagDataset.from_arrays(drawn[:100], [0, 1] * 50)
    new = miue.BagDataset.from_arrays([*drawn[100:], drawn[3]])
    listed = TrainingBags.of(dict.fromkeys(of_training.ids, "train"), of_training)
    assert listed.compare(new).within("train") == {"bag_100"}
