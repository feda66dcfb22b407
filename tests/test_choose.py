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
from miue.bags import BagDataset, Labels
from miue.common.errors import ConfigError, DataError
from miue.model import Recipe, mix, mixes
from miue.predictions import PredictionTable, read_predictions
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


def predicted(folder: Path, name: str, fold: int) -> PredictionTable:
    return read_predictions(folder_of(folder / "candidates" / name, fold, SEED) / "predictions").bags


def loss(table: PredictionTable, p: Any) -> Any:
    return -np.log(p[np.arange(len(table)), table.labels.values])


@pytest.mark.long
def test_candidates_and_their_mixture_are_compared_on_all_folds(made: tuple[choice.Choice, Path]) -> None:
    found, out = made
    of_name = {one.name: one for one in found.tried}
    assert set(of_name) == {*RECIPES, "mixture", "choice"}
    every = []
    for fold in range(FOLDS):
        tables = [predicted(out, name, fold) for name in RECIPES]
        every += loss(tables[0], np.mean([table.probabilities for table in tables], 0)).tolist()
    assert of_name["mixture"].nll == pytest.approx(np.mean(every))
    for name in RECIPES:
        losses = np.concatenate(
            [loss(t, t.probabilities) for t in (predicted(out, name, k) for k in range(FOLDS))]
        )
        assert of_name[name].nll == pytest.approx(losses.mean())
    nll = {one.name: one.nll or 0.0 for one in found.tried}
    assert all(one.difference == pytest.approx(nll[one.name] - nll[found.name]) for one in found.tried)
    with (out / "choice.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == [one.name for one in found.tried]


@pytest.mark.long
def test_the_choice_is_judged_by_folds_that_took_no_part_in_it(made: tuple[choice.Choice, Path]) -> None:
    found, out = made
    losses = []
    for fold, name in enumerate(found.chosen_in):
        tables = [predicted(out, one, fold) for one in (RECIPES if name == "mixture" else [name])]
        losses += loss(tables[0], np.mean([table.probabilities for table in tables], 0)).tolist()
    assert found.tried[-1].name == "choice"
    assert found.tried[-1].nll == pytest.approx(np.mean(losses))


def test_one_candidate_is_chosen_only_where_it_is_clearly_better() -> None:
    generator = np.random.default_rng(0)
    losses = {"mixture": [generator.random(20) for _ in range(3)]}
    losses["a"] = [fold - 0.01 + generator.normal(0, 0.5, 20) for fold in losses["mixture"]]
    losses["b"] = [fold + 0.5 for fold in losses["mixture"]]
    assert choice._best(losses, range(3)) == "mixture"
    losses["b"] = [fold - 0.2 for fold in losses["mixture"]]
    assert choice._best(losses, range(3)) == "b"
    losses["b"][2] = losses["mixture"][2] + 9
    assert choice._best(losses, (0, 1)) == "b"  # the fold that is judged takes no part
    del losses["mixture"]
    assert choice._best(losses, range(3)) == "a"


@pytest.mark.long
def test_the_mixture_is_one_model_that_is_saved_and_predicts_as_its_members(
    bags: BagDataset, tmp_path: Path
) -> None:
    labels = np.random.default_rng(0).permutation(bags.labels.values)  # nothing to learn: none is clearly better
    out = tmp_path / "out"
    found = choose(replace(bags, labels=Labels.of(labels)), out)
    assert found.name == "mixture"
    model, members = (
        miue.Model.load(out / "model"),
        [miue.Model.load(out / "members" / one) for one in found.members],
    )
    assert sorted(found.members) == sorted(RECIPES)
    assert model.training.training_bags + model.training.validation_bags == 45
    ours, theirs = model.predict(bags), [one.predict(bags, estimator="bag-of-one") for one in members]
    for table in ("bags", "instances"):
        p = np.mean([getattr(one, table).probabilities for one in theirs], 0)
        np.testing.assert_allclose(getattr(ours, table).probabilities, p, atol=1e-12)
    mean_entropy = np.mean([one.bags.distribution.expected_entropy().numpy() for one in theirs], 0)
    np.testing.assert_allclose(ours.bags.distribution.expected_entropy().numpy(), mean_entropy, atol=1e-12)
    assert model.validation is not None
    assert "mixture of" in (model.provenance().method or "")


def test_members_keep_their_temperatures_in_a_mixture(bags: BagDataset) -> None:
    models = [
        miue.train(bags, network="mean", method=method, progress=False, **QUICK) for method in ("softmax", "mirel")
    ]
    models = [
        replace(one, training=one.training.model_copy(update={"temperature": t}))
        for one, t in zip(models, (2.0, None), strict=True)
    ]
    p = np.mean([one.predict(bags).bags.probabilities for one in models], 0)
    np.testing.assert_allclose(mix(models).predict(bags).bags.probabilities, p, atol=1e-12)


def test_what_draws_or_is_an_ensemble_is_no_member_of_a_mixture(bags: BagDataset) -> None:
    recipes = {name: Recipe("attention", name) for name in ("softmax", "mc-dropout", "deep-ensemble")}
    assert [name for name, recipe in recipes.items() if mixes(recipe, bags.instance_shape)] == ["softmax"]
    model = miue.train(bags, network="attention", method="mc-dropout", progress=False, **QUICK)
    with pytest.raises(ConfigError, match="one pass"):
        mix([model, model])


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
    with pytest.raises(ConfigError, match="at least 3"):
        miue.choose(bags, tmp_path / "two", RECIPES, folds=2)


def row(name: str, nll: float, low: float = 0.0) -> choice.Tried:
    return choice.Tried(name, name in RECIPES and name != "mean-softmax", nll, 0.9, 0.9, 0.1, 0.1, low, 1.0)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([row("pooled-logistic", 0.3), row("mean-softmax", 0.4)], "No network has a lower NLL"),
        (
            [row("mean-softmax", 0.3), row("pooled-logistic", 0.4, 0.05)],
            "better than the baseline pooled-logistic",
        ),
        ([row("mean-softmax", 0.3), row("pooled-logistic", 0.4, -0.05)], "not clearly better than the baseline"),
        ([row("mean-softmax", 0.3)], "No baseline"),
    ],
)
def test_one_sentence_says_whether_a_network_beats_the_baselines(rows: list[choice.Tried], wanted: str) -> None:
    found = choice.Choice(rows[0].name, {rows[0].name: Recipe()}, tuple(rows), (rows[0].name,) * FOLDS)
    assert wanted in found.sentence


