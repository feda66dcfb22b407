"""Quantiles of the validation bags: kept with every model, carried by its predictions, read back or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast import slow_but
from made_bags import separable_bags, train_with
from made_slides import alpha_of
from made_slides import prediction_table as table
from sealed_files import seal_again

import miue
from miue.bags import BagDataset
from miue.common.errors import StorageError
from miue.methods import METHODS
from miue.predictions import VALIDATION as FILE
from miue.predictions import ValidationQuantiles


@pytest.fixture(scope="module")
def bags() -> BagDataset:
    made = separable_bags(40, seed=2)
    return replace(made, splits=("train",) * 24 + ("validation",) * 16)


def train(bags: BagDataset, **more: Any) -> miue.Model:
    if more.get("method") == "deep-ensemble":
        more["options"] = {"method.size": 2}
    return train_with(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False, **more)


def test_the_quantile_of_the_i_th_of_n_values_is_i_of_n_plus_1() -> None:
    order = np.random.default_rng(0).permutation(19)
    bags = table(alpha_of(19), [str(i) for i in range(19)], knn_mean=(order + 1) / 10)
    made = ValidationQuantiles.of(bags, order + 1)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert made.uncertainty("knn_mean", share) == pytest.approx(2 * share)
        assert made.size(share) == pytest.approx(20 * share)
    assert made.uncertainty("knn_mean", 0.6) == pytest.approx(1.2)  # between two that are kept
    assert (made.uncertainty("knn_mean", 1.0), made.size(0.0)) == (1.9, 1.0)
    assert made.size(1 - 0.95) == 1.0  # a share just above 0.05, whose size no bag of 1 is below
    assert made.uncertainty("something", 0.5) is None
    unsure = replace(bags, scores={"knn_mean": np.where(order == 3, np.nan, 1.0)})
    assert set(ValidationQuantiles.of(unsure, order).uncertainties) == set(bags.uncertainties()) - {"knn_mean"}


WITH = [(method, ("knn",)) for method in sorted(METHODS)]
WITHOUT = [(method, ()) for method in sorted(METHODS)]


@pytest.mark.long
@pytest.mark.parametrize(("method", "distances"), slow_but(WITHOUT, [*WITH, ("mirel", ())]))
def test_every_model_keeps_those_of_its_validation_bags_and_its_predictions_carry_them(
    method: str, distances: tuple[str, ...], bags: BagDataset, tmp_path: Path
) -> None:
    model = train(bags, method=method, distances=distances, out=tmp_path / "run")
    again = train(bags, method=method, distances=distances)
    held = model.predict(bags.split("validation"))
    assert model.validation == again.validation == ValidationQuantiles.load(tmp_path / "run" / FILE)
    assert model.validation == ValidationQuantiles.of(held.bags, bags.split("validation").sizes)
    assert set(model.validation.uncertainties) == set(held.bags.uncertainties())
    assert ("knn_mean" in model.validation.uncertainties) == bool(distances)
    loaded = miue.Model.load(tmp_path / "run")
    assert loaded.validation == model.validation
    loaded.predict(bags.split("validation")).save(tmp_path / "p")
    assert miue.read_predictions(tmp_path / "p").provenance.validation == model.validation


def test_quantiles_do_not_change_what_is_learned_nor_what_is_drawn_next(
    bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights_and_draws() -> tuple[str, torch.Tensor, float]:
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002  (the state that others share)
        model = train(bags, method="mc-dropout")
        return model.weights_sha256, torch.rand(3), float(np.random.rand())  # noqa: NPY002

    ours = weights_and_draws()
    monkeypatch.setattr("miue.training.job.Job.holds_out", property(lambda self: False))
    theirs = weights_and_draws()
    assert ours[0] == theirs[0]
    assert torch.equal(ours[1], theirs[1])
    assert ours[2] == theirs[2]


def test_a_model_without_validation_bags_of_its_own_keeps_none(tmp_path: Path) -> None:
    settings = {"max_epochs": 1, "validation_fraction": 0.0}
    model = miue.train(separable_bags(20), settings=settings, progress=False, out=tmp_path / "run")
    assert model.validation is None
    assert not (tmp_path / "run" / FILE).exists()
    assert model.predict(separable_bags(5)).provenance.validation is None


def test_a_run_trained_anew_forgets_the_old_quantiles(bags: BagDataset, tmp_path: Path) -> None:
    train(bags, out=tmp_path / "run")
    settings = {"max_epochs": 1, "validation_fraction": 0.0}
    alone = separable_bags(20)
    miue.train(alone, settings=settings, progress=False, out=tmp_path / "run", if_exists="overwrite")
    assert not (tmp_path / "run" / FILE).exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"validation": None},
        {"validation": {"bags": 3, "shares": [0, 1], "uncertainties": {"entropy": [1.0]}, "instances": [1, 2]}},
        {"validation": {"bags": 3, "shares": [0, 1], "uncertainties": {}, "instances": [1, float("inf")]}},
    ],
)
def test_a_damaged_file_is_named(damage: dict[str, Any], bags: BagDataset, tmp_path: Path) -> None:
    train(bags).save(tmp_path / "model")
    seal_again(tmp_path / "model" / FILE, lambda content: content.update(damage))
    seal_again(tmp_path / "model" / "config.json")
    with pytest.raises(StorageError, match="validation quantiles"):
        miue.Model.load(tmp_path / "model")


@pytest.mark.parametrize("missing", ["uncertainties", "instances"])
def test_quantiles_that_are_not_one_for_each_share_are_refused(missing: str) -> None:
    values: dict[str, Any] = {"uncertainties": {"entropy": (0.1, 0.2, 0.3)}, "instances": (1.0, 2.0, 3.0)}
    ValidationQuantiles(bags=3, shares=(0.0, 0.5, 1.0), **values)
    values[missing] = {"entropy": (0.1, 0.2)} if missing == "uncertainties" else (1.0, 2.0)
    with pytest.raises(ValueError, match="a quantile for each share is wanted"):
        ValidationQuantiles(bags=3, shares=(0.0, 0.5, 1.0), **values)
