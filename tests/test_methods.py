"""Methods: any takes any network; MIREL's loss is the paper's; routings teach what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from made_bags import FITTING, RAGGED_NETWORKS, build_network
from torch import Tensor

from miue.bags import BagBatch, Segments
from miue.common.errors import ConfigError
from miue.distributions import Dirichlet
from miue.evidence import to_alpha
from miue.evidence.losses import EvidentialLoss
from miue.methods import METHODS, MIREL, Method
from miue.model.config import ModelConfig
from miue.model.recipe import Recipe
from miue.networks import initialize
from miue.networks.encoders import MLP


def batch_of(sizes: list[int], labels: list[int]) -> BagBatch:
    return BagBatch(
        torch.randn(sum(sizes), 5, dtype=torch.float64),
        Segments.of(*sizes),
        torch.tensor(labels),
        torch.ones(len(sizes), dtype=torch.bool),
    )


def build(method: str, network: str = "attention", classes: int = 2, **options: Any) -> Method:
    dropout = METHODS[method].encoder_defaults.get("dropout", 0.0)
    net = build_network(network, MLP((5,), width=7, dropout=dropout), classes, hidden=11)
    built = METHODS[method](net, **options)
    initialize(built, torch.Generator().manual_seed(3))
    return built.double()


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize(("method", "network"), FITTING)
def test_any_method_takes_any_network(method: str, network: str, classes: int) -> None:
    if method == "bayes-mil" and classes > 2:
        with pytest.raises(ConfigError, match="two classes"):
            build(method, network, classes)
        return
    model, batch = build(method, network, classes), batch_of([3, 1, 4], [0, 1, classes - 1])
    model.loss(batch, 1).backward()
    gradients = [p.grad for p in model.network.parameters()]
    assert any(g is not None and g.abs().sum() > 0 for g in gradients)
    (one, *_) = model.passes(seed=0)
    output = one.eval().predict([one.encode(batch.instances)], batch.segments, "bag-of-one")
    assert output.bags.probabilities.shape == (3, classes)
    assert output.instances.probabilities.shape == (8, classes)
    if len(model.members()) == 1:
        log_probabilities = model.eval().bag_log_probabilities(batch)
        torch.testing.assert_close(log_probabilities.exp(), output.bags.probabilities)


def reference_mirel_loss(model: MIREL, batch: BagBatch, epoch: int) -> Tensor:
    """The loss of the paper, bag by bag, for two classes with background 0."""
    loss = EvidentialLoss(fisher_coefficient=0.05)
    total = torch.zeros((), dtype=torch.float64)
    for bag, label in zip(batch.instances.split(batch.segments.sizes.tolist()), batch.labels, strict=True):
        h = model.encode(bag)
        output = model.network(bag, Segments.of(len(bag)))
        log_t = output.instance_logits.clamp(-10, 10).detach()
        log_r = (1 + model.residual(h)) * log_t
        target = label.reshape(1)
        total = total + loss(output.bag_logits.clamp(-10, 10), target, epoch).sum()
        if label == 0:
            total = total + loss(log_r, target.repeat(len(bag)), epoch).mean()
        else:
            alpha_t = to_alpha(log_t)
            w = alpha_t[:, 1] / alpha_t.sum(1)
            evidence = (w / w.sum())[:, None] * log_r.exp()
            total = total + loss(evidence.sum(0, keepdim=True).log(), target, epoch).sum()
    return total / len(batch.labels)


@pytest.mark.parametrize("network", RAGGED_NETWORKS)
def test_the_mirel_loss_is_that_of_the_paper(network: str) -> None:
    model, batch = (
        build("mirel", network, fisher_coefficient=0.05, routing="through-residual"),
        batch_of([3, 1, 4, 1], [0, 1, 1, 0]),
    )
    assert isinstance(model, MIREL)
    ours, reference = model.loss(batch, 4), reference_mirel_loss(model, batch, 4)
    torch.testing.assert_close(ours, reference)
    parameters = list(model.parameters())
    pairs = zip(
        torch.autograd.grad(ours, parameters, allow_unused=True),
        torch.autograd.grad(reference, parameters, allow_unused=True),
        strict=True,
    )
    for mine, theirs in pairs:
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


@pytest.mark.long
def test_the_mirel_loss_of_very_large_bags_loses_no_digits() -> None:
    torch.manual_seed(0)
    model, batch = build("mirel", "mean", routing="through-residual"), batch_of([20_000, 3], [0, 1])
    equal = torch.zeros_like(batch.instances)
    exact = model.loss(replace(batch, instances=equal), 4).item()
    single = model.float().loss(replace(batch, instances=equal.float()), 4).item()
    assert single == pytest.approx(exact, rel=1e-5)


def taught(routing: str) -> dict[str, bool]:
    """Which parts the instance loss alone gives a gradient to."""
    model, batch = build("mirel", routing=routing), batch_of([3, 2], [0, 1])
    assert isinstance(model, MIREL)
    with_instances = model.loss(batch, 1)
    model.instance_coefficient = 0.0
    difference = with_instances - model.loss(batch, 1)
    parts = {
        "encoder": model.network.encoder.parameters(),
        "decision": model.network.head.parameters(),  # type: ignore[union-attr]
        "residual": model.residual.parameters(),
    }
    result = {}
    for name, parameters in parts.items():
        gradients = torch.autograd.grad(difference, list(parameters), retain_graph=True, allow_unused=True)
        result[name] = any(g is not None and g.abs().max() > 1e-9 for g in gradients)
    return result


@pytest.mark.parametrize(
    ("routing", "encoder"),
    [("through-residual", True), ("through-estimator", True), ("residual-only", False)],
)
def test_a_routing_teaches_the_parts_it_names(routing: str, encoder: bool) -> None:
    assert taught(routing) == {"encoder": encoder, "decision": False, "residual": True}


def test_the_two_routings_to_the_encoder_differ() -> None:
    gradients = []
    for routing in ("through-residual", "through-estimator"):
        torch.manual_seed(0)
        model = build("mirel", routing=routing)
        model.loss(batch_of([3, 2], [0, 1]), 1).backward()
        gradients.append(next(model.network.encoder.parameters()).grad)
    first, second = gradients
    assert first is not None
    assert second is not None
    assert not torch.allclose(first, second)


def test_the_instance_prediction_of_mirel_is_t_raised_by_the_residual() -> None:
    model, batch = build("mirel"), batch_of([3, 2], [0, 1])
    assert isinstance(model, MIREL)
    h = model.encode(batch.instances)
    evidence_t = model.network(batch.instances, batch.segments).instance_logits.clamp(-10, 10).exp()
    expected = evidence_t ** (1 + model.residual(h)) + 1
    predicted = model.predict([h], batch.segments, "residual").instances
    assert isinstance(predicted, Dirichlet)
    torch.testing.assert_close(predicted.alpha, expected)
    of_one = model.predict([h], batch.segments, "bag-of-one").instances
    assert isinstance(of_one, Dirichlet)
    torch.testing.assert_close(of_one.alpha, evidence_t + 1)


@pytest.mark.parametrize(
    "option", [{"routing": "through-residul"}, {"strategy": "weighted-evidenc"}, {"activation": "exq"}]
)
def test_a_misspelt_option_names_the_nearest(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        build("mirel", **option)


def routings(method: Method) -> set[object]:
    """Return the routing of each member."""
    return {member.routing for member in method.members() if isinstance(member, MIREL)}


def test_the_instance_loss_has_the_routing_of_the_network_unless_one_is_named() -> None:
    assert routings(build("mirel")) == {"through-residual"}
    assert routings(build("mirel", "dsmil")) == {"residual-only"}
    assert routings(build("mirel", "dsmil", routing="through-residual")) == {"through-residual"}
    assert routings(build("deep-ensemble", "dsmil", member="mirel", size=2)) == {"residual-only"}


@pytest.mark.parametrize(
    ("network", "options", "recorded"),
    [
        ("dsmil", {}, "residual-only"),
        ("attention", {}, "through-residual"),
        ("dsmil", {"method.routing": "auto"}, "residual-only"),
        ("dsmil", {"method.routing": "through-residual"}, "through-residual"),
    ],
)
@pytest.mark.parametrize("method", ["mirel", "deep-ensemble"])
def test_the_config_of_a_model_names_its_routing(
    method: str, network: str, options: dict[str, str], recorded: str
) -> None:
    of_ensemble: dict[str, Any] = {"method.member": "mirel", "method.size": 2} if method == "deep-ensemble" else {}
    config = Recipe(network, method, options={**of_ensemble, **options}).model_config((4,))
    assert config.method.options["routing"] == recorded


@pytest.mark.parametrize(
    ("network", "routing", "shown"),
    [
        ("dsmil", "", False),
        ("dsmil", "residual-only", False),  # what it would take anyway
        ("dsmil", "through-residual", True),
        ("attention", "", False),
        ("attention", "residual-only", True),
    ],
)
@pytest.mark.parametrize("method", ["mirel", "deep-ensemble"])
def test_readers_see_the_options_that_were_chosen(method: str, network: str, routing: str, shown: bool) -> None:
    chosen: dict[str, Any] = {"network.hidden": 8} if network == "attention" else {"encoder.width": 8}
    chosen |= {"method.member": "mirel", "method.size": 2} if method == "deep-ensemble" else {}
    routed = {"method.routing": routing} if routing else {}
    config = Recipe(network, method, "mlp", {**chosen, **routed}).model_config((4,))
    assert config.chosen_options() == {**chosen, **(routed if shown else {})}
    read = ModelConfig.model_validate_json(config.model_dump_json())
    assert read.chosen_options() == config.chosen_options()
    assert read.options()["method.routing"] in ("residual-only", "through-residual")


def test_a_method_without_instance_loss_records_no_routing() -> None:
    for method in ("softmax", "deep-ensemble"):
        assert "routing" not in Recipe("dsmil", method).model_config((4,)).method.options
