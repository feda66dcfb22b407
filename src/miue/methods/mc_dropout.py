"""MC dropout: dropout stays active in prediction, and draws are averaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from miue.common.errors import ConfigError, out_of_range
from miue.common.returned import class_name
from miue.methods.base import Method
from miue.methods.softmax import Softmax
from miue.networks import MILNetwork


class MCDropout(Softmax):
    """Cross-entropy with dropout in the encoder, also in prediction, where draws are averaged.

    Reference: Gal & Ghahramani 2016; Liu & Ji 2024, Appendix D.3.

    Args:
        network: any MIL network whose encoder has dropout.
        draws: number of predictions that are averaged.
    """

    encoder_defaults: ClassVar[dict[str, float]] = {"dropout": 0.25}
    draws_at_random: ClassVar[bool] = True
    encodes_at_random: ClassVar[bool] = True

    def __init__(self, network: MILNetwork, *, draws: int = 10) -> None:
        super().__init__(network)
        self.copies = self.draws = positive_count("draws", draws)
        if not any(layer.p > 0 for layer in self._dropout_layers()):
            wanted, got = "an encoder with dropout, so that draws differ", class_name(network.encoder)
            fix = "set encoder.dropout above 0, or choose an encoder that has it"
            raise ConfigError(item="method 'mc-dropout'", wanted=wanted, got=f"{got} without any", fix=fix)

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield this method with active dropout."""
        layers = self._dropout_layers()
        before = [layer.training for layer in layers]
        try:
            for layer in layers:
                layer.train()
            with torch.random.fork_rng(devices=[]):  # the caller's own draws stay what they were
                seed_torch(seed)
                yield self
        finally:
            for layer, mode in zip(layers, before, strict=True):
                layer.train(mode)

    def encode_shared(self, instances: Shaped[Tensor, "N *shape"]) -> Shaped[Tensor, "N *inner"]:
        """Return what the encoder computes before its first dropout layer."""
        return self.network.encode_until_dropout(instances)

    def encode_drawn(self, shared: Shaped[Tensor, "N *inner"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance with dropout."""
        return self.network.encode_from_dropout(shared)

    def _dropout_layers(self) -> list[_DropoutNd]:
        return [layer for layer in self.modules() if isinstance(layer, _DropoutNd)]


def positive_count(name: str, count: int) -> int:
    """Return ``count`` if it is at least one.

    Raises:
        ConfigError: it is not.
    """
    if count < 1:
        raise out_of_range(f"option 'method.{name}'", "at least 1", count)
    return count


def seed_torch(seed: int) -> None:
    """Seed the generators of all devices that there are.

    ``torch.manual_seed`` does so too, but takes 200 µs to look for others where there is a CPU alone.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
