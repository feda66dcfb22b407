"""The base class of uncertainty methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from miue.bags import BagBatch, Segments, per_instance, segment_max
from miue.common.errors import ConfigError, unknown_name
from miue.common.returned import class_name, refusing_changes
from miue.common.tensors import in_double
from miue.common.values import Option
from miue.distributions import Categorical, Draws, PredictiveDistribution
from miue.methods.returned import check_attention, check_distribution, check_projection, check_scores
from miue.networks import InstanceEstimator, MILNetwork, Projection, Scores, join

ATTENTION, BAG_OF_ONE, RESIDUAL = "attention", "bag-of-one", "residual"
ROUNDING = 2**-16  # relative difference that float32 scores up to 64 give the attention of equal instances


class BatchPrediction(NamedTuple):
    """The predictions of a batch.

    Attributes:
        bags: distribution of each bag.
        instances: distribution of each instance.
    """

    bags: PredictiveDistribution
    instances: PredictiveDistribution

    def cpu(self) -> BatchPrediction:
        """Return the same predictions in main memory."""
        return BatchPrediction(self.bags.cpu(), self.instances.cpu())


class Method(nn.Module, ABC):
    """A network with its loss and its predictive distribution.

    Attributes:
        network: any MIL network.
        estimators: the instance estimators, the default first: "residual" (R), "bag-of-one" (T), "attention"
            (a_k, for networks with attention).
        draws_at_random: whether a pass draws random numbers. Each bag is then predicted by itself with numbers
            that depend on its name and the seed, so that what is predicted does not depend on the other bags. A
            bag of a list without names has numbers that depend on what it holds, wherever it lies in the list.
        copies: how many draws a pass makes, of so many copies of a bag; more than one where each instance has
            random numbers of its own.
        encodes_at_random: whether they change the features, so that a bag is encoded anew for each draw, except
            for what ``encode_shared`` returns.
        encoder_defaults: encoder options for which this method has other defaults than the encoder.
        takes: network and encoder, by kind, that this method takes where none is chosen.
        takes_temperature: whether a temperature suits what it predicts: probabilities, or alpha = evidence + 1.
        takes_censoring: whether a label may be a lower bound, where classes are intervals of a time.
        is_fitted_at_once: whether ``fit_after_training`` is all of the training, without epochs.
    """

    estimators: tuple[str, ...] = (BAG_OF_ONE, ATTENTION)
    draws_at_random: ClassVar[bool] = False
    encodes_at_random: ClassVar[bool] = False
    copies: int = 1
    encoder_defaults: ClassVar[dict[str, float]] = {}
    takes: ClassVar[dict[str, str]] = {}
    takes_temperature: ClassVar[bool] = True
    takes_censoring: bool = False
    is_fitted_at_once: ClassVar[bool] = False

    def __init__(self, network: MILNetwork) -> None:
        super().__init__()
        self.network = network

    @classmethod
    def resolve_options(cls, options: Mapping[str, Option], network: type[MILNetwork]) -> dict[str, Option]:
        """Return the options with those named whose default depends on the network.

        Args:
            options: of the constructor.
            network: class of the network.
        """
        return dict(options)

    @property
    def score_width(self) -> int:
        """How many numbers the network scores a bag with: C logits, or what the method has it return."""
        return self.network.score_width

    @score_width.setter
    def score_width(self, width: int) -> None:
        self.network.score_width = width

    @property
    def num_parameters(self) -> int:
        """The number of trained parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the training loss, the mean over a batch of labeled bags; the first epoch is 1."""

    @abstractmethod
    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return the log of the expected class probabilities, finite for all finite logits."""

    @abstractmethod
    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return the predictive distribution for the logits of S or T."""

    def bag_distribution(
        self, projection: Projection, segments: Segments, logits: Float[Tensor, "B _"]
    ) -> PredictiveDistribution:
        """Return the distribution of each bag, for its logits S and the projection of its instances."""
        return self.distribution(logits)

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

    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Compute something from the training bags after training, such as a covariance; no-op by default.

        It is called once, in evaluation mode with the weights of the best epoch; in an ensemble, for each member.
        Results belong in buffers that the constructor registers with their final shape, so that they are saved
        with the weights.

        Args:
            batches: the training bags in order, on the method's device; they can be iterated over more than once.
        """

    @property
    def negative_class(self) -> int | None:
        """The class whose bags have negative instances only; None if there is none."""
        return 0

    def members(self) -> Sequence[Method]:
        """Return what is trained separately: this method, or the members of an ensemble."""
        return (self,)

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield the method to run for each draw of a prediction; draws depend only on ``seed``."""
        yield self

    def combine(self, draws: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
        """Return one prediction of the same items from those of several passes."""
        return Draws.of(draws)

    def encode(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        return self.network.encode(instances)

    def encode_shared(self, instances: Shaped[Tensor, "N *shape"]) -> Shaped[Tensor, "N *inner"]:
        """Return what all draws share of an encoding that is random; by default the instances."""
        return instances

    def encode_drawn(self, shared: Shaped[Tensor, "N *inner"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance, drawn anew from what ``encode_shared`` returned."""
        return self.encode(shared)

    def bag_scores(self, batch: BagBatch) -> Scores:
        """Return the bag scores of a batch; the features are not kept."""
        projection = self.network.encode_and_project(batch.instances)[1]
        return self._scores(projection, batch.segments)

    def scores(self, batch: BagBatch) -> tuple[Float[Tensor, "N D"], Projection, Scores]:
        """Return features, projection and bag scores of a batch."""
        parts, projection = self.network.encode_and_project(batch.instances)
        return join(parts), projection, self._scores(projection, batch.segments)

    def _scores(self, projection: Projection, segments: Segments) -> Scores:
        """Return what the network scores, where it is what a network should return."""
        bags, instances = segments.num_bags, segments.num_instances
        projection = check_projection(self.network, projection, instances)
        with refusing_changes("network", self.network, projection):
            scores = self.network.score(projection, segments)
        has_attention = self.network.has_attention
        return check_scores(self.network, scores, bags, instances, self.score_width, has_attention=has_attention)

    def instance_logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return T of each instance."""
        logits: Tensor = InstanceEstimator(self.network)(features)
        return logits

    def bag_log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log of each bag's expected class probabilities, for validation."""
        return self.log_probabilities(self.bag_scores(batch).logits)

    def predict(
        self, blocks: Iterable[Float[Tensor, "_ D"]], segments: Segments, estimator: str
    ) -> BatchPrediction:
        """Predict bags and instances from encoded features, in one pass.

        Args:
            blocks: the features of all instances in parts, so that the features of a very large bag need not be
                in memory at once: only projections are kept.
            segments: bags of all instances.
            estimator: one of ``estimators``.

        Raises:
            ModelError: a network or method of another package that returns something else than it should.
        """
        classes = self.network.num_classes
        projections: list[Projection] = []
        instances: list[PredictiveDistribution] = []
        for features in blocks:
            projection = self.network.project(features)
            projections.append(projection)
            if estimator != ATTENTION:
                logits = self._scores(projection, Segments.ones(len(features), features.device)).logits
                make = partial(self.instance_distribution, features, logits, estimator)
                instances.append(check_distribution(self, self.network, make, len(features), classes))
        whole = projections[0] if len(projections) == 1 else tuple(map(torch.cat, zip(*projections, strict=True)))
        scores = self._scores(whole, segments)
        make = partial(self.bag_distribution, whole, segments, scores.logits)
        bags = check_distribution(self, self.network, make, segments.num_bags, classes)
        if estimator == ATTENTION:
            assert scores.attention is not None
            attention = check_attention(self.network, scores.attention, segments)
            return BatchPrediction(bags, attention_proxy(attention, scores.logits, segments))
        first, *others = instances
        return BatchPrediction(bags, type(first).concatenate(instances) if others else first)

    def check_estimator(self, estimator: str) -> None:
        """Raise unless ``estimator`` can be used with this network.

        Raises:
            ConfigError: an unknown estimator, or one that this network does not support.
        """
        if estimator not in self.estimators:
            raise unknown_name("instance estimator", estimator, self.estimators)
        if estimator == ATTENTION and not (self.network.has_attention and self.network.num_classes == 2):
            got = f"{class_name(self.network)} with {self.network.num_classes} classes"
            item, wanted = "instance estimator 'attention'", "a network with attention and two classes"
            raise ConfigError(item=item, wanted=wanted, got=got, fix=f"choose {self.estimators[0]!r}")


