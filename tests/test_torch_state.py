"""What a program has set in PyTorch, and its other threads, do not change what is trained and predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import separable_bags

import miue
from miue.common.tensors import own_torch_state

BAGS, NEW = separable_bags(20), separable_bags(12, seed=1)


def train(method: str = "mirel") -> miue.Model:
    settings = {"max_epochs": 2}
    return miue.train(
        BAGS, method=method, settings={**settings, "distances": ["knn"], "device": "cpu"}, progress=False
    )


def probabilities(model: miue.Model) -> np.ndarray:
    return model.predict(NEW, device="cpu").bags.probabilities


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def trained() -> miue.Model:
    return train()


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float64": lambda: default_dtype(torch.float64),
    "another device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_set_in_torch_does_not_change_a_model(setting: str, trained: miue.Model, tmp_path: Path) -> None:
    with SETTINGS[setting]():
        model = train()
        model.save(tmp_path / "model")
        loaded, state = miue.Model.load(tmp_path / "model"), (torch.get_default_dtype(), torch.is_grad_enabled())
        predicted = probabilities(loaded)
    assert model.weights_sha256 == trained.weights_sha256
    assert np.array_equal(predicted, probabilities(trained))
    with SETTINGS[setting]():
        assert state == (torch.get_default_dtype(), torch.is_grad_enabled())


def test_threads_draw_what_each_would_draw_alone() -> None:
    methods = ("mc-dropout", "bayes-mil")
    alone = [train(method).weights_sha256 for method in methods]
    with ThreadPoolExecutor(2) as threads:
        assert [model.weights_sha256 for model in threads.map(train, methods)] == alone


def test_threads_that_predict_with_one_model_do_not_switch_off_its_dropout() -> None:
    model = train("mc-dropout")
    alone = probabilities(model)
    with ThreadPoolExecutor(4) as threads:
        assert all(np.array_equal(each, alone) for each in threads.map(probabilities, [model] * 8))


def test_an_error_restores_what_was_set() -> None:
    with default_dtype(torch.float64):
        with pytest.raises(ZeroDivisionError), own_torch_state():
            _ = 1 / 0
        assert torch.get_default_dtype() is torch.float64
