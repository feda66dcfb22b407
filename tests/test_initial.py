"""Training that starts from the weights of another model, where they fit."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_bags import separable_bags, train_with
from safetensors.torch import load_file

import miue
from miue.common.errors import ConfigError, StorageError

SMALL: dict[str, Any] = {
    "encoder": "mlp",
    "options": {"encoder.width": 7, "network.hidden": 3},
    "settings": {"max_epochs": 2, "learning_rate": 1e-12, "bags_per_update": 32},
    "progress": False,
    "device": "cpu",
    "distances": (),
}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("initial") / "pretrained"
    settings = {**SMALL["settings"], "learning_rate": 1e-2, "seed": 1}
    train_with(separable_bags(16), method="softmax", out=folder, **{**SMALL, "settings": settings})
    return folder


def test_what_fits_by_name_and_shape_is_taken_and_the_rest_is_drawn(
    pretrained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bags, weights = separable_bags(16, seed=3), load_file(pretrained / "model.safetensors")
    drawn = train_with(bags, **SMALL).method.state_dict()
    model = train_with(bags, initial=pretrained, **{**SMALL, "progress": True})
    for name, found in model.method.state_dict().items():
        wanted = weights.get(name, drawn[name])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
        assert (
            name not in weights or name.startswith("network.encoder.mean") or not torch.equal(wanted, drawn[name])
        )
    said = (
        f"initial weights: encoder, attention, head from {str(pretrained)!r}; not of it: residual, which it lacks"
    )
    assert said in " ".join(capsys.readouterr().err.split())
    assert (
        model.training.initial_weights
        == json.loads((pretrained / "config.json").read_text())["files"]["model.safetensors"]
    )


@pytest.mark.filterwarnings("ignore:the initial model was trained on")
def test_every_member_of_an_ensemble_starts_from_a_model(pretrained: Path) -> None:
    options = {**SMALL["options"], "method.size": 2}
    given = {**SMALL, "method": "deep-ensemble", "options": options}
    model = train_with(separable_bags(16), initial=pretrained, **given)
    for member in model.method.members():
        for name, weight in load_file(pretrained / "model.safetensors").items():
            torch.testing.assert_close(member.state_dict()[name], weight, rtol=0, atol=1e-6)


def test_a_model_of_which_nothing_fits_is_refused_before_anything_is_written(
    pretrained: Path, tmp_path: Path
) -> None:
    other = {**SMALL, "options": {"encoder.width": 6, "network.hidden": 2}}  # the bias of the head alone fits
    with pytest.raises(ConfigError, match="initial '.*pretrained': expected a model of which weights fit"):
        train_with(separable_bags(16, width=4), initial=pretrained, out=tmp_path / "run", **other)
    with pytest.raises(StorageError, match="expected a trained model .* got no such folder"):
        train_with(separable_bags(16), initial=tmp_path / "nothing", out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_those_that_were_saved_are_refused(pretrained: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((pretrained / name).read_bytes())
    damaged = bytearray((tmp_path / "model.safetensors").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(damaged)
    with pytest.raises(StorageError, match="model.safetensors"):
        train_with(separable_bags(16), initial=tmp_path, **SMALL)


@pytest.mark.filterwarnings("ignore:the initial model was trained on")
def test_a_run_is_resumed_with_the_weights_it_was_started_with(pretrained: Path, tmp_path: Path) -> None:
    bags, out = separable_bags(16), tmp_path / "run"
    first = train_with(bags, initial=pretrained, out=out, **SMALL)
    longer = {**SMALL, "settings": {**SMALL["settings"], "max_epochs": 3}, "if_exists": "resume"}
    with pytest.raises(ConfigError, match="the same initial as when it was started, 'weights .*got nothing"):
        train_with(bags, out=out, **longer)
    assert train_with(bags, initial=pretrained, out=out, **longer).training.epochs > first.training.epochs


def test_a_recipe_keeps_what_training_starts_from(pretrained: Path) -> None:
    recipe = miue.Recipe("attention", "softmax", initial=pretrained, settings={"max_epochs": 1})
    again = miue.Recipe(**recipe.to_json())
    assert Path(str(again.initial)) == pretrained.resolve()
    assert "initial" not in miue.Recipe().to_json()


def test_bags_that_the_initial_model_was_trained_on_judge_no_training(pretrained: Path) -> None:
    bags = separable_bags(16)
    parts = replace(bags, splits=("train",) * 8 + ("validation",) * 8)
    with pytest.warns(UserWarning, match="trained on 8 bags that this training is judged by"):
        train_with(parts, initial=pretrained, **SMALL)
    others = replace(separable_bags(16, seed=3), ids=tuple(f"other {i}" for i in range(16)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        train_with(others, initial=pretrained, **SMALL)
