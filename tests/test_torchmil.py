"""Networks of torchmil: padded and masked as ours are ragged, T a bag of one, with every method."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import TORCHMIL_NETWORKS, build_network, separable_bags, train_with
from torch import Tensor, nn
from typer.testing import CliRunner

import miue
from miue.bags import BagBatch, Segments
from miue.cli import app
from miue.common.errors import ConfigError
from miue.distributions import Dirichlet
from miue.methods import METHODS, MIREL
from miue.networks import MILNetwork, PaddedNetwork, initialize, instance_logits_of_features, padded
from miue.networks.encoders import MLP
from miue.networks.padded import bags_of_like_size, padded_positions

WIDTH, HIDDEN, CLASSES = 7, 8, 3
MASKED = sorted(set(TORCHMIL_NETWORKS) - {"torchmil-transmil"})
SIZES = [1, 9, 3, 2, 5, 1, 9]

models = pytest.importorskip("torchmil.models", reason="needs the extra 'torchmil'")


def build(name: str, classes: int = CLASSES, **options: Any) -> MILNetwork:
    network = build_network(name, MLP((5,), width=WIDTH), classes, hidden=HIDDEN, **options)
    initialize(network, torch.Generator().manual_seed(3))
    return network.double().eval()


def instances_of(sizes: list[int] = SIZES) -> Tensor:
    return torch.randn(sum(sizes), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize(("ours", "gated"), [("attention", False), ("gated-attention", True)])
@pytest.mark.parametrize("theirs", ["torchmil-abmil", "torchmil-clam-sb"])
def test_with_the_same_weights_attention_is_ours(ours: str, gated: bool, theirs: str) -> None:
    ragged: Any = build(ours)
    foreign: Any = build(theirs, gated=gated)
    pool, parts = foreign.model.pool, ragged.attention
    first, last = (parts.content[0], parts.score) if gated else (parts[0], parts[2])
    pairs = [(foreign.encoder, ragged.encoder), (foreign.model.classifier, ragged.head), (pool.fc1.module, first)]
    if gated:
        pairs.append((pool.fc_gated.module, parts.gate[0]))
    for to, source in pairs:
        to.load_state_dict(source.state_dict())
    pool.fc2.weight.data.copy_(last.weight.data)  # theirs has no bias, which a softmax does not see
    instances, segments = instances_of(), Segments.of(*SIZES)
    one, other = ragged(instances, segments), foreign(instances, segments)
    torch.testing.assert_close(other.bag_logits, one.bag_logits)
    torch.testing.assert_close(other.instance_logits, one.instance_logits)
    torch.testing.assert_close(other.attention, one.attention)


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("slots", [1, 10, padded.SLOTS])
def test_padding_changes_neither_value_nor_gradient(
    name: str, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded, "SLOTS", slots)
    check_that_bags_do_not_see_each_other(build(name))


def test_bags_of_transmil_do_not_see_each_other() -> None:
    check_that_bags_do_not_see_each_other(build("torchmil-transmil", n_landmarks=4))


def check_that_bags_do_not_see_each_other(network: MILNetwork) -> None:
    instances = instances_of().requires_grad_()
    weights = torch.randn(len(SIZES), CLASSES, dtype=torch.float64)

    def gradients(logits: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(
            (logits * weights).sum(), [instances, *network.parameters()], allow_unused=True
        )
        return [torch.zeros(()) if gradient is None else gradient for gradient in found]

    together = network(instances, Segments.of(*SIZES))
    alone = [network(bag, Segments.of(len(bag))) for bag in instances.split(SIZES)]
    torch.testing.assert_close(together.bag_logits, torch.cat([one.bag_logits for one in alone]))
    if network.has_attention:
        torch.testing.assert_close(together.attention, torch.cat([one.attention for one in alone]))
    apart = gradients(torch.cat([one.bag_logits for one in alone]))
    for packed, single in zip(gradients(together.bag_logits), apart, strict=True):
        torch.testing.assert_close(packed, single)


def alone_in_torchmil(network: Any, bag: Tensor) -> Tensor:
    """The logits that torchmil's own forward pass, without a mask, gives one bag."""
    model = network.model
    features = network.encode(bag).unsqueeze(0)
    if type(model).__name__ != "DSMIL":
        logits: Tensor = model(features).squeeze(0)
        return logits
    of_bag, of_instances = model(features, return_inst_pred=True)
    mean: Tensor = (of_bag + of_instances.max(1).values).squeeze(0) / 2
    return mean


