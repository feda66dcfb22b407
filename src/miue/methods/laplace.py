"""A Laplace approximation of the last layer, fitted after training."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags import BagBatch
from miue.common.errors import ConfigError, out_of_range
from miue.common.tensors import in_double, symmetric_eigen
from miue.distributions import PredictiveDistribution, contrast_basis, softmax_of_gaussian
from miue.methods.softmax import EmbeddingMethod
from miue.networks import MILNetwork

MOST_WEIGHTS = 8192  # of the last layer; the covariance holds their square
PRIOR_RANGE = (1e-4, 1e6)
ROWS = 1024


class Laplace(EmbeddingMethod):
    """Softmax with a normal posterior of the last layer's weights, one covariance for bags and instances.

    With z = [embedding, 1], p the softmax of a bag and U a basis of the differences of logits, the negative log
    posterior has the Hessian H = Σ_b Uᵀ(diag p − p pᵀ)U ⊗ z_b z_bᵀ + λI over the (C − 1)(E + 1) weights on which a
    softmax depends. S and T then have logits with covariance (I ⊗ zᵀ) H⁻¹ (I ⊗ z); probabilities and mutual
    information are integrated over them. λ maximizes the marginal likelihood unless it is specified.
    Training is that of "softmax".

    Reference: MacKay 1992; Kristiadi et al. 2020, Section 4 (last layer); Daxberger et al. 2021, Eq. 3 and 5.

    Args:
        network: one whose logits are its last layer of an embedding.
        prior_precision: λ above 0; None for that of the largest marginal likelihood.
    """

    factor: Tensor
    fitted_precision: Tensor

    def __init__(self, network: MILNetwork, *, prior_precision: float | None = None) -> None:
        super().__init__(network, name="laplace")
        if prior_precision is not None and prior_precision <= 0:
            raise out_of_range("option 'method.prior_precision'", "a number above 0, or none", prior_precision)
        width, contrasts = self._weight.shape[1] + 1, network.num_classes - 1
        if width * contrasts > MOST_WEIGHTS:
            wanted = f"at most {MOST_WEIGHTS:,} weights of the last layer, (C − 1) × (width + 1)"
            got, fix = f"{contrasts} × {width} = {width * contrasts:,}", "choose an encoder of a smaller width"
            raise ConfigError(item="method 'laplace'", wanted=wanted, got=got, fix=fix)
        self.prior_precision = prior_precision
        self.register_buffer("factor", torch.zeros(contrasts, width, contrasts * width))
        self.register_buffer("fitted_precision", torch.zeros(()))

    @property
    def _weight(self) -> Float[Tensor, "C E"]:
        weight: Tensor = self.network.last_layer.get_parameter("weight")
        return weight

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Compute λ and the covariance from the training bags, in one pass."""
        curvature = in_double(self.factor).new_zeros((self.factor.shape[-1],) * 2)
        for batch in batches:
            curvature += self.curvature(self.bag_scores(batch).logits)
        values, vectors = symmetric_eigen(curvature)
        values = values.clamp(min=0)
        squared_norm = sum(float(in_double(p).square().sum()) for p in self.network.last_layer.parameters())
        precision = self.prior_precision or best_prior_precision(values, squared_norm)
        self.fitted_precision.fill_(precision)
        self.factor.copy_((vectors / (values + precision).sqrt()).reshape(self.factor.shape))

    def curvature(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "P P"]:
        """Return Σ Uᵀ(diag p − p pᵀ)U ⊗ z zᵀ of some bags, in float64."""
        p = in_double(self.logits(embedding)).softmax(-1)
        basis = contrast_basis(p.shape[1]).to(p.device)
        z = _with_one(embedding)
        of_logits = torch.einsum("ci,nc,cj->nij", basis, p, basis)
        of_logits = of_logits - torch.einsum("ni,nj->nij", p @ basis, p @ basis)
        return torch.einsum("nij,nd,ne->idje", of_logits, z, z).reshape((self.factor.shape[-1],) * 2)

    def covariance(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n K K"]:
        """Return the covariance of the differences of logits, Uᵀs, of bags or instances."""
        factor = in_double(self.factor)
        parts = [torch.einsum("nd,idp->nip", rows, factor) for rows in _with_one(embedding).split(ROWS)]
        return torch.cat([part @ part.mT for part in parts])

    def distribution(self, logits: Float[Tensor, "n E"]) -> PredictiveDistribution:
        """Return mean and expected entropy of the softmax over the posterior; ``logits`` are embeddings."""
        return softmax_of_gaussian(self.logits(logits), self.covariance(logits))


def best_prior_precision(curvature: Float[Tensor, "P"], squared_norm: float) -> float:
    """Return the λ of the largest marginal likelihood, ½ Σ log λ/(h_i + λ) − ½ λ ‖w‖².

    Reference: MacKay 1992; Immer et al. 2021, Eq. 5.

    Args:
        curvature: eigenvalues h of the Hessian of the loss, without the prior.
        squared_norm: of the trained weights w.
    """
    from scipy.optimize import minimize_scalar

    def negative_evidence(log_precision: float) -> float:
        precision = exp(log_precision)
        return 0.5 * (precision * squared_norm + float((curvature / precision).log1p().sum()))

    bounds = (log(PRIOR_RANGE[0]), log(PRIOR_RANGE[1]))
    return exp(minimize_scalar(negative_evidence, bounds=bounds, method="bounded").x)


def _with_one(embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n E1"]:
    return torch.nn.functional.pad(in_double(embedding), (0, 1), value=1.0)
