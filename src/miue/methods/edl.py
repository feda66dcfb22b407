"""Evidential deep learning at bag level (EDL, I-EDL, R-EDL), with T as the instance estimator."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from miue.bags import BagBatch
from miue.common.errors import out_of_range, unknown_name
from miue.common.tensors import in_double
from miue.distributions import Dirichlet, PredictiveDistribution
from miue.evidence import ACTIVATIONS, EvidentialLoss, to_alpha
from miue.methods.base import Method
from miue.networks import MILNetwork


class FisherEDL(Method):
    """I-EDL: a Dirichlet for each bag, trained with Fisher-weighted squared error, KL and RED.

    Reference: Deng et al. 2023; Liu & Ji 2024, Eq. 6 and Table 4.

    Args:
        network: any MIL network.
        fisher_coefficient: λ1.
        annealing_epochs: epochs over which the coefficient of the KL term rises to 1.
        red: add the RED term.
        activation: how logits become evidence.
    """

    fisher_weighted: ClassVar[bool] = True

    def __init__(
        self,
        network: MILNetwork,
        *,
        fisher_coefficient: float = 0.0,
        annealing_epochs: int = 10,
        red: bool = True,
        activation: str = "exp",
    ) -> None:
        super().__init__(network)
        if activation not in ACTIVATIONS:
            raise unknown_name("evidence activation", activation, ACTIVATIONS)
        self.log_evidence = ACTIVATIONS[activation]
        self.evidential_loss = EvidentialLoss(self.fisher_weighted, fisher_coefficient, annealing_epochs, red)

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean evidential loss of the bags."""
        logits = self.bag_scores(batch).logits
        return self.evidential_loss(self.log_evidence(logits), batch.labels, epoch).mean()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return log alpha − log α0."""
        alpha = to_alpha(self.log_evidence(logits))
        return alpha.log() - alpha.sum(-1, keepdim=True).log()

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return Dir(alpha)."""
        return Dirichlet(to_alpha(self.log_evidence(logits)))


class EDL(FisherEDL):
    """EDL: a Dirichlet for each bag, trained with unweighted squared error, KL and RED.

    Reference: Sensoy et al. 2018.
    """

    fisher_weighted: ClassVar[bool] = False


class RelaxedEDL(Method):
    """R-EDL: a Dirichlet with alpha = evidence + λ, trained with the squared error of its mean.

    L = Σ_c (y_c − α_c/α0)² + a KL(Dir(e (1 − y) + λ) ‖ Dir(λ, …, λ)), with a rising to 1 over the first epochs;
    the variance of the probabilities is not part of the loss. The paper's uncertainty u = λC/α0 ranks items as
    vacuity, C/α0, does, which here is at most 1/λ.

    Reference: Chen et al. 2024, "R-EDL: relaxing nonessential settings of evidential deep learning", Eq. 8 to 11,
    and the published code (softplus, λ = 0.1, the divergence). The default of λ was chosen on validation bags of
    six data sets (results/evidence_prior of the repository).

    Args:
        network: any MIL network.
        prior: λ, above 0; EDL has 1.
        annealing_epochs: epochs over which the coefficient of the divergence rises to 1; 0 leaves it out.
        activation: how logits become evidence.
    """

    takes_temperature = False

    def __init__(
        self,
        network: MILNetwork,
        *,
        prior: float = 0.01,
        annealing_epochs: int = 10,
        activation: str = "softplus",
    ) -> None:
        super().__init__(network)
        if activation not in ACTIVATIONS:
            raise unknown_name("evidence activation", activation, ACTIVATIONS)
        if prior <= 0:
            raise out_of_range("option 'method.prior'", "a number above 0", prior)
        if annealing_epochs < 0:
            raise out_of_range("option 'method.annealing_epochs'", "a number from 0", annealing_epochs)
        self.log_evidence = ACTIVATIONS[activation]
        self.prior, self.annealing_epochs = prior, annealing_epochs

    def alpha(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return evidence + λ."""
        return self.log_evidence(logits).exp() + self.prior

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean relaxed loss of the bags."""
        alpha = self.alpha(self.bag_scores(batch).logits)
        target = one_hot(batch.labels, alpha.shape[-1]).to(alpha.dtype)
        loss = (target - alpha / alpha.sum(-1, keepdim=True)).square().sum(-1)
        if self.annealing_epochs:
            misleading = alpha * (1 - target) + self.prior * target
            loss = loss + min(1.0, epoch / self.annealing_epochs) * self._divergence(misleading)
        return loss.mean()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return log alpha − log α0."""
        alpha = self.alpha(logits)
        return alpha.log() - alpha.sum(-1, keepdim=True).log()

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return Dir(alpha)."""
        return Dirichlet(self.alpha(logits))

    def _divergence(self, alpha: Float[Tensor, "n C"]) -> Float[Tensor, "n"]:
        """KL(Dir(alpha) ‖ Dir(λ, …, λ)), in float64: its terms of size α log α cancel."""
        precise = in_double(alpha)
        flat = torch.distributions.Dirichlet(torch.full_like(precise, self.prior), validate_args=False)
        divergence = torch.distributions.kl_divergence(
            torch.distributions.Dirichlet(precise, validate_args=False), flat
        )
        return divergence.to(alpha)