@pytest.mark.parametrize("name", TORCHMIL_NETWORKS)
def test_s_and_t_are_torchmil_on_one_bag_and_on_bags_of_one(name: str) -> None:
    network, instances = build(name), instances_of()
    output = network(instances, Segments.of(*SIZES))
    bags = torch.stack([alone_in_torchmil(network, bag) for bag in instances.split(SIZES)])
    ones = torch.stack([alone_in_torchmil(network, one) for one in instances.split(1)])
    torch.testing.assert_close(output.bag_logits, bags)
    torch.testing.assert_close(output.instance_logits, ones)
    features = network.encode(instances).detach().requires_grad_()
    held = instance_logits_of_features(network, features)
    torch.testing.assert_close(held, ones)
    held.sum().backward()
    assert features.grad is not None
    assert features.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in network.parameters())


def test_one_logit_per_class_is_torchmil_with_its_one_logit_twice() -> None:
    published = models.DSMIL((WIDTH,), att_dim=HIDDEN).double()
    network: Any = build("torchmil-dsmil", classes=2)
    state = published.state_dict()
    for name in ("inst_classifier.weight", "inst_classifier.bias"):
        state[name] = state[name].repeat_interleave(2, 0)
    network.model.load_state_dict(state)
    features = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    expected = published.predict(features)
    logits = network.score((features[0],), Segments.of(9)).logits
    torch.testing.assert_close(logits, expected.repeat(2)[None])


@pytest.mark.parametrize("name", MASKED)
def test_attention_sums_to_one_over_each_bag_and_order_does_not_matter(name: str) -> None:
    network, instances, segments = build(name), instances_of(), Segments.of(*SIZES)
    attention = network(instances, segments).attention
    totals = torch.stack([part.sum(0) for part in attention.split(SIZES)])
    torch.testing.assert_close(totals, torch.ones_like(totals))
    backwards = torch.cat([bag.flip(0) for bag in instances.split(SIZES)])
    torch.testing.assert_close(network(backwards, segments).bag_logits, network(instances, segments).bag_logits)


def test_bags_of_like_size_are_padded_to_less_than_double() -> None:
    segments = Segments(torch.randint(1, 1000, (300,), generator=torch.Generator().manual_seed(0)))
    groups = list(bags_of_like_size(segments, exactly=False))
    assert sorted(torch.cat(groups).tolist()) == list(range(300))
    slots = [len(bags) * int(segments.sizes[bags].max()) for bags in groups]
    assert sum(slots) < 2 * segments.num_instances
    assert max(slots) <= padded.SLOTS
    for bags in bags_of_like_size(segments, exactly=True):
        assert len(segments.sizes[bags].unique()) == 1
    positions, present = padded_positions(segments, groups[3])
    sizes = segments.sizes[groups[3]]
    assert present.sum(1).tolist() == sizes.tolist()
    starts = segments.offsets[groups[3]].unsqueeze(1)
    assert ((positions >= starts) & (positions < starts + sizes.unsqueeze(1))).all()


@pytest.mark.parametrize("name", TORCHMIL_NETWORKS)
@pytest.mark.parametrize("routing", ["through-residual", "through-estimator"])
def test_mirel_adds_its_residual_to_their_t(name: str, routing: str) -> None:
    method = MIREL(build(name, classes=2), routing=routing).double()
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 1])
    batch = BagBatch(instances_of(), Segments.of(*SIZES), labels, torch.ones(7, dtype=torch.bool))
    method.loss(batch, 1).backward()
    for parameter, weights in method.named_parameters():
        unused = "norm2" in parameter  # torchmil makes it whether or not a layer has the MLP behind it
        assert unused or (weights.grad is not None and weights.grad.isfinite().all()), parameter
    features = method.encode(batch.instances)
    found = method.predict([features], batch.segments, "residual").instances
    assert isinstance(found, Dirichlet)
    t = method.network(batch.instances, batch.segments).instance_logits.clamp(-10, 10)
    torch.testing.assert_close(found.alpha, ((1 + method.residual(features)) * t).exp() + 1)