def attention_proxy(
    attention: Float[Tensor, "N K"], logits: Float[Tensor, "B _"], segments: Segments
) -> Categorical:
    """Return a_k, min–max normalized over its bag, as the probability of class 1.

    With one column of attention per class (DSMIL), the column of the bag's predicted class is used. In a
    bag of one instance, or of instances with equal attention up to rounding, the proxy is uninformative: the
    probability is ½. Matrix products round equal rows differently, which normalization would make 0 and 1 of.

    Reference: Liu & Ji 2024, Section 2.1, and the published code.

    Args:
        attention: weight of each instance in its bag.
        logits: of the bags, two; beside one column of attention not read, and embeddings with some methods.
        segments: which instance belongs to which bag.
    """
    if attention.shape[1] > 1:
        attention = attention.gather(1, per_instance(logits.argmax(1), segments).unsqueeze(1))
    weight = in_double(attention.squeeze(1))
    segments = segments.to(weight.device)
    highest = per_instance(segment_max(weight, segments), segments)
    lowest = -per_instance(segment_max(-weight, segments), segments)
    spread = highest - lowest
    varies = spread > ROUNDING * highest
    positive = torch.where(varies, (weight - lowest) / torch.where(varies, spread, 1.0), 0.5)
    return Categorical(torch.stack([1 - positive, positive], 1))
