"""Arguments of the Python interface that are of the wrong type, each with the message that helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from made_bags import separable_bags
from torch import nn

import miue
from miue.common.errors import ConfigError, DataError, ModelError

ARRAYS = [np.ones((size, 3), np.float32) for size in (2, 3, 1, 2, 4, 1)]
LABELS = [0, 1, 0, 1, 0, 1]


@pytest.fixture(autouse=True)
def _types_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call functions as a user does, without the types that tests check."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def model() -> miue.Model:
    return miue.train(separable_bags(20), settings={"max_epochs": 1}, distances=(), progress=False, device="cpu")


def test_bags_that_were_loaded_or_are_still_a_path_are_told_how_to_be_passed(
    tmp_path: Path, model: miue.Model
) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.ones((2, 6), np.float32))
    loaded: Any = miue.load_bags(tmp_path)
    path: Any = tmp_path
    calls: list[Callable[[Any], object]] = [
        miue.train,
        model.predict,
        lambda bags: miue.make_folds(bags, 2),
        lambda bags: miue.write_store(tmp_path / "store", bags),
        lambda bags: miue.cross_validate(bags, miue.make_folds(separable_bags(20), 2), [1], tmp_path / "cv"),
        lambda bags: miue.concatenate([bags]),
        lambda bags: miue.check_vanishing(tmp_path, bags, tmp_path / "out"),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"expected a BagDataset, got a value.*; pass its attribute 'bags'"):
            call(loaded)
        with pytest.raises(ConfigError, match=r"open it: miue.load_bags\('.*', labels=...\).bags"):
            call(path)
        with pytest.raises(ConfigError, match=r"open it: miue.load_bags\('folder', labels=...\).bags"):
            call("folder")
        with pytest.raises(ConfigError, match=r"expected a BagDataset, got a value of type dict; make them of"):
            call({"a": np.ones((2, 3))})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (miue.evaluate, "the predictions: expected Predictions"),
        (miue.calibrate, "the predictions: expected Predictions"),
        (
            lambda given: miue.decide(given, miue.Calibration(class_names=("a", "b"))),
            "the predictions: expected Predictions",
        ),
        (lambda given: miue.export(given, "out", "arrays"), "the predictions: expected Predictions"),
        (lambda given: miue.write_report("r.html", [("a", given)]), "source 'a': expected Predictions"),
    ],
)
def test_what_is_no_predictions_is_told_how_to_become_some(
    call: Callable[[Any], object], message: str, model: miue.Model
) -> None:
    with pytest.raises(ConfigError, match=f"^{message}, got a value of type Model; .*model.predict"):
        call(model)
    with pytest.raises(ConfigError, match=f"^{message}, .*; read them: miue.read_predictions\\('folder'\\)"):
        call("folder")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 0.2}, r"validation: .*\(0.2\); to hold out a share .* settings={'validation_fraction'"),
        ({"distances": "knn"}, r"distances: expected several, such as \('knn',\)"),
        ({"options": ["network.hidden=3"]}, "options: expected values by their names"),
        ({"settings": ["epochs"]}, "settings: expected values by their names"),
        ({"out": "run", "if_exists": "ask"}, "if_exists 'ask': expected one of overwrite, refuse, resume"),
    ],
)
def test_an_argument_of_training_of_another_kind_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        miue.train(ARRAYS, LABELS, progress=False, device="cpu", **options)


def test_predictions_alone_or_one_folder_are_told_to_be_several(model: miue.Model) -> None:
    alone: Any = model.predict(separable_bags(3, seed=1))
    with pytest.raises(ConfigError, match=r"sources: expected pairs .*; pass \[\(name, predictions\)\]"):
        miue.write_report("report.html", alone)
    with pytest.raises(ConfigError, match=r"folders: expected several folders, got .*\('cv'\); pass a list"):
        miue.compare("cv")


def test_instance_labels_that_do_not_fit_name_the_bag() -> None:
    with pytest.raises(DataError, match="instance labels of bag 1: expected 3, one for each, got 2"):
        miue.BagDataset.from_arrays(ARRAYS[:2], LABELS[:2], instance_labels=[[0, 1], [0, 1]])
    with pytest.raises(DataError, match="lists of instance labels: expected 2, one for each, got 1"):
        miue.BagDataset.from_arrays(ARRAYS[:2], LABELS[:2], instance_labels=[[0, 1]])


def test_a_single_bag_is_told_to_be_a_list_of_one(model: miue.Model) -> None:
    bag: Any = np.ones((5, 6), np.float32)
    with pytest.raises(DataError, match=r"pass a single bag as a list of one, \[bag\]"):
        model.predict(bag)


class _Returns(nn.Module):
    """A module for bags (n, 3) that returns what ``make`` makes of the scores of each instance."""

    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(3, 2), make

    def forward(self, bag: torch.Tensor) -> Any:
        return self.make(self.layer(bag))


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda scores: scores, r"a tensor of shape \(\d, 2\)"),  # one per instance, of bags of several sizes
        (lambda scores: scores.mean(), r"a tensor of shape \(\)"),
        (lambda scores: scores.mean(0, keepdim=True), r"a tensor of shape \(1, 2\)"),
        (lambda scores: (scores.mean(0), scores), "a tuple of 2"),
        (lambda scores: {"logits": scores.mean(0)}, "a dict"),
    ],
)
def test_a_plain_module_that_returns_something_else_than_logits_is_named(make: Any, got: str) -> None:
    network = _Returns(make)
    with pytest.raises(ModelError, match=rf"network '_Returns': expected logits of shape \(2,\) .*, got {got};"):
        miue.train(ARRAYS, LABELS, network=network, encoder="identity", progress=False, device="cpu")


def test_a_plain_encoder_that_returns_several_things_is_named() -> None:
    encoder = _Returns(lambda scores: (scores, scores))
    with pytest.raises(ModelError, match="encoder '_Returns': expected .*, got a tuple of 2 for 2 instances"):
        miue.train(ARRAYS, LABELS, encoder=encoder, progress=False, device="cpu")
