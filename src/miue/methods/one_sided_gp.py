"""A Gaussian process over one-sided instance scores, with one covariance for bags and instances."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags import BagBatch, Segments, per_instance
from miue.common.errors import ConfigError
from miue.common.returned import class_name
from miue.common.tensors import in_double
from miue.common.values import Width
from miue.distributions import PredictiveDistribution, contrast_basis, softmax_of_gaussian
from miue.methods.sngp import (
    ROWS,
    RandomFeatureLayer,
    bound_norms,
    check_process,
    covariance_factor,
    register_directions,
)
from miue.methods.softmax import Softmax
from miue.networks import MILNetwork, Projection, Scores
from miue.networks.one_sided import OneSidedAttentionNetwork


class OneSidedGP(Softmax):
    """One-sided attention over scores that are a Gaussian process: S = Σ a_k s_k, a = softmax(s), s_k = βᵀφ(z_k).

    φ are random Fourier features of what the scores' last layer takes, as with "sngp". S is not linear in β: to
    first order, its variance is gᵀΣg with the gradient g = ∂S/∂β = Σ a_k (1 + s_k − S) φ_k. The precision Σ⁻¹ of
    class c is ridge · I + Σ_b p_c (1 − p_c) g_b g_bᵀ, from all training bags. An instance is a bag of one, whose g
    is φ_k, and has the same covariance. The negative class has no score, and no variance.

    Reference: Liu et al. 2020, Eq. 7 to 10, for φ and the precision; MacKay 1992, Section 4, for the gradient.

    Args:
        network: "one-sided-attention".
        features: number m of random features.
        length_scale: ℓ of the kernel, in units of √E for embeddings of E numbers.
        ridge: precision of the prior.
        norm_bound: largest spectral norm of a linear layer of the encoder; 0 for no bound.

    Raises:
        ConfigError: another network, or an option that cannot be.
    """

    takes: ClassVar[dict[str, str]] = {"network": "one-sided-attention"}
    factor: Tensor
    network: OneSidedAttentionNetwork

    def __init__(
        self,
        network: MILNetwork,
        *,
        features: Width = 1024,
        length_scale: float = 0.1,
        ridge: float = 1.0,
        norm_bound: float = 1.0,
    ) -> None:
        super().__init__(network)
        check_process(length_scale, ridge, norm_bound)
        if not isinstance(network, OneSidedAttentionNetwork):
            wanted, fix = "network 'one-sided-attention'", "choose that network, or method 'sngp'"
            raise ConfigError(item="method 'one-sided-gp'", wanted=wanted, got=class_name(network), fix=fix)
        self.ridge, self.norm_bound = ridge, norm_bound
        network.head[-1] = nn.Identity()
        classes = network.num_classes - 1  # that have a score
        self.process = RandomFeatureLayer(network.hidden, classes, features, length_scale * sqrt(network.hidden))
        self.register_buffer("factor", torch.zeros(classes, features, features))
        register_directions(self)

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Bound the spectral norms, and return the mean cross-entropy of the bags."""
        bound_norms(self, self.norm_bound)
        return super().loss(batch, epoch)

    def instance_logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return T of each instance."""
        ones = Segments.ones(len(features), features.device)
        return self._scores(self.network.project(features), ones).logits

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Compute the covariance of the weights from the training bags, in one pass."""
        self.factor.copy_(covariance_factor(self.ridge, self.factor, map(self._curvature, batches)))

    def _curvature(self, batch: BagBatch) -> Float[Tensor, "scores m m"]:
        projection = self.network.encode_and_project(batch.instances)[1]
        gradient = self.gradient(projection[0], batch.segments)
        p = in_double(self._scores(projection, batch.segments).logits).softmax(-1)[:, 1:]
        return torch.einsum("nk,nkd,nke->kde", p * (1 - p), gradient, gradient)

    def gradient(self, embeddings: Float[Tensor, "N E"], segments: Segments) -> Float[Tensor, "B scores m"]:
        """Return ∂S/∂β = Σ a_k (1 + s_k − S) φ_k of each bag in float64; φ is computed in blocks."""
        scores = self.process(embeddings)
        pooled, attention = self.network.pool(scores, segments)
        assert attention is not None
        weights = in_double(attention * (1 + scores - per_instance(pooled, segments)))
        index = segments.index.to(weights.device)
        total = weights.new_zeros(segments.num_bags, weights.shape[1], self.factor.shape[-1])
        for rows, weight, bag in zip(embeddings.split(ROWS), weights.split(ROWS), index.split(ROWS), strict=True):
            features = in_double(self.process.features(rows))
            total.index_add_(0, bag, weight.unsqueeze(2) * features.unsqueeze(1))
        return total

    def bag_distribution(
        self, projection: Projection, segments: Segments, logits: Float[Tensor, "B C"]
    ) -> PredictiveDistribution:
        """Return the distribution of each bag, by the gradient of its score."""
        return self._of_process(logits, self.gradient(projection[0], segments))

    def instance_distribution(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N C"], estimator: str
    ) -> PredictiveDistribution:
        """Return the distribution of each instance, whose gradient is φ."""
        phi = in_double(self.process.features(self.network.project(features)[0]))
        return self._of_process(logits, phi.unsqueeze(1))

    def _scores(self, projection: Projection, segments: Segments) -> Scores:
        """Return the mean logits of each bag, and the weights of its instances."""
        return self.network.score((self.process(projection[0]),), segments)

    def variances(self, gradient: Float[Tensor, "n any m"]) -> Float[Tensor, "n scores"]:
        """Return the variance gᵀΣg of each score; one gradient serves all scores of an instance."""
        factor = in_double(self.factor)
        parts = gradient.expand(-1, len(factor), -1).split(ROWS)
        return torch.cat([torch.einsum("nkd,kdp->nkp", rows, factor).square().sum(-1) for rows in parts])

    def _of_process(
        self, logits: Float[Tensor, "n C"], gradient: Float[Tensor, "n any m"]
    ) -> PredictiveDistribution:
        """Return mean and expected entropy of the softmax of normal scores."""
        variances = self.variances(gradient)
        basis = contrast_basis(self.network.num_classes)[1:].to(variances.device)
        return softmax_of_gaussian(logits, torch.einsum("ki,nk,kj->nij", basis, variances, basis))
