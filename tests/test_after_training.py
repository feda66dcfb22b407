"""What a method does after training, and the last layer of a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import parts_of_others as others
import pytest
import torch
from made_bags import ONE_SIDED_NETWORKS, TORCHMIL_NETWORKS, build_network, separable_bags, train_with
from torch import nn

import miue
from miue.bags import BagDataset, Segments
from miue.common.errors import ConfigError
from miue.networks import NETWORKS, BagModuleNetwork, MeanNetwork, initialize
from miue.networks.encoders import MLP, Identity

WIDTH = 5
HOWTO = Path(__file__).resolve().parents[1] / "docs" / "howto" / "own_network.md"


def train(bags: BagDataset, **more: Any) -> miue.Model:
    settings = {"max_epochs": 1, "validation_fraction": 0.25, "seed": 3}
    return train_with(bags, settings={**settings, "device": "cpu", "distances": ()}, progress=False, **more)


def buffers(model: miue.Model, name: str) -> list[list[float]]:
    return [value.tolist() for key, value in model.method.state_dict().items() if key.endswith(name)]


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ONE_SIDED_NETWORKS])
def test_the_last_layer_of_a_network_makes_its_logits(name: str) -> None:
    if name in TORCHMIL_NETWORKS:
        pytest.importorskip("torchmil")
    network = build_network(name, MLP((WIDTH,), width=16), 3, hidden=8).eval()
    initialize(network, torch.Generator().manual_seed(1))
    instances, segments = torch.randn(7, WIDTH), Segments.of(1, 4, 2)
    with torch.no_grad():
        before = network(instances, segments)
        network.last_layer.get_parameter("bias").add_(1)
        after = network(instances, segments)
    by = 0.5 if "dsmil" in name else 1.0  # of two streams, whose logits are averaged
    torch.testing.assert_close(after.bag_logits, before.bag_logits + by)
    torch.testing.assert_close(after.instance_logits, before.instance_logits + by)


def test_the_last_layer_of_a_plain_module_is_its_last_linear_layer() -> None:
    module = others.PlainMean(WIDTH, 3)
    assert BagModuleNetwork(Identity((WIDTH,)), 3, module).last_layer is module.layers[-1]


@pytest.mark.parametrize("name", ONE_SIDED_NETWORKS)
def test_a_network_with_a_score_less_than_classes_has_no_last_layer(name: str) -> None:
    with pytest.raises(ConfigError, match=r"3 outputs.*out_features=2"):
        build_network(name, MLP((WIDTH,), width=3), 3).last_layer  # noqa: B018


@pytest.mark.parametrize("layers", [nn.ReLU(), nn.Linear(WIDTH, 7)])
def test_a_network_without_a_known_last_layer_is_answered(layers: nn.Module) -> None:
    network = BagModuleNetwork(MLP((WIDTH,), width=3), 3, layers)
    with pytest.raises(ConfigError, match="3 outputs.*override the property last_layer"):
        network.last_layer  # noqa: B018


def test_a_method_sees_the_training_bags_alone_and_keeps_what_it_learns(tmp_path: Path, bags: BagDataset) -> None:
    model = train(bags, method=others.CountsBags, out=tmp_path / "run")
    (counted,) = buffers(model, "counted")
    assert sum(counted) == 2 * (len(bags) - len(bags) // 4)
    loaded = miue.Model.load(tmp_path / "run", trust=True)
    assert buffers(loaded, "counted") == [counted] and buffers(loaded, "drawn") == buffers(model, "drawn")


def test_a_run_that_was_stopped_after_training_does_what_comes_after_it(tmp_path: Path, bags: BagDataset) -> None:
    model = train(bags, method=others.CountsBags, out=tmp_path / "run")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    torch.rand(3)
    again = train(bags, method=others.CountsBags, out=tmp_path / "run", if_exists="resume")
    assert again.weights_sha256 == model.weights_sha256 and sum(buffers(again, "counted")[0]) > 0


@pytest.mark.long
def test_each_member_of_an_ensemble_acts_after_training(bags: BagDataset) -> None:
    model = train(bags, method=others.CountingEnsemble)
    counted = buffers(model, "counted")
    assert len(counted) == 3 and all(one == counted[0] and sum(one) > 0 for one in counted)


@pytest.mark.long
def test_each_model_of_a_cross_validation_acts_on_its_own_training_bags(tmp_path: Path) -> None:
    from miue.io import make_folds
    from miue.model.recipe import Recipe
    from miue.selection import cross_validate

    bags = separable_bags(24)
    recipe = Recipe(method=others.CountsBags, settings={"max_epochs": 1})
    folds = make_folds(bags, 2, validation=0.25, seed=1)
    cross_validate(bags, folds, [1], tmp_path, recipe, settings={"device": "cpu"}, progress=False)
    runs = sorted(path.parent for path in tmp_path.rglob("model.safetensors"))
    assert len(runs) == 2
    for run in runs:
        model = miue.Model.load(run, trust=True)
        assert sum(buffers(model, "counted")[0]) == 2 * model.training.training_bags


def test_a_buffer_that_changes_its_shape_is_refused_before_it_is_saved(tmp_path: Path, bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match=r"'counted' of method 'Grows': expected shape \(2,\).*got \(3,\)"):
        train(bags, method=others.Grows, out=tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.long
def test_a_loss_of_its_own_is_what_a_method_learns(bags: BagDataset) -> None:
    ours, theirs = train(bags, method="softmax"), train(bags, method=others.Smoothed)
    assert ours.weights_sha256 != theirs.weights_sha256


@pytest.fixture
def laplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The method of the how-to, in a module that another process can import."""
    (code,) = re.findall(r'title="my_method.py"\n(.*?)```', HOWTO.read_text(), re.S)
    (tmp_path / "laplace_of_howto.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "laplace_of_howto", raising=False)
    import laplace_of_howto  # type: ignore[import-not-found]

    return laplace_of_howto.LastLayerLaplace


def test_a_laplace_approximation_of_the_last_layer_equals_its_closed_form(laplace: Any, bags: BagDataset) -> None:
    method = laplace(MeanNetwork(Identity((WIDTH,)), 2), prior_precision=0.5)
    batch = bags.batch(range(len(bags)))
    method.fit_after_training([batch])
    means = torch.stack([bag.mean(0) for bag in batch.instances.split(batch.segments.sizes.tolist())])
    p = method.network.head(means).softmax(1).detach()
    torch.testing.assert_close(method.precision, 0.5 + (p * (1 - p)).T @ means**2)


@pytest.mark.slow
def test_a_laplace_approximation_predicts_the_same_in_a_new_process(
    laplace: Any, bags: BagDataset, tmp_path: Path
) -> None:
    model = train(bags, network="attention", method=laplace, options={"method.draws": 4}, out=tmp_path / "run")
    trained = {name: value.clone() for name, value in model.method.state_dict().items()}
    predicted = model.predict(bags, seed=5)
    assert all(torch.equal(value, trained[name]) for name, value in model.method.state_dict().items())
    uncertainty = predicted.bags.uncertainties()["mutual_information"]
    assert uncertainty.min() > 0 and predicted.bags.uncertainties()["entropy"].max() <= np.log(2)
    script = (
        "import sys, numpy, miue\n"
        f"sys.path[:0] = {[str(tmp_path), str(Path(__file__).parent)]!r}\n"
        "from made_bags import separable_bags\n"
        f"model = miue.Model.load({str(tmp_path / 'run')!r}, trust=True)\n"
        "predicted = model.predict(separable_bags(), seed=5, device='cpu')\n"
        f"numpy.save({str(tmp_path / 'there.npy')!r}, predicted.bags.probabilities)\n"
    )
    here = model.predict(separable_bags(), seed=5, device="cpu").bags.probabilities
    subprocess.run([sys.executable, "-c", script], check=True)
    assert np.array_equal(np.load(tmp_path / "there.npy"), here)
