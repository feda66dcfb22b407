"""Choosing what to train: what is compared, what the choice comes to, and that no fold chooses for itself."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags

import miue
from miue.bags import BagDataset
from miue.common.errors import ConfigError, DataError
from miue.model import Recipe
from miue.predictions import read_predictions
from miue.selection import candidates, choice
from miue.selection.cross_validation import folder_of

FOLDS, SEED = 3, 42
QUICK: dict[str, Any] = {"settings": {"max_epochs": 1}}
RECIPES = {
    "pooled-logistic": Recipe(method="pooled-logistic"),
    "mean-softmax": Recipe("mean", "softmax", **QUICK),
    "attention-mirel": Recipe("attention", "mirel", **QUICK),
}


def choose(bags: BagDataset, out: Path, recipes: Any = RECIPES, **more: Any) -> choice.Choice:
    return miue.choose(bags, out, recipes, folds=FOLDS, settings={"device": "cpu"}, progress=False, **more)


@pytest.fixture(scope="module")
def bags() -> BagDataset:
    return separable_bags(45, seed=3)


@pytest.fixture(scope="module")
def made(bags: BagDataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[choice.Choice, Path]:
    out = tmp_path_factory.mktemp("choice") / "out"
    return choose(bags, out), out


def losses_of(folder: Path, fold: int) -> list[float]:
    table = read_predictions(folder_of(folder, fold, SEED) / "predictions").bags
    p = table.probabilities[np.arange(len(table)), table.labels.values]
    return (-np.log(p)).tolist()


@pytest.mark.long
def test_the_least_nll_over_all_folds_is_chosen_and_trained(made: tuple[choice.Choice, Path]) -> None:
    found, out = made
    whole = [one for one in found.tried[:-1] if one.folds == FOLDS]
    assert len(whole) == 2  # the worse half of three is one
    for one in whole:
        losses = [loss for fold in range(FOLDS) for loss in losses_of(out / "all" / one.name, fold)]
        assert one.nll == pytest.approx(np.mean(losses))
    assert found.name == min(whole, key=lambda one: one.nll or 0).name == "pooled-logistic"
    model = miue.Model.load(out / "model")
    assert model.config.method.name == found.recipe.method
    assert model.training.training_bags + model.training.validation_bags == 45
    with (out / "choice.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == [one.name for one in found.tried]


@pytest.mark.long
def test_the_choice_is_judged_by_folds_that_took_no_part_in_it(made: tuple[choice.Choice, Path]) -> None:
    found, out = made
    losses = [loss for fold, name in enumerate(found.chosen_in) for loss in losses_of(out / "all" / name, fold)]
    assert found.tried[-1].name == "choice"
    assert found.tried[-1].nll == pytest.approx(np.mean(losses))
    for fold in range(FOLDS):
        test = read_predictions(folder_of(out / "all" / found.name, fold, SEED) / "predictions").bags.bag_ids
        for splits in (out / f"without_fold_{fold}").glob("*/splits.csv"):
            with splits.open() as file:
                assert not {row["bag_id"] for row in csv.DictReader(file)} & set(test.astype(str))


@pytest.mark.long
def test_a_choice_goes_on_where_it_was_killed(
    made: tuple[choice.Choice, Path], bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, out = made
    monkeypatch.setattr("miue.selection.cross_validation.train_job", lambda *_, **__: pytest.fail("trained again"))
    again = choose(bags, out)
    assert again == found
    with pytest.raises(ConfigError, match="another --out"):
        choose(bags, out, {"mean-softmax": RECIPES["mean-softmax"]})


@pytest.mark.long
def test_bags_that_are_kept_for_a_test_take_no_part(bags: BagDataset, tmp_path: Path) -> None:
    kept = replace(bags, splits=("train",) * 30 + ("test",) * 15)
    recipes = {"pooled-logistic": RECIPES["pooled-logistic"]}
    choose(kept, tmp_path / "out", recipes)
    model = miue.Model.load(tmp_path / "out" / "model")
    assert model.training.training_bags + model.training.validation_bags == 30


@pytest.mark.long
def test_copies_of_a_bag_are_warned_of_once(bags: BagDataset, tmp_path: Path) -> None:
    arrays = [bags.instances[start : start + size] for start, size in zip(bags.starts, bags.sizes, strict=True)]
    copied = BagDataset.of([*arrays[:-1], arrays[0]], bags.labels.values.tolist())
    with pytest.warns(UserWarning) as warned:
        choose(copied, tmp_path / "out", {"pooled-logistic": RECIPES["pooled-logistic"]})
    assert len(warned) == 1


def test_candidates_of_images_are_networks_alone() -> None:
    vectors = separable_bags(4, seed=0)
    images = BagDataset.of([np.zeros((2, 8, 8), np.float32)] * 2, [0, 1])
    assert {"pooled-logistic", "pooled-forest"} == candidates(vectors).keys() - candidates(images).keys()


def test_too_few_bags_or_folds_are_said(bags: BagDataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fold"):
        choose(bags.subset([0, 1, 2, 3]), tmp_path / "few")
    rare = [i for i in range(45) if bags.labels.values[i] == 0] + np.flatnonzero(bags.labels.values == 1)[
        :3
    ].tolist()
    with pytest.raises(
        DataError, match="fold"
    ):  # three folds have one of the class, those within two of them none
        choose(bags.subset(rare), tmp_path / "rare")
    assert not (tmp_path / "rare" / "all").exists()
    with pytest.raises(ConfigError, match="at least 3"):
        miue.choose(bags, tmp_path / "two", RECIPES, folds=2)


def row(name: str, nll: float, difference: float | None = None, low: float | None = None) -> choice.Tried:
    return choice.Tried(name, FOLDS, nll, 0.9, 0.9, 0.1, difference, low, None if low is None else 1.0)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([row("pooled-forest", 0.3), row("mean-softmax", 0.4, 0.1, 0.0)], "No network has a lower NLL"),
        (
            [row("mean-softmax", 0.3), row("pooled-forest", 0.4, 0.1, 0.05)],
            "better than the baseline pooled-forest",
        ),
        (
            [row("mean-softmax", 0.3), row("pooled-forest", 0.4, 0.1, -0.05)],
            "not clearly better than the baseline",
        ),
        ([row("mean-softmax", 0.3)], "No baseline"),
    ],
)
def test_one_sentence_says_whether_a_network_beats_the_baselines(rows: list[choice.Tried], wanted: str) -> None:
    found = choice.Choice(rows[0].name, Recipe(), tuple(rows), FOLDS, (rows[0].name,) * FOLDS)
    assert wanted in found.sentence


@pytest.mark.long
def test_the_command_chooses_and_names_a_candidate_that_is_none(bags: BagDataset, tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", bags)
    words = ["choose", tmp_path / "store", "--folds", "3", "--out", tmp_path / "out", "--candidate"]
    assert "pooled-logistic" in run(*words, "pooled-logistic,pooled-forest")
    assert "candidate 'pooled'" in fail(*words, "pooled")
