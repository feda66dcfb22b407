"""On a real accelerator: what ``test_pretended_device`` cannot see, its arithmetic and Lightning's use of it."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import TORCHMIL_NETWORKS, separable_bags, train_with
from made_images import bright_bags
from results_on_device import results
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset
from miue.cli import app
from miue.common.tasks import Executor
from miue.io import write_store
from miue.methods import METHODS
from miue.model import encoding
from miue.model.model import Model
from miue.networks import NETWORKS
from miue.training.checkpoints import BestWeights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
DEVICE = "cuda"
DRAWS = ("mc-dropout", "bayes-mil")  # whose random numbers are others on another device
OTHERS = () if importlib.util.find_spec("torchmil") else TORCHMIL_NETWORKS
assert_near = partial(np.testing.assert_allclose, rtol=1e-2, atol=1e-3)  # convolutions there are rounded to TF32
assert_equal = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "method"),
    [(network, "mirel") for network in NETWORKS if network not in OTHERS]
    + [("attention", method) for method in METHODS if method not in ("mirel", *DRAWS)],
)
def test_a_network_with_a_method_computes_as_on_the_cpu(network: str, method: str) -> None:
    bags = separable_bags(8)
    there = list(results(bags, "mlp", network, method, DEVICE))
    here = list(results(bags, "mlp", network, method, "cpu"))
    for (name, value), (also, expected) in zip(there, here, strict=True):
        assert name == also
        assert_near(value, expected, err_msg=name)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("precision", ["float32", "bf16-mixed"])
def test_a_model_is_trained_and_predicts_there_as_on_the_cpu(method: str, precision: str) -> None:
    bags = separable_bags(40)
    settings = {"max_epochs": 3, "precision": precision}
    model = miue.train(bags, method=method, settings={**settings, "device": DEVICE}, progress=False)
    assert {parameter.device.type for parameter in model.method.parameters()} == {"cpu"}
    assert_same(model, bags, drawn=method in DRAWS)


@pytest.mark.parametrize(
    ("encoder", "side", "channels"), [("lenet", 16, 1), ("alexnet", 15, 3), ("compact", 16, 1)]
)
def test_a_model_of_images_has_its_scores_there_as_on_the_cpu(encoder: str, side: int, channels: int) -> None:
    bags = bright_bags(24, side=side, channels=channels)
    model = miue.train(bags, encoder=encoder, settings={"max_epochs": 3, "device": DEVICE}, progress=False)
    assert "statistics" in model.distances
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 moves a distance by up to 0.03
        assert_same(model, bags)


def assert_same(model: Model, bags: BagDataset, *, drawn: bool = False) -> None:
    """Predictions and scores are those of the CPU; of a method that draws, those that are not drawn."""
    there, here = model.predict(bags, device=DEVICE), model.predict(bags, device="cpu")
    assert there.instances is not None and here.instances is not None
    for ours, expected in ((there.bags, here.bags), (there.instances, here.instances)):
        assert np.isfinite(ours.probabilities).all()
        assert list(ours.scores) == list(expected.scores)
        if not drawn:
            assert_near(ours.probabilities, expected.probabilities)
            for name, values in ours.scores.items():
                assert_near(values, expected.scores[name], err_msg=name, rtol=5e-2, atol=2e-2)


def test_a_bag_in_several_blocks_is_predicted_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    bags = BagDataset.from_arrays([random.standard_normal((900, 6), dtype=np.float32)], [1])
    model = miue.train(separable_bags(24, width=6), settings={"max_epochs": 1, "device": DEVICE}, progress=False)
    whole = model.predict(bags, device=DEVICE)
    monkeypatch.setattr(encoding, "BLOCK_INSTANCES", 64)
    parts = model.predict(bags, device=DEVICE)
    assert whole.instances is not None and parts.instances is not None
    assert_equal(parts.bags.probabilities, whole.bags.probabilities)
    assert_equal(parts.instances.probabilities, whole.instances.probabilities)


@pytest.mark.parametrize("encoder", ["mlp", "lenet"])
def test_a_training_that_ended_early_goes_on_there(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = bright_bags(16, side=16) if encoder == "lenet" else separable_bags(24)

    def trained(out: Path) -> Model:
        settings = {"max_epochs": 4}
        return miue.train(
            bags,
            encoder=encoder,
            settings={**settings, "device": DEVICE},
            out=out,
            if_exists="resume",
            progress=False,
        )

    whole = trained(tmp_path / "whole").predict(bags, device="cpu")
    write = BestWeights.save

    def write_and_end(self: BestWeights, *given: object) -> None:
        write(self, *given)  # type: ignore[arg-type]
        raise ZeroDivisionError

    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr("miue.training.checkpoints.SECONDS", 0.0)
        patched.setattr(BestWeights, "save", write_and_end)
        trained(tmp_path / "parts")
    resumed = trained(tmp_path / "parts").predict(bags, device="cpu")
    assert_near(resumed.bags.probabilities, whole.bags.probabilities)


def test_members_are_trained_there_by_several_processes(tmp_path: Path) -> None:
    bags = separable_bags(24)
    folder = tmp_path / "bags"
    write_store(folder, bags)
    model = train_with(
        miue.read_store(folder),
        method="deep-ensemble",
        settings={"max_epochs": 2, "options": {"method.size": 2}, "device": DEVICE},
        out=tmp_path / "model",
        executor=Executor("processes", jobs=2),
        progress=False,
    )
    assert_same(model, bags)


def test_commands_use_it(tmp_path: Path) -> None:
    store, model, out = (str(tmp_path / name) for name in ("bags", "model", "predictions"))
    write_store(Path(store), separable_bags(40))
    for arguments in (
        ["train", store, "--out", model, "--device", "gpu", "--set", "max_epochs=2"],
        ["predict", model, store, "--out", out, "--part", "all", "--device", "gpu", "--precision", "bf16-mixed"],
        ["evaluate", out, "--allow-training-bags"],
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
