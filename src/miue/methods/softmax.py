"""Softmax cross-entropy, the baseline, and what methods share that work on the embedding of a bag."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from miue.bags import BagBatch, Segments
from miue.common.devices import evaluating
from miue.common.errors import ConfigError, MiueError
from miue.common.returned import class_name, is_of_others
from miue.distributions import Categorical, PredictiveDistribution
from miue.methods.base import Method
from miue.networks import MILNetwork


class Softmax(Method):
    """Cross-entropy on softmax probabilities: the baseline without epistemic uncertainty.

    Reference: Liu & Ji 2024, Table 4 ("Deep MIL", L_BCE), here with two logits.
    """

    takes_censoring = True

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the bags."""
        return negative_log_likelihood(self.bag_scores(batch).logits.log_softmax(-1), batch)

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return the log-softmax."""
        return logits.log_softmax(-1)

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return the softmax."""
        return Categorical.of_logits(logits)


class EmbeddingMethod(Softmax):
    """Cross-entropy on logits that the method computes from the embedding z of a bag; T from that of a bag of one.

    The network's last layer passes its input on, so that ``network.score`` returns z in place of logits. Then S, T
    and all that is made of them are functions of z: with attention or mean pooling z is the pooled h, and that of
    an instance is its h.

    Args:
        network: one whose logits are its last layer of an embedding (``MILNetwork.embeds_bags``).
        name: of the method, for the message.

    Raises:
        ConfigError: another network, or one of others that says it is one and is not.
    """

    def __init__(self, network: MILNetwork, *, name: str) -> None:
        super().__init__(network)
        if not (network.embeds_bags and isinstance(network.last_layer, nn.Linear)):
            raise ConfigError(
                item=f"method {name!r}",
                wanted="a network whose logits are one linear layer of the bag's embedding (embeds_bags = True)",
                got=class_name(network),
                fix="choose 'attention' or 'mean', say, or method 'deep-ensemble', which takes any network",
            )
        layer = network.last_layer
        own = _logits_of_noise(network) if is_of_others(network) else None
        layer.register_forward_hook(_pass_input_on)
        self.score_width = layer.in_features
        if own is not None and (embeddings := _logits_of_noise(network)) is not None:
            logits = linear(embeddings, layer.weight, layer.bias)
            if not torch.allclose(own, logits, rtol=1e-3, atol=1e-3 * float(own.abs().max()), equal_nan=True):
                raise ConfigError(
                    item=f"network {class_name(network)!r}",
                    wanted="logits that are its last layer of an embedding, as it says by embeds_bags = True",
                    got=f"logits {own[0][:3].tolist()}, where that layer gives {logits[0][:3].tolist()}",
                    fix="leave out embeds_bags and choose another method, or change the network",
                )

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the bags."""
        return negative_log_likelihood(self.logits(self.bag_scores(batch).logits).log_softmax(-1), batch)

    def logits(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n C"]:
        """Return the mean logits of embeddings, by default the network's last layer."""
        layer = self.network.last_layer
        assert isinstance(layer, nn.Linear)
        return linear(embedding, layer.weight, layer.bias)

    def instance_logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return T of each instance, the mean logits of its embedding."""
        return self.logits(super().instance_logits(features))

    def log_probabilities(self, logits: Float[Tensor, "n E"]) -> Float[Tensor, "n C"]:
        """Return the log-softmax of the mean logits; ``logits`` are embeddings."""
        return self.logits(logits).log_softmax(-1)


def negative_log_likelihood(log_probabilities: Float[Tensor, "B C"], batch: BagBatch) -> Float[Tensor, ""]:
    """Return the mean over bags of −log p of what is known of the label, in nats."""
    return -batch.log_likelihood(log_probabilities).mean()


@torch.no_grad()
def _logits_of_noise(network: MILNetwork) -> Float[Tensor, "B K"] | None:
    """Return what a network scores two bags of noise with, None where it fails, which training then says."""
    features = torch.randn(5, network.encoder.out_features, generator=torch.Generator().manual_seed(0))
    try:
        with evaluating(network):
            return network.score(network.project(features), Segments.of(2, 3)).logits
    except MiueError:
        raise
    except Exception:
        return None


def _pass_input_on(layer: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> Tensor:
    return inputs[0]
