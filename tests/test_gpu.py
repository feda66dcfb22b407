"""On a real accelerator: what ``test_pretended_device`` cannot see, its arithmetic and Lightning's use of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_bags import separable_bags
from results_on_device import results

import miue
from miue.methods import METHODS
from miue.networks import NETWORKS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
DEVICE = "cuda"
DRAWS = ("mc-dropout", "bayes-mil")  # whose random numbers are others on another device


@pytest.mark.parametrize(
    ("network", "method"),
    [(network, "mirel") for network in NETWORKS]
    + [("attention", method) for method in METHODS if method not in ("mirel", *DRAWS)],
)
def test_a_network_with_a_method_computes_as_on_the_cpu(network: str, method: str) -> None:
    bags = separable_bags(8)
    there = list(results(bags, "mlp", network, method, DEVICE))
    here = list(results(bags, "mlp", network, method, "cpu"))
    for (name, value), (also, expected) in zip(there, here, strict=True):
        assert name == also
        np.testing.assert_allclose(value, expected, rtol=1e-2, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("precision", ["float32", "bf16-mixed"])
def test_a_model_is_trained_and_predicts_there_as_on_the_cpu(method: str, precision: str) -> None:
    bags = separable_bags(40)
    settings = {"max_epochs": 3, "precision": precision}
    model = miue.train(bags, method=method, settings=settings, progress=False, device=DEVICE)
    there, here = model.predict(bags, device=DEVICE), model.predict(bags, device="cpu")
    assert there.instances is not None and here.instances is not None
    assert np.isfinite(there.instances.probabilities).all()
    if method not in DRAWS:
        np.testing.assert_allclose(there.bags.probabilities, here.bags.probabilities, rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(
            there.instances.probabilities, here.instances.probabilities, rtol=1e-2, atol=1e-3
        )
