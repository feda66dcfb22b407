"""Encoders in bfloat16: only they, in training, validation and prediction, and float32 again afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import FITTING, separable_bags
from test_large_bags import method_of

import miue
from miue.common.devices import has_bfloat16
from miue.common.errors import ConfigError
from miue.networks import MILNetwork, encoder_precision


@pytest.mark.parametrize(("name", "network"), FITTING)
def test_encoders_alone_compute_in_bfloat16(name: str, network: str) -> None:
    method, bags = method_of(name, network), separable_bags(6)
    inside: set[torch.dtype] = set()
    outside: set[torch.dtype] = set()
    encoders = {m for n in method.modules() if isinstance(n, MILNetwork) for m in n.encoder.modules()}
    for module in method.modules():
        if isinstance(module, torch.nn.Linear):
            seen = inside if module in encoders else outside
            module.register_forward_hook(lambda _, args, out, seen=seen: seen.add(out.dtype))
    with encoder_precision(method, "bf16-mixed"):
        for member in method.members():
            loss = member.loss(bags.batch(np.arange(6)), 1)
            loss.backward()
    assert inside == {torch.bfloat16} and loss.dtype == torch.float32
    assert outside <= {torch.float32}
    assert {p.grad.dtype for p in method.parameters() if p.grad is not None} == {torch.float32}
    inside.clear()
    method.members()[0].loss(bags.batch(np.arange(6)), 1)
    assert inside == {torch.float32}


@pytest.mark.long
def test_a_model_is_trained_and_predicts_in_bfloat16_where_asked(tmp_path: Path) -> None:
    bags = separable_bags(40)
    settings = {"max_epochs": 8, "learning_rate": 3e-3, "precision": "bf16-mixed"}
    model = miue.train(bags, settings=settings, out=tmp_path / "run", progress=False)
    assert model.training.settings["precision"] == "bf16-mixed"
    exact, rounded = model.predict(bags), model.predict(bags, precision="bf16-mixed")
    difference = np.abs(exact.bags.probabilities - rounded.bags.probabilities)
    assert 0 < difference.max() < 0.05
    again = miue.Model.load(tmp_path / "run").predict(bags)
    np.testing.assert_array_equal(again.bags.probabilities, exact.bags.probabilities)


@pytest.mark.long
def test_a_device_that_is_slow_in_bfloat16_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bags = separable_bags(10)
    for found, slow in (("avx2", True), ("amx_bf16", False), ("avx512_bf16", False)):
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda found=found: {"architecture": "x86_64", found: True}
        )
        model = miue.train(bags, settings={"max_epochs": 1, "precision": "bf16-mixed", "device": "cpu"})
        assert ("this cpu has no instructions for bfloat16" in capsys.readouterr().err) == slow
        model.predict(bags, precision="bf16-mixed", progress=True, device="cpu")
        assert ("this cpu has no instructions for bfloat16" in capsys.readouterr().err) == slow
        model.predict(bags, progress=True, device="cpu")
        assert "bfloat16" not in capsys.readouterr().err
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "aarch64"})
    assert has_bfloat16(torch.device("cpu"))


def test_another_precision_is_named() -> None:
    with pytest.raises(ConfigError, match="bf16-mixed"):
        miue.train(separable_bags(10), settings={"precision": "bf16"}, progress=False)
    model = miue.train(separable_bags(10), settings={"max_epochs": 1}, progress=False)
    with pytest.raises(ConfigError, match="bf16-mixed, float32, got .half."):
        model.predict(separable_bags(10), precision="half")
