"""Density-aware evidential deep learning (DAEDL)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, log, pi

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags import BagBatch, Segments, per_instance, segment_mean
from miue.common.errors import out_of_range
from miue.common.tensors import in_double
from miue.distributions import Dirichlet, PredictiveDistribution
from miue.evidence import clamped_exponential, kl_penalty, squared_error
from miue.methods.base import BatchPrediction, Method
from miue.networks import MILNetwork

LIMITS = (exp(-80), exp(80))  # of alpha, so that single precision has room for every measure of it


class DensityAwareEDL(Method):
    """DAEDL: a Dirichlet whose logits are scaled by the density of the features, alpha = exp(s · logits).

    Trained with the expected squared error of Dir(exp(logits)) and KL. After training, a normal distribution is
    fitted to the features h of the training instances for each class, an instance's class being the label of its
    bag. s = max(0, (log p(h) − low) / (high − low)), low and high the extremes over training instances, so that
    an instance as unlikely as the least likely one has alpha = 1: no evidence. The log density of a bag is the
    mean of those of its instances. s can be large where training instances are all about equally likely; log alpha
    ends at ±80.

    Differs from the published code: covariances are shrunk (OAS), classes count by their share, and spectral norms
    are not bounded.

    Reference: Yoon & Kim 2024, "Uncertainty estimation by density aware evidential deep learning", Eq. 5 to 8.

    Args:
        network: any MIL network.
        divergence_coefficient: weight of the KL term, at least 0.
    """

    means: Tensor
    whitening: Tensor
    offsets: Tensor
    extremes: Tensor

    takes_temperature = False

    def __init__(self, network: MILNetwork, *, divergence_coefficient: float = 0.05) -> None:
        super().__init__(network)
        if divergence_coefficient < 0:
            raise out_of_range("option 'method.divergence_coefficient'", "a number from 0", divergence_coefficient)
        self.divergence_coefficient = divergence_coefficient
        width, classes = network.encoder.out_features, network.num_classes
        self.register_buffer("means", torch.zeros(classes, width))
        self.register_buffer("whitening", torch.zeros(classes, width, width))
        self.register_buffer("offsets", torch.full((classes,), -log(classes)))  # so that s is 1 until it is fitted
        self.register_buffer("extremes", torch.tensor([-1.0, 0.0]))

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean over bags of the expected squared error + KL."""
        alpha = clamped_exponential(self.bag_scores(batch).logits).exp()
        divergence = kl_penalty(alpha, batch.labels)
        return (squared_error(alpha, batch.labels) + self.divergence_coefficient * divergence).mean()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return log alpha − log α0, without the density."""
        return clamped_exponential(logits).log_softmax(-1)

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return Dir(exp(logits)), without the density."""
        return Dirichlet(in_double(clamped_exponential(logits)).exp())

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Fit the normal distributions in one pass over the training bags, and low and high in another."""
        moments = [Moments(self.means.shape[1]) for _ in self.means]
        for batch in batches:
            features = in_double(self.encode(batch.instances))
            label = per_instance(batch.labels, batch.segments).to(features.device)
            for number in label.unique().tolist():
                moments[number].add(features[label == number])
        total = sum(one.count for one in moments)
        for number, one in enumerate(moments):
            if one.count:
                self._set_class(number, one.mean, one.shrunk_covariance(), one.count / total)
            else:
                self.offsets[number] = -torch.inf
        low, high = torch.inf, -torch.inf
        for batch in batches:
            density = self.log_density(self.encode(batch.instances))
            low, high = min(low, float(density.min())), max(high, float(density.max()))
        self.extremes.copy_(torch.tensor([low, high], dtype=torch.float64))
        if self.extremes[0] == self.extremes[1]:  # as they are stored, in single precision
            self.extremes[1] += 1

    def log_density(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        """Return log p(h), the log of the sum over classes of share × normal density."""
        of_classes = []
        for mean, whitening, offset in zip(self.means, self.whitening, in_double(self.offsets), strict=True):
            distance = (in_double(features - mean) @ in_double(whitening).T).square().sum(-1)
            of_classes.append(offset - distance / 2)
        return torch.stack(of_classes).logsumexp(0)

    def scale(self, log_density: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return s, at least 0, of log densities of instances or bags."""
        low, high = in_double(self.extremes)
        return ((log_density - low) / (high - low)).clamp(min=0)

    def instance_distribution(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N C"], estimator: str
    ) -> PredictiveDistribution:
        """Return Dir(exp(s · T))."""
        return self._scaled(self.distribution(logits), self.log_density(features))

    def predict(
        self, blocks: Iterable[Float[Tensor, "_ D"]], segments: Segments, estimator: str
    ) -> BatchPrediction:
        """Predict as other methods do, and scale the logits of bags by their density."""
        densities: list[Tensor] = []

        def followed() -> Iterator[Tensor]:
            for features in blocks:
                densities.append(self.log_density(features))
                yield features

        bags, instances = super().predict(followed(), segments, estimator)
        density = torch.cat(densities)
        of_bags = segment_mean(density, segments.to(density.device))
        return BatchPrediction(self._scaled(bags, of_bags), instances)

    def _scaled(self, predicted: PredictiveDistribution, log_density: Float[Tensor, "n"]) -> Dirichlet:
        assert isinstance(predicted, Dirichlet)
        return Dirichlet((predicted.alpha ** self.scale(log_density).unsqueeze(-1)).clamp(*LIMITS))

    def _set_class(
        self, number: int, mean: Float[Tensor, "D"], covariance: Float[Tensor, "D D"], share: float
    ) -> None:
        factor = torch.linalg.cholesky(covariance)
        identity = torch.eye(len(mean), dtype=factor.dtype, device=factor.device)
        whitening = torch.linalg.solve_triangular(factor, identity, upper=False)
        self.means[number], self.whitening[number] = mean.to(self.means), whitening.to(self.whitening)
        self.offsets[number] = log(share) - len(mean) / 2 * log(2 * pi) - factor.diagonal().log().sum()


class Moments:
    """Mean and covariance of rows that come in parts; parts are merged about their own means.

    Args:
        width: of the rows.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = torch.zeros(width, dtype=torch.float64)
        self.scatter = torch.zeros(width, width, dtype=torch.float64)

    def add(self, rows: Float[Tensor, "n D"]) -> None:
        """Add some rows, in float64."""
        mean = rows.mean(0)
        difference, total = mean - self.mean.to(mean), self.count + len(rows)
        centered = rows - mean
        between = torch.outer(difference, difference) * (self.count * len(rows) / total)
        self.scatter = self.scatter.to(mean) + centered.T @ centered + between
        self.mean = self.mean.to(mean) + difference * (len(rows) / total)
        self.count = total

    def shrunk_covariance(self) -> Float[Tensor, "D D"]:
        """Return the covariance shrunk toward a multiple of the identity, which is 1 where nothing varies.

        Reference: Chen et al. 2010, "Shrinkage algorithms for MMSE covariance estimation", Eq. 23 (OAS).
        """
        covariance, width = self.scatter / self.count, len(self.mean)
        scale = float(covariance.trace()) / width
        if scale <= 0:
            return torch.eye(width, dtype=torch.float64, device=covariance.device)
        spread = float(covariance.square().mean())
        denominator = (self.count + 1) * (spread - scale**2 / width)
        shrinkage = min(1.0, (spread + scale**2) / denominator) if denominator > 0 else 1.0
        covariance = (1 - shrinkage) * covariance
        covariance.diagonal().add_(shrinkage * scale)
        return covariance
