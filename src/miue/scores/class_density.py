"""Density of features under a Gaussian for each class."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.scores.base import FeatureDistance
from miue.scores.mahalanobis import known_labels, shrunk_factor


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
