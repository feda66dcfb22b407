"""Bayes-MIL: attention with distributions over its weights and over each instance's score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, softplus

from miue.bags import BagBatch, Segments, per_instance, segment_softmax, segment_sum, segment_weighted_sum
from miue.common.errors import ConfigError
from miue.common.returned import class_name
from miue.common.tensors import in_double
from miue.common.values import Width
from miue.distributions import Categorical
from miue.methods.base import ATTENTION, BAG_OF_ONE, BatchPrediction, Method
from miue.methods.mc_dropout import positive_count, seed_torch
from miue.methods.softmax import Softmax
from miue.networks import AttentionNetwork, MILNetwork

PRIOR_MEAN = (-5.0, 0.0)  # of the attention score's logit in negative and in positive bags
PRIOR_LOG_VARIANCE = (-1.0, 3.0)


class VariationalLinear(nn.Linear):
    """A linear layer with weights N(θ, α θ²), sampled by the mean and variance of its outputs.

    Reference: Molchanov et al. 2017, Eq. 14 (divergence).

    Args:
        in_features: inputs.
        out_features: outputs.
        log_alpha: initial log α of every weight.
    """

    def __init__(self, in_features: int, out_features: int, *, log_alpha: float) -> None:
        super().__init__(in_features, out_features)
        self.log_alpha = nn.Parameter(torch.full((out_features, in_features), log_alpha))

    def moments(self, inputs: Float[Tensor, "N inputs"]) -> Float[Tensor, "N moments"]:
        """Return mean and standard deviation of the outputs, side by side."""
        variance = linear(inputs**2, self.log_alpha.exp() * self.weight**2)
        positive = variance > 0
        deviation = torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)
        return torch.cat([linear(inputs, self.weight, self.bias), deviation], 1)

    def sample(self, inputs: Float[Tensor, "N inputs"]) -> Float[Tensor, "N outputs"]:
        """Return one draw of the outputs."""
        return draw_normal(self.moments(inputs))

    def divergence(self) -> Float[Tensor, ""]:
        """Return the KL divergence from the log-uniform prior, up to a constant, summed over weights."""
        k1, k2, k3 = 0.63576, 1.87320, 1.48695
        saturating = k1 * torch.sigmoid(k2 + k3 * self.log_alpha)
        return (k1 - saturating + 0.5 * softplus(-self.log_alpha)).sum()


def draw_normal(moments: Float[Tensor, "N moments"]) -> Float[Tensor, "N outputs"]:
    """Return one draw of normal variables, of mean and standard deviation side by side."""
    mean, deviation = moments.chunk(2, 1)
    return mean + deviation * torch.randn_like(mean)


class BayesMIL(Softmax):
    """Attention a_k = sigmoid(sampled score), bag embedding Σ a_k h_k / Σ a_k, and variational linear layers.

    Differs from the published code of Bayes-MIL, whose divergence uses the log-variance in place of the
    standard deviation; here it is the KL divergence of two normal distributions.

    Reference: Cui et al. 2023, as used by Liu & Ji 2024.

    Args:
        network: "attention" or "gated-attention"; its encoder is used, and its attention is replaced by
            variational gated attention.
        hidden: width of that attention.
        draws: number of predictions that are averaged.
        weight_divergence: coefficient of the weights' divergence.
        attention_divergence: coefficient of the scores' divergence.
    """

    estimators: tuple[str, ...] = (ATTENTION, BAG_OF_ONE)
    draws_at_random: ClassVar[bool] = True
    encodes_at_random: ClassVar[bool] = True  # of what goes on with the features, all draws share the moments

    def __init__(
        self,
        network: MILNetwork,
        *,
        hidden: Width = 256,
        draws: int = 16,
        weight_divergence: float = 1e-8,
        attention_divergence: float = 1e-6,
    ) -> None:
        super().__init__(network)
        if not isinstance(network, AttentionNetwork) or network.num_classes != 2:
            wanted = "network 'attention' or 'gated-attention' and two classes"
            got = f"{class_name(network)} with {network.num_classes} classes"
            raise ConfigError(item="method 'bayes-mil'", wanted=wanted, got=got, fix="choose another method")
        width = network.encoder.out_features
        network.attention = nn.Identity()
        network.head = VariationalLinear(width, network.num_classes, log_alpha=-3.0)
        self.content = VariationalLinear(width, hidden, log_alpha=-1.0)
        self.gate = VariationalLinear(width, hidden, log_alpha=-1.0)
        self.score = VariationalLinear(hidden, 2, log_alpha=-1.0)
        self.copies = self.draws = positive_count("draws", draws)
        self.weight_divergence = weight_divergence
        self.attention_divergence = attention_divergence
        self.sampling = False

    @property
    def head(self) -> VariationalLinear:
        """The classifier."""
        assert isinstance(self.network.head, VariationalLinear)
        return self.network.head

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean over bags of cross-entropy plus both divergences; all bags share that of the weights."""
        features = self.encode(batch.instances)
        logits, _, mean, log_variance = self._forward(features, batch.segments, self._moments(features))
        of_scores = self._score_divergence(mean, log_variance, per_instance(batch.labels, batch.segments))
        layers = (self.content, self.gate, self.score, self.head)
        of_weights = torch.stack([layer.divergence() for layer in layers]).sum()
        losses = cross_entropy(logits, batch.labels, reduction="none") + self.weight_divergence * of_weights
        return (losses + self.attention_divergence * segment_sum(of_scores, batch.segments)).mean()

    def instance_logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return T of each instance, with means instead of draws."""
        return self._forward(features, Segments.ones(len(features), features.device))[0]

    def bag_log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log-softmax, with means instead of draws."""
        return self._forward(self.encode(batch.instances), batch.segments)[0].log_softmax(-1)

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield this method, sampling."""
        self.sampling = True
        try:
            with torch.random.fork_rng(devices=[]):  # the caller's own draws stay what they were
                seed_torch(seed)
                yield self
        finally:
            self.sampling = False

    def encode_shared(self, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N inner"]:
        """Return features and, beside them, the moments of both layers of the attention."""
        features = self.encode(instances)
        return torch.cat([features, self._moments(features)], 1)

    def encode_drawn(self, shared: Float[Tensor, "N inner"]) -> Float[Tensor, "N inner"]:
        """Return the same: what is drawn comes after the features."""
        return shared

    def predict(
        self, blocks: Iterable[Float[Tensor, "_ inner"]], segments: Segments, estimator: str
    ) -> BatchPrediction:
        """Predict with one draw of weights and scores; an instance's probability is its attention a_k.

        Args:
            blocks: features, or what ``encode_shared`` returns of them.
            segments: bags of all instances.
            estimator: one of ``estimators``.
        """
        shared, width = torch.cat(list(blocks)), self.network.encoder.out_features
        features, moments = shared[:, :width], None
        if self.sampling:
            moments = shared[:, width:] if shared.shape[1] > width else self._moments(features)
        logits, attention, _, _ = self._forward(features, segments, moments)
        bags = self.distribution(logits)
        if estimator == ATTENTION:
            positive = in_double(attention.squeeze(1))
            return BatchPrediction(bags, Categorical(torch.stack([1 - positive, positive], 1)))
        instance_logits = self._forward(features, segments.singletons(), moments)[0]
        return BatchPrediction(bags, self.distribution(instance_logits))

    def _moments(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N moments"]:
        return torch.cat([self.content.moments(features), self.gate.moments(features)], 1)

    def _forward(
        self, features: Float[Tensor, "N D"], segments: Segments, moments: Float[Tensor, "N moments"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return bag logits (B, 2), attention (N, 1), and mean and log-variance of the scores (N, 1).

        They are one draw where the moments of content and gate are passed; otherwise means.
        """
        layer = VariationalLinear.forward if moments is None else VariationalLinear.sample
        if moments is None:
            content, gate = self.content(features), self.gate(features)
        else:
            content, gate = map(draw_normal, moments.chunk(2, 1))
        mean, log_variance = layer(self.score, content.tanh() * gate.sigmoid()).split(1, 1)
        score = mean if moments is None else mean + (log_variance / 2).exp() * torch.randn_like(mean)
        log_attention = nn.functional.logsigmoid(score)
        weights = segment_softmax(log_attention, segments)  # a_k / Σ a_k, also where every a_k underflows
        pooled = segment_weighted_sum(features, weights, segments).squeeze(1)
        return layer(self.head, pooled), log_attention.exp(), mean, log_variance

    @staticmethod
    def _score_divergence(
        mean: Float[Tensor, "N 1"], log_variance: Float[Tensor, "N 1"], label: Tensor
    ) -> Float[Tensor, "N"]:
        """KL(N(mean, variance) ‖ prior of the bag's class), per instance."""
        prior_mean = mean.new_tensor(PRIOR_MEAN)[label]
        prior = mean.new_tensor(PRIOR_LOG_VARIANCE)[label]
        deviation = mean.squeeze(1) - prior_mean
        ratio = log_variance.squeeze(1) - prior
        return 0.5 * (ratio.exp() + deviation**2 * (-prior).exp() - 1 - ratio)
