"""What every MIL network is: encode each instance, project it once, score bags of any size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from miue.bags.segments import Segments, as_float
from miue.networks.encoders.base import Encoder

ENCODED_AT_ONCE = 1 << 27  # numbers of input: 262,144 vectors of 512

Projection = tuple[Tensor, ...]
"""All that a network computes of each instance by itself, each part (N, …); its content is the network's."""


class Scores(NamedTuple):
    """What a network says of bags.

    Attributes:
        logits: one score per class.
        attention: weight of each instance in its bag, K columns, each summing to one over a bag;
            None where the network has no attention.
    """

    logits: Float[Tensor, "B C"]
    attention: Float[Tensor, "N K"] | None


class NetworkOutput(NamedTuple):
    """Everything one forward pass gives.

    Attributes:
        features: h = f(x).
        bag_logits: S(X).
        instance_logits: T(x) = S({x}).
        attention: weight of each instance in its bag, or None.
    """

    features: Float[Tensor, "N D"]
    bag_logits: Float[Tensor, "B C"]
    instance_logits: Float[Tensor, "N C"]
    attention: Float[Tensor, "N K"] | None


class MILNetwork(nn.Module, ABC):
    """A permutation-invariant network over bags, S(X) = g(pool f(x)).

    ``score`` takes what ``project`` made of the instances and any segmentation of them, so that
    S = score(projection, segments) and T = score(projection, segments.singletons()) share all work
    done per instance.

    Reference: Liu & Ji 2024, Eq. eq1 and eq9.

    Attributes:
        has_attention: whether ``score`` gives attention.

    Args:
        encoder: f.
        num_classes: C.
    """

    encoder: Encoder
    has_attention: ClassVar[bool] = False

    def __init__(self, encoder: Encoder, num_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.num_classes = num_classes

    def encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance.

        Very large batches are encoded in chunks; while gradients are wanted, what is between input and
        features is computed again for the backward pass and not kept.
        """
        if instances.numel() <= ENCODED_AT_ONCE:
            return self._encode(instances)
        chunks = instances.split(max(1, ENCODED_AT_ONCE * len(instances) // instances.numel()))
        if not torch.is_grad_enabled():
            return torch.cat([self._encode(chunk) for chunk in chunks])
        return torch.cat([checkpoint(self._encode, chunk, use_reentrant=False) for chunk in chunks])

    def _encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        features: Tensor = self.encoder(as_float(instances))
        return features

    @abstractmethod
    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return all that the network computes of each instance by itself."""

    @abstractmethod
    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the logits of the bags that ``segments`` makes of the projected instances."""

    def forward(self, instances: Shaped[Tensor, "N *shape"], segments: Segments) -> NetworkOutput:
        """Return features, S of each bag, T of each instance, and the attention."""
        features = self.encode(instances)
        projection = self.project(features)
        bags = self.score(projection, segments)
        instance = self.score(projection, segments.singletons())
        return NetworkOutput(features, bags.logits, instance.logits, bags.attention)


class InstanceEstimator(nn.Module):
    """T as a module of the features, so that its parameters can be swapped for detached ones.

    Args:
        network: the network whose T this is.
    """

    def __init__(self, network: MILNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Float[Tensor, "N D"], segments: Segments) -> Float[Tensor, "N C"]:
        """Return T(x) of each instance."""
        return self.network.score(self.network.project(features), segments.singletons()).logits


def instance_logits_of_features(
    network: MILNetwork, features: Float[Tensor, "N D"], segments: Segments
) -> Float[Tensor, "N C"]:
    """Return T with its gradient to the features, and none to the network's parameters."""
    estimator = InstanceEstimator(network)
    frozen = {name: parameter.detach() for name, parameter in estimator.named_parameters()}
    logits: Tensor = torch.func.functional_call(estimator, frozen, (features, segments))
    return logits
