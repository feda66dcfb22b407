"""What every uncertainty method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from miue.bags import BagBatch
from miue.distributions import Categorical, Dirichlet
from miue.networks.base import MILNetwork
from miue.segments import Segments


class BatchPrediction(NamedTuple):
    """What a method predicts for a batch.

    Attributes:
        bags: parameters of each bag's distribution, alpha or probabilities.
        instances: the same of each instance.
        attention: weight of each instance in its bag, or None.
    """

    bags: Float[Tensor, "B C"]
    instances: Float[Tensor, "N C"]
    attention: Float[Tensor, "N K"] | None


class Method(nn.Module, ABC):
    """A network, how it learns, and what it predicts.

    Attributes:
        network: any MIL network.
        distribution: what ``parameters`` of a prediction are parameters of.
    """

    distribution: ClassVar[type[Categorical] | type[Dirichlet]]

    def __init__(self, network: MILNetwork) -> None:
        super().__init__()
        self.network = network

    @abstractmethod
    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the training loss of a batch of labelled bags; the first epoch is 1."""

    @abstractmethod
    def bag_parameters(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """Return the parameters of the distribution that S stands for."""

    @abstractmethod
    def instance_parameters(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N C"]
    ) -> Float[Tensor, "N C"]:
        """Return the parameters of the distribution that the instance estimator stands for.

        Args:
            features: h.
            logits: T.
        """

    def encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        return self.network.encode(instances)

    def predict(self, features: Float[Tensor, "N D"], segments: Segments) -> BatchPrediction:
        """Predict bags and instances from features already encoded."""
        projection = self.network.project(features)
        bags = self.network.score(projection, segments)
        instance_logits = self.network.score(projection, segments.singletons()).logits
        return BatchPrediction(
            self.bag_parameters(bags.logits),
            self.instance_parameters(features, instance_logits),
            bags.attention,
        )

    def log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log of each bag's expected class probabilities, for validation."""
        projection = self.network.project(self.encode(batch.instances))
        return self.bag_log_probabilities(self.network.score(projection, batch.segments).logits)

    @abstractmethod
    def bag_log_probabilities(self, logits: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """Return the log of the expected class probabilities that S stands for, finite whatever S is."""
