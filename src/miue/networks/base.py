"""The base class of MIL networks: encode each instance, project it once, score bags of any size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from miue.bags import Segments, as_float
from miue.common.devices import has_bfloat16
from miue.common.errors import ConfigError, unknown_name
from miue.common.returned import class_name, refusing_changes
from miue.common.text import say
from miue.common.values import Precision
from miue.networks.encoders import Encoder
from miue.networks.encoders.base import check_features

ENCODED_AT_ONCE = 1 << 27  # numbers of input: 262,144 vectors of 512
VECTORS_IN_CACHE = 2048  # what layers compute of them is still in a CPU's cache for the next layer
FEWEST_SPLIT = 16_384  # vectors; of 512 numbers 32 MB, beyond which the C library takes new memory each time

PRECISIONS: tuple[str, ...] = get_args(Precision)

Projection = tuple[Tensor, ...]
"""What a network computes for each instance alone, as tensors (N, …); their meaning is up to the network."""


class Scores(NamedTuple):
    """The scores of a batch of bags.

    Attributes:
        logits: one score per class.
        attention: weight of each instance in its bag, K columns, each summing to one over a bag;
            None if the network has no attention.
    """

    logits: Float[Tensor, "B C"]
    attention: Float[Tensor, "N K"] | None


class NetworkOutput(NamedTuple):
    """The results of one forward pass.

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

    ``score`` takes the result of ``project`` and any segmentation of the instances, so that
    S = score(projection, segments) and T = score(projection, segments.singletons()) share all work
    per instance.

    Reference: Liu & Ji 2024, Eq. 1 (S) and Eq. 8 (T).

    Attributes:
        has_attention: whether ``score`` returns attention.
        embeds_bags: whether the logits are ``last_layer`` of an embedding of the bag and nothing else.
        encodes_in_bfloat16: whether the encoder computes in bfloat16 (``encoder_precision``).
        score_width: how many numbers ``score`` returns for a bag: C logits, or what the method has it return.
        instance_routing: which parameters the instance loss of MIREL trains where no routing is named
            (``miue.methods.mirel``).

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
    """

    encoder: Encoder
    has_attention: ClassVar[bool] = False
    embeds_bags: bool = False
    encodes_in_bfloat16: bool = False
    instance_routing: ClassVar[str] = "through-residual"

    def __init__(self, encoder: Encoder, num_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.num_classes = num_classes
        self.score_width = num_classes

    @property
    def also_try(self) -> str:
        """An option with another value for a training that learned hardly anything, "" for none."""
        return ""

    @property
    def last_layer(self) -> nn.Module:
        """The layer that maps an embedding to class logits: the last ``nn.Linear`` after the encoder.

        Raises:
            ConfigError: there is none, or it does not have C outputs; the network must then override this.
        """
        encoder = set(self.encoder.modules())
        layers = [m for m in self.modules() if isinstance(m, nn.Linear) and m not in encoder]
        if layers and layers[-1].out_features == self.num_classes:
            return layers[-1]
        wanted = f"a last linear layer with {self.num_classes} outputs, defined after all others"
        got = repr(layers[-1]) if layers else "no linear layer after the encoder"
        fix = "override the property last_layer of the network, or choose another method"
        raise ConfigError(item=f"network {class_name(self)!r}", wanted=wanted, got=got, fix=fix)

    def encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance.

        Very large batches are encoded in chunks. With gradients, activations between input and features are
        recomputed in the backward pass instead of being stored. Batch normalization in training sees all at once.
        """
        whole = self.training and self._normalizes_batches
        if whole or instances.numel() <= ENCODED_AT_ONCE:
            return self._encode(instances)
        chunks = instances.split(max(1, ENCODED_AT_ONCE * len(instances) // instances.numel()))
        if not torch.is_grad_enabled():
            return torch.cat([self._encode(chunk) for chunk in chunks])
        return torch.cat([checkpoint(self._encode, chunk, use_reentrant=False) for chunk in chunks])

    def encode_until_dropout(self, instances: Shaped[Tensor, "N *shape"]) -> Shaped[Tensor, "N *inner"]:
        """Return what the encoder computes of each instance before its first dropout layer."""
        inputs = as_float(instances)
        with self._encoder_precision(inputs):
            return self.encoder.until_dropout(inputs)

    def encode_from_dropout(self, values: Shaped[Tensor, "N *inner"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance from what ``encode_until_dropout`` returned."""
        with self._encoder_precision(values):
            features = self.encoder.from_dropout(values)
        return as_float(check_features(self.encoder, features, len(values), self.encoder.out_features))

    def _encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        inputs, encoder = as_float(instances), self.encoder
        named = getattr(encoder, "module", encoder)
        with self._encoder_precision(inputs), refusing_changes("encoder", named, [inputs]):
            features = encoder(inputs)
        return check_features(named, features, len(inputs), encoder.out_features).to(inputs.dtype)

    def _encoder_precision(self, values: Tensor) -> torch.autocast:
        return torch.autocast(values.device.type, torch.bfloat16, enabled=self.encodes_in_bfloat16)

    def encode_and_project(
        self, instances: Shaped[Tensor, "N *shape"]
    ) -> tuple[Sequence[Float[Tensor, "_ D"]], Projection]:
        """Return the features of all instances, in parts that stay in a CPU's cache, and what is computed of them.

        The projection is of all instances. A method that computes more of each instance takes the parts: joined
        and split again, they would be written to memory and read from it, and their gradients as well.
        """
        parts = in_cache(instances)
        if len(parts) == 1 or instances.numel() > ENCODED_AT_ONCE or self._normalizes_batches:
            features, projection = self._encode_and_project(instances)
            return in_cache(features), projection
        of_parts, projections = zip(*map(self._encode_and_project, parts), strict=True)
        return of_parts, tuple(map(join, zip(*projections, strict=True)))

    def _encode_and_project(
        self, instances: Shaped[Tensor, "n *shape"]
    ) -> tuple[Float[Tensor, "n D"], Projection]:
        features = self.encode(instances)
        return features, self.project(features)

    @property
    def _normalizes_batches(self) -> bool:
        """Whether the features of an instance depend on the others of its batch."""
        return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.modules())

    @abstractmethod
    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return what the network computes for each instance alone."""

    @abstractmethod
    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the logits of the bags that ``segments`` forms from the projected instances."""

    def forward(self, instances: Shaped[Tensor, "N *shape"], segments: Segments) -> NetworkOutput:
        """Return features, S of each bag, T of each instance, and the attention."""
        features = self.encode(instances)
        projection = self.project(features)
        bags = self.score(projection, segments)
        instance = self.score(projection, segments.singletons())
        return NetworkOutput(features, bags.logits, instance.logits, bags.attention)


def in_cache(rows: Shaped[Tensor, "N *shape"]) -> Sequence[Shaped[Tensor, "n *shape"]]:
    """Return parts of very many vectors, each of as many as stay in a CPU's cache; all else as it is."""
    split = rows.dim() == 2 and len(rows) > FEWEST_SPLIT and rows.device.type == "cpu"
    return rows.split(VECTORS_IN_CACHE) if split else (rows,)


def join(parts: Sequence[Tensor]) -> Tensor:
    """Return rows one after the other, without a copy where there is one part."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class InstanceEstimator(nn.Module):
    """T as a module over features, so that its parameters can be replaced by detached ones.

    Args:
        network: the network that computes T.
    """

    def __init__(self, network: MILNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return T(x) of each instance."""
        ones = Segments.ones(len(features), features.device)
        return self.network.score(self.network.project(features), ones).logits


def instance_logits_of_features(network: MILNetwork, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
    """Return T with gradients to the features and none to the network's parameters."""
    estimator = InstanceEstimator(network)
    frozen = {name: parameter.detach() for name, parameter in estimator.named_parameters()}
    logits: Tensor = torch.func.functional_call(estimator, frozen, (features,))
    return logits


def say_if_slow(precision: str, device: torch.device) -> None:
    """Say that bfloat16 is asked for on a device that has no instructions for it."""
    if precision == "bf16-mixed" and not has_bfloat16(device):
        say(f"bf16-mixed: this {device.type} has no instructions for bfloat16 and will be slow", err=True)


@contextmanager
def encoder_precision(module: nn.Module, precision: str) -> Iterator[None]:
    """Let the encoders in ``module`` compute in ``precision`` within the block.

    Weights, pooling, logits, evidence and losses are float32 in either case: evidence grows exponentially with
    logits, and bfloat16 has 8 significant bits.

    Args:
        module: a network, or a method with one or several.
        precision: "float32", or "bf16-mixed" for matrix products and convolutions in bfloat16, faster on devices
            with instructions for it.

    Raises:
        ConfigError: another name.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    networks = [network for network in module.modules() if isinstance(network, MILNetwork)]
    before = [network.encodes_in_bfloat16 for network in networks]
    for network in networks:
        network.encodes_in_bfloat16 = precision == "bf16-mixed"
    try:
        yield
    finally:
        for network, was in zip(networks, before, strict=True):
            network.encodes_in_bfloat16 = was
