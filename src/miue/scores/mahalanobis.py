"""Mahalanobis distance to the mean or the nearest class mean, and the density of a Gaussian for each class."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.errors import DataError, lacking
from miue.common.text import plural
from miue.scores.base import FeatureDistance


class Mahalanobis(FeatureDistance):
    """Mahalanobis distance to the mean of all training instances.

    d(h) = ‖L⁻¹(h − μ)‖ with L Lᵀ = Σ, the covariance shrunk toward a multiple of the identity.

    Reference: Lee et al. 2018, "A simple unified framework for detecting out-of-distribution samples",
    Eq. 2, without classes and without the square; Ledoit & Wolf 2004, "A well-conditioned estimator
    for large-dimensional covariance matrices".

    Args:
        state: means (K, D), here with K = 1, and the lower-triangular factor L (D, D).

    >>> training = torch.tensor([[-2.0], [2.0]])
    >>> score = Mahalanobis.fit(training, None, generator=torch.Generator())
    >>> score.score(torch.tensor([[0.0], [6.0]])).tolist()
    [0.0, 3.0]
    """

    name: ClassVar[str] = "mahalanobis"
    state_names: ClassVar[tuple[str, ...]] = ("means", "factor")
    means: Tensor
    factor: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        mean = features.mean(0, keepdim=True, dtype=torch.float64)
        return {"means": mean, "factor": shrunk_factor(features - mean)}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        # relative to the first mean, so that features far from the origin lose no digits
        origin = self.means[:1]
        whitened, centers = self._whitened(rows - origin), self._whitened(self.means - origin)
        exact = "donot_use_mm_for_euclid_dist"
        return torch.cdist(whitened, centers, compute_mode=exact).amin(1)

    def _whitened(self, offsets: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """L⁻¹ of each row."""
        return torch.linalg.solve_triangular(self.factor, offsets.T, upper=False).T


class ClassConditionalMahalanobis(Mahalanobis):
    """Mahalanobis distance to the nearest class mean, an instance's class being the label of its bag.

    d(h) = min_c ‖L⁻¹(h − μ_c)‖ with L Lᵀ = Σ, the shrunk covariance of h − μ_c, shared by all classes.

    Reference: Lee et al. 2018, Eq. 1 and 2, with bag labels instead of instance labels, and without
    the square; Ledoit & Wolf 2004.

    Args:
        state: means (K, D), one per bag label, and the lower-triangular factor L (D, D).
    """

    name: ClassVar[str] = "class-mahalanobis"

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        _, row_of, counts = known_labels(cls.name, bag_labels).unique(return_inverse=True, return_counts=True)
        totals = features.new_zeros(len(counts), features.shape[1], dtype=torch.float64)
        means = totals.index_add(0, row_of, features.double()) / counts.unsqueeze(1)
        return {"means": means, "factor": shrunk_factor(features - means[row_of])}


class ClassDensity(FeatureDistance):
    """Negative log density of a mixture of Gaussians, one for each bag label.

    d(h) = −log Σ_c π_c N(h; μ_c, Σ_c) with shrunk Σ_c; it may be negative.

    Reference: Mukhoti et al. 2023, "Deep deterministic uncertainty", Sec. 4, with bag labels instead of instance
    labels, and a shrunk covariance.

    Args:
        state: means (K, D), lower-triangular factors (K, D, D) and log_priors (K, 1).
    """

    name: ClassVar[str] = "ddu"
    state_names: ClassVar[tuple[str, ...]] = ("means", "factors", "log_priors")
    means: Tensor
    factors: Tensor
    log_priors: Tensor

    @classmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        labels = known_labels(cls.name, bag_labels)
        means, factors, counts = [], [], []
        for label in labels.unique():
            of_class = features[labels == label].double()
            means.append(of_class.mean(0))
            factors.append(shrunk_factor(of_class - means[-1], f"training features of class {int(label)}"))
            counts.append(len(of_class))
        priors = torch.tensor(counts, dtype=torch.float64, device=features.device) / len(features)
        return {"means": torch.stack(means), "factors": torch.stack(factors), "log_priors": priors.log()[:, None]}

    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        offsets = rows.T - self.means.unsqueeze(2)
        whitened = torch.linalg.solve_triangular(self.factors, offsets, upper=False)
        log_volumes = self.factors.diagonal(dim1=1, dim2=2).log().sum(1, keepdim=True)
        constant = rows.shape[1] / 2 * math.log(2 * math.pi)
        return constant - torch.logsumexp(self.log_priors - log_volumes - whitened.square().sum(1) / 2, 0)


def known_labels(name: str, bag_labels: Int64[Tensor, "M"] | None) -> Int64[Tensor, "M"]:
    """Return the bag labels that a distance with this name needs.

    Raises:
        DataError: they are unknown.
    """
    if bag_labels is None:
        wanted = "the label of the bag of each training instance"
        raise lacking(f"distance {name!r}", wanted, f"pass bag_labels, or use {Mahalanobis.name!r}")
    return bag_labels


def shrunk_factor(centered: Float[Tensor, "M D"], what: str = "training features") -> Float[Tensor, "D D"]:
    """Return the Cholesky factor of the Ledoit–Wolf covariance of centered features.

    Args:
        centered: the features, less their mean.
        what: the features are, for messages.

    Raises:
        DataError: the shrunk covariance still has a direction without variance.
    """
    from sklearn.covariance import LedoitWolf

    directions, rank = centered.shape[1], 0
    if len(centered) > 1:  # of which scikit-learn warns
        estimate = LedoitWolf(assume_centered=True, store_precision=False).fit(centered.cpu().numpy())
        covariance = torch.from_numpy(estimate.covariance_).to(centered)
        rank = int(torch.linalg.matrix_rank(covariance, hermitian=True))
    if rank < directions:
        wanted = f"variance in all {directions} directions"
        got = f"{plural(len(centered), 'instance')} with variance in {rank}"
        raise DataError(item=what, wanted=wanted, got=got, fix="fit the distance on more instances, or use 'knn'")
    return torch.linalg.cholesky(covariance)