@pytest.mark.long
def test_numbers_and_times_are_chosen_by_their_likelihood(bags: BagDataset, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=45) + bags.labels.values
    found = choose(bags.with_outcomes(values), tmp_path / "numbers", {"a": RECIPES["mean-softmax"]})
    assert found.name == "a" and found.tried[0].nll is not None and found.tried[0].accuracy is None
    times = bags.with_outcomes(np.exp(values), np.arange(45) % 3 > 0, task="survival")
    assert list(candidates(times)) == ["mean-softmax", "attention-softmax", "attention-sngp", "one-sided-gp"]
    found = choose(times, tmp_path / "times", {"a": RECIPES["mean-softmax"], "b": RECIPES["mean-softmax"]})
    assert found.name == "mixture" and found.tried[0].accuracy is None
    assert found.tried[0].own["c_index"] is not None
    tables = [
        read_predictions(folder_of(tmp_path / "times" / "candidates" / "a", fold, 42) / "predictions").bags
        for fold in range(FOLDS)
    ]
    losses = []
    for table in tables:
        assert table.outcomes is not None
        for p, label, observed in zip(table.probabilities, table.labels, table.outcomes.observed, strict=True):
            losses.append(-np.log(p[label] if observed else p[label:].sum()))
    alone = next(one for one in found.tried if one.name == "a")
    assert alone.nll == pytest.approx(np.mean(losses), rel=1e-5)
    assert "C-index (Harrell)" in str(found) and "auroc" not in str(found)


@pytest.mark.long
def test_the_command_chooses_and_names_a_candidate_that_is_none(bags: BagDataset, tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", bags)
    words = ["choose", tmp_path / "store", "--folds", "3", "--out", tmp_path / "out", "--candidate"]
    assert "pooled-logistic" in run(*words, "pooled-logistic,pooled-forest")
    assert "candidate 'pooled'" in fail(*words, "pooled")
