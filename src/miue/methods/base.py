"""What every uncertainty method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from miue.bags.segments import BagBatch, Segments
from miue.common.errors import ConfigError, unknown_name
from miue.distributions import PredictiveDistribution
from miue.methods.attention_proxy import attention_proxy
from miue.networks.base import MILNetwork, Projection, Scores

ATTENTION, BAG_OF_ONE, RESIDUAL = "attention", "bag-of-one", "residual"


class BatchPrediction(NamedTuple):
    """What a method predicts for a batch.

    Attributes:
        bags: distribution of each bag.
        instances: distribution of each instance.
    """

    bags: PredictiveDistribution
    instances: PredictiveDistribution


class Method(nn.Module, ABC):
    """A network, how it learns, and what it predicts.

    Attributes:
        network: any MIL network.
        estimators: what instances can be predicted from, the default first: "residual" (R), "bag-of-one"
            (T), "attention" (a_k, where the network has attention).
        encodes_at_random: whether the features of a pass are a draw.
        encoder_defaults: encoder options that differ from the encoder's own defaults under this method.
    """

    estimators: ClassVar[tuple[str, ...]] = (BAG_OF_ONE, ATTENTION)
    encodes_at_random: ClassVar[bool] = False
    encoder_defaults: ClassVar[dict[str, float]] = {}

    def __init__(self, network: MILNetwork) -> None:
        super().__init__()
        self.network = network

    @property
    def num_parameters(self) -> int:
        """Numbers that training sets."""
        return sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the training loss of a batch of labelled bags, the mean over its bags; the first epoch is 1."""

    @abstractmethod
    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return the log of the expected class probabilities that logits stand for, finite whatever they are."""

    @abstractmethod
    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return the distribution that logits of S or T stand for."""

    def instance_distribution(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N C"], estimator: str
    ) -> PredictiveDistribution:
        """Return the distribution of each instance.

        Args:
            features: h.
            logits: T.
            estimator: one of ``estimators`` other than attention.
        """
        return self.distribution(logits)

    def members(self) -> Sequence[Method]:
        """Return what is trained, each by itself: this method, or the members of an ensemble."""
        return (self,)

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield what is run for one prediction, once per draw; draws depend on ``seed`` alone."""
        yield self

    def encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        return self.network.encode(instances)

    def scores(self, batch: BagBatch) -> tuple[Float[Tensor, "N D"], Projection, Scores]:
        """Return features, projection and bag scores of a batch."""
        features = self.encode(batch.instances)
        projection = self.network.project(features)
        return features, projection, self.network.score(projection, batch.segments)

    def bag_log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log of each bag's expected class probabilities, for validation."""
        return self.log_probabilities(self.scores(batch)[2].logits)

    def predict(
        self, blocks: Iterable[Float[Tensor, "_ D"]], segments: Segments, estimator: str
    ) -> BatchPrediction:
        """Predict bags and instances from features already encoded, in one pass.

        Args:
            blocks: the features of all instances in parts, so that those of a very large bag need not all be
                held: only what is pooled of each instance is.
            segments: bags of all instances.
            estimator: one of ``estimators``.
        """
        projections: list[Projection] = []
        instances: list[PredictiveDistribution] = []
        for features in blocks:
            projection = self.network.project(features)
            projections.append(projection)
            if estimator != ATTENTION:
                alone = Segments(torch.tensor([len(features)], device=features.device)).singletons()
                logits = self.network.score(projection, alone).logits
                instances.append(self.instance_distribution(features, logits, estimator))
        whole = projections[0] if len(projections) == 1 else tuple(map(torch.cat, zip(*projections, strict=True)))
        scores = self.network.score(whole, segments)
        bags = self.distribution(scores.logits)
        if estimator == ATTENTION:
            assert scores.attention is not None
            return BatchPrediction(bags, attention_proxy(scores.attention, scores.logits, segments))
        return BatchPrediction(bags, type(instances[0]).concatenate(instances))

    def check_estimator(self, estimator: str) -> None:
        """Raise unless instances can be predicted from ``estimator``.

        Raises:
            ConfigError: no such estimator, or one that this network does not have.
        """
        if estimator not in self.estimators:
            raise unknown_name("instance estimator", estimator, self.estimators)
        if estimator == ATTENTION and not (self.network.has_attention and self.network.num_classes == 2):
            raise ConfigError(
                item="instance estimator 'attention'",
                wanted="a network with attention and two classes",
                got=f"{type(self.network).__name__} with {self.network.num_classes} classes",
                fix=f"choose {self.estimators[0]!r}",
            )
