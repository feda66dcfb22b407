"""What the draws of MC dropout share of an encoding, which is computed once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags import BagDataset
from miue.methods import DeepEnsemble, MCDropout, Method
from miue.model import encoding as draws
from miue.model.predict import predict
from miue.networks import AttentionNetwork, ModuleEncoder
from miue.networks.encoders import MLP, AlexNet, CompactCNN, Encoder, LeNet


class Brightened(LeNet):
    """A LeNet whose images are changed first."""

    def forward(self, instances: Float[Tensor, "N H W channels"]) -> Float[Tensor, "N D"]:
        """Return the features of brighter images."""
        return super().forward(instances + 3)


class NoDropoutInTheConvolutions(CompactCNN):
    """A small network with dropout after its features alone."""

    def __init__(self, instance_shape: tuple[int, ...], *, width: int, dropout: float) -> None:
        super().__init__(instance_shape, width=width)
        kept = [layer for layer in self.convolutions if not isinstance(layer, nn.Dropout2d)]
        self.convolutions = nn.Sequential(*kept)
        self.projection.append(nn.Dropout(dropout))


SHAPES: dict[type[Encoder], tuple[int, ...]] = {
    MLP: (5,),
    LeNet: (16, 18, 1),
    AlexNet: (15, 17, 3),
    CompactCNN: (5, 4, 2),
    Brightened: (16, 18, 1),
    NoDropoutInTheConvolutions: (5, 4, 2),
}
each_encoder = pytest.mark.parametrize("encoder", SHAPES)


def made(encoder: type[Encoder]) -> Encoder:
    torch.manual_seed(2)
    return encoder(SHAPES[encoder], width=6, dropout=0.4)


def bags_of(encoder: type[Encoder], sizes: tuple[int, ...]) -> BagDataset:
    random = np.random.default_rng(0)
    return BagDataset.from_arrays([random.normal(size=(n, *SHAPES[encoder])).astype(np.float32) for n in sizes])


def predicted(method: Method, bags: BagDataset, precision: str = "float32") -> list[np.ndarray]:
    """The probabilities of bags and of instances."""
    (tables,) = predict(method, bags, device="cpu", seed=3, precision=precision)
    return [table.probabilities for table in tables]


@each_encoder
@pytest.mark.parametrize("training", [False, True])
def test_both_parts_of_an_encoder_are_the_encoder(encoder: type[Encoder], training: bool) -> None:
    built = made(encoder).train(training)
    instances = torch.randn(7, *SHAPES[encoder])
    torch.manual_seed(1)
    whole = built(instances)
    torch.manual_seed(1)
    assert torch.equal(built.from_dropout(built.until_dropout(instances)), whole)


@pytest.mark.parametrize("encoder", [MLP, LeNet, AlexNet, CompactCNN])
def test_the_layers_before_dropout_see_each_instance_once(encoder: type[Encoder]) -> None:
    built = made(encoder)
    first = next(layer for layer in built.modules() if isinstance(layer, nn.Linear | nn.Conv2d))
    seen: list[int] = []
    first.register_forward_hook(lambda layer, inputs, output: seen.append(len(output)))
    bags = bags_of(encoder, (3, 1, 140))
    predicted(MCDropout(AttentionNetwork(built, 2, hidden=3), draws=4), bags)
    assert sum(seen) == 144


@pytest.mark.long
@each_encoder
@pytest.mark.parametrize("precision", ["float32", "bf16-mixed"])
@pytest.mark.parametrize("at_once", [4096, 9])
def test_draws_that_share_are_those_of_encoding_anew(
    encoder: type[Encoder], precision: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = MCDropout(AttentionNetwork(made(encoder), 2, hidden=3), draws=4)
    bags = bags_of(encoder, (3, 1, 50, 4))
    monkeypatch.setattr(draws, "COPIED_INSTANCES", at_once)
    shared = predicted(method, bags, precision)
    monkeypatch.setattr(draws, "SHARED_NUMBERS", 0)
    for found, anew in zip(shared, predicted(method, bags, precision), strict=True):
        np.testing.assert_allclose(found, anew, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numbers", [20 * 5 - 1, 20 * 6 - 1, 20 * 6])
def test_what_is_shared_of_a_large_bag_is_held_up_to_a_size(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bag of 20 instances of 5 numbers; 6 numbers of each are shared."""
    built = made(MLP)
    method = MCDropout(AttentionNetwork(built, 2, hidden=3), draws=4)
    seen: list[int] = []
    next(iter(built.layers)).register_forward_hook(lambda layer, inputs, output: seen.append(len(output)))  # type: ignore
    monkeypatch.setattr(draws, "SHARED_NUMBERS", numbers)
    predicted(method, bags_of(MLP, (20,)))
    assert sum(seen) == {99: 80, 119: 20 + 80, 120: 20}[numbers]


def test_members_of_an_ensemble_share_nothing_with_one_another() -> None:
    network = AttentionNetwork(made(MLP), 2, hidden=3)
    ensemble = DeepEnsemble(network, size=2, member="mc-dropout", draws=3)
    bags = bags_of(MLP, (3, 1, 6))
    before = predicted(ensemble, bags)
    for member in ensemble.members():
        nn.init.normal_(next(member.network.encoder.parameters()))
        after = predicted(ensemble, bags)
        assert not any(np.allclose(*pair) for pair in zip(before, after, strict=True))
        before = after


def test_a_module_of_another_package_is_encoded_anew() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5))
    method = MCDropout(AttentionNetwork(ModuleEncoder((5,), module), 2, hidden=3), draws=3)
    seen: list[int] = []
    module[0].register_forward_hook(lambda layer, inputs, output: seen.append(len(output)))
    predicted(method, bags_of(MLP, (4,)))
    assert sum(seen) == 12
