"""Networks: ragged equals one bag at a time, T is a bag of one, order does not matter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_bags import COUNTING_NETWORKS, RAGGED_NETWORKS, build_network
from torch import Tensor, nn

from miue.bags import Segments
from miue.common.errors import ConfigError, ModelError
from miue.networks import NETWORKS, DualStreamNetwork, MILNetwork, initialize, instance_logits_of_features
from miue.networks.encoders import MLP, AlexNet, CompactCNN, Encoder, LeNet, default_encoder

WIDTH, CLASSES = 7, 3


def build(name: str, classes: int = CLASSES, dropout: float = 0.0) -> MILNetwork:
    network = build_network(name, MLP((5,), width=WIDTH, dropout=dropout), classes, hidden=11)
    initialize(network, torch.Generator().manual_seed(3))
    return network.double()


@pytest.mark.long
@pytest.mark.parametrize("name", RAGGED_NETWORKS)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(sizes=st.one_of(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.just([1, 1031, 2])))
def test_ragged_equals_one_bag_at_a_time_in_value_and_gradient(name: str, sizes: list[int]) -> None:
    network = build(name)
    instances = torch.randn(sum(sizes), 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(len(sizes), CLASSES, dtype=torch.float64)

    def gradients(logits: Tensor) -> list[Tensor]:
        leaves = [instances, *network.parameters()]
        found = torch.autograd.grad((logits * weights).sum(), leaves, allow_unused=True)
        return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]

    together = network(instances, Segments.of(*sizes)).bag_logits
    alone = torch.cat([network(bag, Segments.of(len(bag))).bag_logits for bag in instances.split(sizes)])
    torch.testing.assert_close(together, alone)
    for packed, single in zip(gradients(together), gradients(alone), strict=True):
        torch.testing.assert_close(packed, single)


@pytest.mark.parametrize("name", RAGGED_NETWORKS)
def test_the_order_of_instances_does_not_matter(name: str) -> None:
    network, instances = build(name), torch.randn(13, 5, dtype=torch.float64)
    shuffled = instances[torch.randperm(13)]
    segments = Segments.of(13)
    torch.testing.assert_close(network(instances, segments).bag_logits, network(shuffled, segments).bag_logits)


@pytest.mark.parametrize("name", RAGGED_NETWORKS)
def test_an_instance_scores_as_a_bag_of_its_copies(name: str) -> None:
    network, instances = build(name), torch.randn(3, 5, dtype=torch.float64)
    single = network(instances, Segments.of(3)).instance_logits
    bags_of_one = network(instances, Segments.of(1, 1, 1)).bag_logits
    torch.testing.assert_close(single, bags_of_one)
    if name not in COUNTING_NETWORKS:
        copies = network(instances.repeat_interleave(7, 0), Segments.of(7, 7, 7)).bag_logits
        torch.testing.assert_close(single, copies)


@pytest.mark.parametrize("name", [name for name in RAGGED_NETWORKS if NETWORKS[name].has_attention])
def test_attention_sums_to_one_over_each_bag(name: str) -> None:
    attention = build(name)(torch.randn(12, 5, dtype=torch.float64), Segments.of(1, 11)).attention
    assert attention is not None
    totals = torch.stack([part.sum(0) for part in attention.split([1, 11])])
    torch.testing.assert_close(totals, torch.ones_like(totals))


@pytest.mark.parametrize("name", [name for name in RAGGED_NETWORKS if not NETWORKS[name].has_attention])
def test_a_network_without_attention_says_so(name: str) -> None:
    assert build(name)(torch.randn(4, 5, dtype=torch.float64), Segments.of(4)).attention is None


def test_attention_pools_features_before_a_linear_head() -> None:
    network = build("attention")
    instances = torch.randn(6, 5, dtype=torch.float64)
    output = network(instances, Segments.of(6))
    weights = network.attention(output.features).softmax(0)  # type: ignore[operator]
    pooled = (weights * output.features).sum(0, keepdim=True)
    torch.testing.assert_close(output.bag_logits, network.head(pooled))  # type: ignore[operator]


@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_the_convolution_of_the_dual_stream_is_drawn_as_its_option_says(name: str) -> None:
    network = DualStreamNetwork(MLP((5,), width=WIDTH), 2, hidden=500, initial_weights=name)
    initialize(network, torch.Generator().manual_seed(3))
    weight, bound = network.bag_head.weight.detach(), 1 / (2 * 500) ** 0.5
    if name == "normal":
        assert (float(weight.mean()), float(weight.std())) == pytest.approx((0, 1), abs=0.1)
    else:
        assert 0.99 * bound < float(weight.abs().max()) <= bound
    with pytest.raises(ConfigError, match="initial weights 'xavier': expected one of normal, uniform"):
        DualStreamNetwork(MLP((5,), width=WIDTH), 2, initial_weights="xavier")


def test_dual_stream_follows_its_definition() -> None:
    network = build("dsmil")
    assert isinstance(network, DualStreamNetwork)
    instances = torch.randn(9, 5, dtype=torch.float64)
    h = network.encode(instances)
    instance_logits = network.instance_head(h)
    critical = h[instance_logits.argmax(0)]
    similarity = network.query(h) @ network.query(critical).T / 11**0.5
    attended = similarity.softmax(0).T @ network.value(h)
    bag_logits = network.bag_head(attended[None]).squeeze(-1)
    expected = (instance_logits.max(0).values + bag_logits) / 2
    torch.testing.assert_close(network(instances, Segments.of(9)).bag_logits, expected)


@pytest.mark.parametrize("name", RAGGED_NETWORKS)
def test_held_instance_logits_equal_t_and_pass_gradient_to_the_features_alone(name: str) -> None:
    network = build(name)
    features = torch.randn(5, WIDTH, dtype=torch.float64, requires_grad=True)
    segments = Segments.of(2, 3)
    held = instance_logits_of_features(network, features)
    free = network.score(network.project(features), segments.singletons()).logits
    torch.testing.assert_close(held, free)
    torch.testing.assert_close(
        torch.autograd.grad(held.sum(), features, retain_graph=True)[0],
        torch.autograd.grad(free.sum(), features)[0],
    )
    held.sum().backward()
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("name", RAGGED_NETWORKS)
def test_a_bag_of_one_hundred_thousand_instances_is_scored(name: str) -> None:
    network, instances = build(name).float(), torch.randn(100_000, 5)
    with torch.no_grad():
        output = network(instances, Segments.of(99_999, 1))
    assert output.bag_logits.isfinite().all()
    assert output.instance_logits.shape == (100_000, CLASSES)


def test_initial_weights_are_uniform_within_one_over_root_fan_in(generator: torch.Generator) -> None:
    encoder = LeNet((28, 28, 1))
    initialize(encoder, generator)
    for layer, fan_in in ((encoder.convolutions[4], 500), (encoder.projection[0], 800)):
        assert isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None
        bound = fan_in**-0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.03)
        assert -bound <= layer.bias.min() < 0 < layer.bias.max() <= bound


def test_normalizing_layers_and_class_tokens_are_drawn_by_their_own_rules(generator: torch.Generator) -> None:
    norm, token = nn.BatchNorm2d(2000), nn.Module()
    nn.init.constant_(norm.bias, 7.0)
    token.cls_token = nn.Parameter(torch.full((1, 1, 2000), 7.0))
    initialize(nn.Sequential(norm, token), generator)
    assert 0 <= norm.weight.min() < 0.01 < 0.99 < norm.weight.max() <= 1
    assert norm.weight.mean().item() == pytest.approx(0.5, abs=0.03)
    assert not norm.bias.any()
    assert (token.cls_token.mean().item(), token.cls_token.std().item()) == pytest.approx((0, 1), abs=0.07)


def test_the_same_generator_state_gives_the_same_weights() -> None:
    first, second = (build("dsmil") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize(
    ("encoder", "side", "channels", "width"),
    [(LeNet, 28, 1, 800), (LeNet, 27, 3, 800), (AlexNet, 32, 3, 1024), (CompactCNN, 8, 1, 128)],
)
def test_an_image_encoder_gives_its_width(encoder: type[LeNet], side: int, channels: int, width: int) -> None:
    network = encoder((side, side, channels))
    assert all(layer.training for layer in network.modules())  # dropout and batch norms as of any new module
    network.eval()
    assert network(torch.rand(2, side, side, channels)).shape == (2, width) == (2, network.out_features)


def test_lenet_is_the_published_stack() -> None:
    encoder = LeNet((28, 28, 1)).eval()
    first, second = encoder.convolutions[0], encoder.convolutions[4]
    images = torch.rand(3, 28, 28, 1)
    x = torch.nn.functional.max_pool2d(first(images.permute(0, 3, 1, 2)).relu(), 2)
    x = torch.nn.functional.max_pool2d(second(x).relu(), 2)
    expected = encoder.projection[0](x.flatten(1)).relu()
    torch.testing.assert_close(encoder(images), expected)
    assert x.flatten(1).shape[1] == 800


def test_alexnet_is_the_published_stack() -> None:
    encoder = AlexNet((32, 32, 3))
    layers = [layer for layer in encoder.convolutions if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)]
    images = torch.rand(6, 32, 32, 3)
    x = images.permute(0, 3, 1, 2)
    for block, (convolution, normalization) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        x = normalization(convolution(x)).relu()
        x = torch.nn.functional.max_pool2d(x, 3, 2) if block in (0, 1, 4) else x
    expected = encoder.projection[0](x.flatten(1)).relu()
    torch.testing.assert_close(encoder(images), expected)
    parameters = list(encoder.parameters())
    gradients = [torch.autograd.grad(output.square().sum(), parameters) for output in (encoder(images), expected)]
    torch.testing.assert_close(*gradients)


def test_bytes_and_fractions_encode_alike() -> None:
    network = NETWORKS["mean"](CompactCNN((8, 8, 1)), 2).eval()
    images = torch.randint(0, 256, (3, 8, 8, 1), dtype=torch.uint8)
    torch.testing.assert_close(network.encode(images), network.encode(images.float() / 255))


def test_images_too_small_for_an_encoder_are_refused() -> None:
    with pytest.raises(ModelError, match=r"encoder LeNet: expected images .* got instances of shape \(8, 8, 1\)"):
        LeNet((8, 8, 1))


@pytest.mark.parametrize(("encoder", "side"), [(LeNet, 16), (AlexNet, 15), (CompactCNN, 4)])
def test_the_smallest_images_of_an_encoder_are_encoded_and_smaller_ones_refused(
    encoder: type[LeNet], side: int
) -> None:
    assert encoder((side, side + 3, 2), width=7).eval()(torch.rand(2, side, side + 3, 2)).shape == (2, 7)
    for shape in ((side - 1, side + 3, 2), (side + 3, side - 1, 2)):
        with pytest.raises(ModelError, match=f"of at least {side} pixels a side"):
            encoder(shape)
        assert default_encoder(shape) == "compact"
    assert default_encoder((16, 19, 2)) == "lenet"


@pytest.mark.parametrize("encoder", [LeNet, AlexNet, CompactCNN, MLP])
def test_an_encoder_refuses_instances_of_another_shape(encoder: type[Encoder]) -> None:
    for shape in ((5, 3, 3), (3, 3)) if encoder is MLP else ((16,), (3, 32, 32), (5, 3, 3)):
        with pytest.raises(ModelError) as raised:
            encoder(shape)
        assert (raised.value.item, raised.value.got) == (
            f"encoder {encoder.__name__}",
            f"instances of shape {shape}",
        )


@pytest.mark.parametrize("name", RAGGED_NETWORKS)
def test_evaluation_mode_turns_dropout_off(name: str) -> None:
    network, instances = build(name, dropout=0.5), torch.randn(6, 5, dtype=torch.float64)
    segments = Segments.of(6)
    network.train()
    assert not torch.equal(network(instances, segments).bag_logits, network(instances, segments).bag_logits)
    network.eval()
    assert torch.equal(network(instances, segments).bag_logits, network(instances, segments).bag_logits)