@pytest.mark.parametrize("network", TORCHMIL_NETWORKS)
def test_a_saved_model_predicts_as_before_and_the_seed_decides_the_weights(network: str, tmp_path: Path) -> None:
    bags = separable_bags(16)
    options = {"network.hidden": 8, "encoder.width": 8}
    given: dict[str, Any] = {"network": network, "options": options, "progress": False, "device": "cpu"}
    model = train_with(bags, settings={"max_epochs": 1}, **given)
    model.save(tmp_path / "model")
    ours, theirs = model.predict(bags), miue.Model.load(tmp_path / "model").predict(bags)
    assert np.array_equal(ours.bags.probabilities, theirs.bags.probabilities)
    assert ours.instances is not None
    assert theirs.instances is not None
    assert np.array_equal(ours.instances.probabilities, theirs.instances.probabilities)
    torch.manual_seed(99)
    again = train_with(bags, settings={"max_epochs": 1}, **given).predict(bags)
    assert np.array_equal(ours.bags.probabilities, again.bags.probabilities)


@pytest.mark.slow
def test_a_saved_model_loads_in_a_process_that_has_not_imported_torchmil(tmp_path: Path) -> None:
    trained = miue.train(separable_bags(16), network="torchmil-abmil", settings={"max_epochs": 1}, progress=False)
    trained.save(tmp_path / "model")
    load = [sys.executable, "-c", f"import miue; miue.Model.load({str(tmp_path / 'model')!r})"]
    result = subprocess.run(load, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.long
def test_mirel_learns_with_the_attention_of_torchmil() -> None:
    bags = separable_bags(80)
    settings = {"max_epochs": 12, "learning_rate": 1e-2}
    options = {"network.hidden": 8, "encoder.width": 16}
    model = miue.train(
        bags, network="torchmil-abmil", settings={**settings, "options": options, "device": "cpu"}, progress=False
    )
    held_back = separable_bags(60, seed=1)
    predictions = model.predict(held_back)
    assert np.mean(predictions.bags.predicted == held_back.labels.values) > 0.9
    assert predictions.instances is not None
    assert np.mean(predictions.instances.predicted == held_back.instance_labels.values) > 0.9


@pytest.mark.long
@pytest.mark.parametrize("method", ["softmax", "deep-ensemble", "mc-dropout", "edl", "i-edl"])
def test_other_methods_take_torchmil_networks(method: str) -> None:
    options = {
        "network.hidden": 8,
        "encoder.width": 8,
        **({"method.size": 2} if method == "deep-ensemble" else {}),
    }
    bags = separable_bags(20)
    for network in ("torchmil-dsmil", "torchmil-transmil"):
        model = miue.train(
            bags, network=network, method=method, settings={"max_epochs": 1, "options": options}, progress=False
        )
        assert np.isfinite(model.predict(bags).bags.probabilities).all()


def test_bayes_mil_says_that_it_takes_no_torchmil_network() -> None:
    with pytest.raises(ConfigError, match="attention"):
        METHODS["bayes-mil"](build("torchmil-abmil", classes=2))


def test_heads_that_do_not_divide_the_width_are_answered() -> None:
    with pytest.raises(ConfigError, match=r"got \(2, 8, 3\)"):
        build("torchmil-transmil", n_heads=3)


def test_without_torchmil_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmil", None)
    with pytest.raises(ConfigError, match=r"pip install 'miue\[torchmil\]'"):
        miue.train(separable_bags(), network="torchmil-abmil", progress=False)


def test_the_command_line_takes_them(tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", separable_bags(20))
    command = ["train", str(tmp_path / "store"), "--network", "torchmil-clam-sb", "--out", str(tmp_path / "run")]
    sets = ["--set", "max_epochs=1", "--set", "network.hidden=8", "--set", "network.gated=false", "--quiet"]
    result = CliRunner().invoke(app, [*command, *sets])
    assert result.exit_code == 0, result.output
    model = miue.Model.load(tmp_path / "run")
    assert model.config.network.options == {"hidden": 8, "gated": False}
    assert isinstance(model.method.network, PaddedNetwork)
    network: Any = model.method.network
    assert not [m for m in network.model.modules() if isinstance(m, nn.Sigmoid)]
