"""A Gaussian process over the embedding, by random Fourier features, and bounded spectral norms (SNGP)."""

from __future__ import annotations

from collections.abc import Iterable
from math import pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from miue.bags import BagBatch
from miue.common.errors import out_of_range
from miue.common.tensors import in_double, symmetric_eigen
from miue.common.values import Width
from miue.distributions import PredictiveDistribution, contrast_basis, softmax_of_gaussian
from miue.methods.base import Method
from miue.methods.softmax import EmbeddingMethod
from miue.networks import MILNetwork

ROWS = 4096


class RandomFeatureLayer(nn.Module):
    """Logits β φ(z) with φ(z) = √(2/m) cos(Ω z/ℓ + b), Ω and b drawn once and kept.

    φ(z)ᵀφ(z') approximates the kernel exp(−‖z − z'‖² / 2ℓ²). What is trained is β √(2/m), the weights of the
    cosines: with β itself, Adam's steps of equal size in all weights change logits √(m/2) times more slowly.

    Reference: Rahimi & Recht 2007; Liu et al. 2020, Eq. 7.

    Args:
        width: of z.
        num_classes: number of classes C.
        features: m.
        length_scale: ℓ.
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(self, width: int, num_classes: int, features: int, length_scale: float) -> None:
        super().__init__()
        self.length_scale = length_scale
        self.register_buffer("frequencies", torch.zeros(features, width))
        self.register_buffer("phases", torch.zeros(features))
        self.output = nn.Linear(features, num_classes)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw Ω from N(0, 1), b from U(0, 2π) and the trained weights as those of a linear layer."""
        self.frequencies.normal_(generator=generator)
        self.phases.uniform_(0, 2 * pi, generator=generator)
        bound = 1 / sqrt(self.output.in_features)
        self.output.weight.uniform_(-bound, bound, generator=generator)
        self.output.bias.zero_()

    def features(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n m"]:
        """Return φ(z)."""
        return sqrt(2 / len(self.phases)) * self._cosines(embedding)

    def forward(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n C"]:
        """Return the mean logits."""
        logits: Tensor = self.output(self._cosines(embedding))
        return logits

    def _cosines(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n m"]:
        return nn.functional.linear(embedding / self.length_scale, self.frequencies, self.phases).cos()


class SNGP(EmbeddingMethod):
    """Softmax of a Gaussian process over embeddings; linear layers of the encoder have bounded spectral norms.

    The last layer is replaced by random Fourier features φ. Its weights have the precision
    ridge · I + Σ_b p_c (1 − p_c) φ_b φ_bᵀ for class c, computed from all training bags once training has ended:
    what resetting the precision at the start of the last epoch gives, without the change of weights in between.
    Probabilities are integrated over the normal logits, where the published code has a closed approximation,
    logit / √(1 + π v / 8). Each update begins with one power iteration for every linear layer of the encoder,
    whose weights are scaled to the bound where they exceed it; convolutions are left as they are.

    Reference: Liu et al. 2020, "Simple and principled uncertainty estimation", Eq. 7 to 10 and Algorithm 1.

    Args:
        network: one whose logits are its last layer of an embedding.
        features: number m of random features.
        length_scale: ℓ of the kernel, in units of √E for embeddings of E numbers.
        ridge: precision of the prior.
        norm_bound: largest spectral norm of a linear layer of the encoder; 0 for no bound.
    """

    factor: Tensor

    def __init__(
        self,
        network: MILNetwork,
        *,
        features: Width = 1024,
        length_scale: float = 0.1,
        ridge: float = 1.0,
        norm_bound: float = 1.0,
    ) -> None:
        super().__init__(network, name="sngp")
        check_process(length_scale, ridge, norm_bound)
        self.ridge, self.norm_bound = ridge, norm_bound
        layer = network.last_layer
        width = layer.get_parameter("weight").shape[1]
        name = next(name for name, module in network.named_modules() if module is layer)
        network.set_submodule(name, nn.Identity())
        self.process = RandomFeatureLayer(width, network.num_classes, features, length_scale * sqrt(width))
        self.register_buffer("factor", torch.zeros(_covariances(network.num_classes), features, features))
        register_directions(self)

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Bound the spectral norms, and return the mean cross-entropy of the bags."""
        bound_norms(self, self.norm_bound)
        return super().loss(batch, epoch)

    def logits(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n C"]:
        """Return the mean logits of the Gaussian process."""
        logits: Tensor = self.process(embedding)
        return logits

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Compute the covariance of the weights from the training bags, in one pass."""
        self.factor.copy_(covariance_factor(self.ridge, self.factor, map(self._curvature, batches)))

    def _curvature(self, batch: BagBatch) -> Float[Tensor, "any m m"]:
        embedding = self.bag_scores(batch).logits
        features = in_double(self.process.features(embedding))
        p = in_double(self.logits(embedding)).softmax(-1)
        weights = (p * (1 - p))[:, : len(self.factor)]
        return torch.einsum("nc,nd,ne->cde", weights, features, features)

    def variances(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n C"]:
        """Return the variance φᵀ Σ_c φ of each logit of bags or instances."""
        factor = in_double(self.factor)
        parts = [
            torch.einsum("nd,cdp->ncp", in_double(self.process.features(rows)), factor).square().sum(-1)
            for rows in embedding.split(ROWS)
        ]
        return torch.cat(parts).expand(-1, self.network.num_classes)

    def distribution(self, logits: Float[Tensor, "n E"]) -> PredictiveDistribution:
        """Return mean and expected entropy of the softmax over the process; ``logits`` are embeddings."""
        variances = self.variances(logits)
        basis = contrast_basis(self.network.num_classes).to(variances.device)
        covariance = torch.einsum("ci,nc,cj->nij", basis, variances, basis)
        return softmax_of_gaussian(self.logits(logits), covariance)


def covariance_factor(
    ridge: float, like: Float[Tensor, "any m m"], curvatures: Iterable[Float[Tensor, "any m m"]]
) -> Float[Tensor, "any m m"]:
    """Return the factors F, shaped ``like`` that, of the covariances F Fᵀ = (ridge · I + Σ curvatures)⁻¹."""
    precision = (ridge * torch.eye(like.shape[-1])).to(in_double(like)).repeat(len(like), 1, 1)
    for curvature in curvatures:
        precision += curvature
    values, vectors = symmetric_eigen(precision)
    return vectors / values.sqrt().unsqueeze(-2)


def check_process(length_scale: float, ridge: float, norm_bound: float) -> None:
    """Raise a ConfigError unless length scale and ridge are above 0, and the bound from 0."""
    for option, value in (("length_scale", length_scale), ("ridge", ridge)):
        if value <= 0:
            raise out_of_range(f"option 'method.{option}'", "a number above 0", value)
    if norm_bound < 0:
        raise out_of_range("option 'method.norm_bound'", "a number from 0", norm_bound)


def register_directions(method: Method) -> None:
    """Give a method a buffer for the largest singular direction of each linear layer of its encoder."""
    for number, layer in enumerate(_linear_layers(method)):
        method.register_buffer(f"direction_{number}", torch.ones(layer.in_features))


@torch.no_grad()
def bound_norms(method: Method, bound: float) -> None:
    """Scale the linear layers of the encoder whose spectral norm, by one power iteration, is above ``bound``."""
    if not bound:
        return
    for number, layer in enumerate(_linear_layers(method)):
        direction = method.get_buffer(f"direction_{number}")
        left = normalize(layer.weight @ direction, dim=0)
        product = layer.weight.T @ left
        norm = product.norm()
        direction.copy_(product / norm.clamp(min=torch.finfo(norm.dtype).tiny))
        layer.weight.mul_((bound / norm).clamp(max=1.0))


def _linear_layers(method: Method) -> list[nn.Linear]:
    return [module for module in method.network.encoder.modules() if isinstance(module, nn.Linear)]


def _covariances(num_classes: int) -> int:
    """Return how many covariances differ: those of two classes are equal, since p (1 − p) is."""
    return 1 if num_classes == 2 else num_classes
