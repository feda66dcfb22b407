"""Losses of evidential learning, each a function of log-evidence and the target class of every item.

Reference: Liu & Ji 2024, Appendix apx-loss-func and Eq. eq-complete-loss; Deng et al. 2023 (I-EDL);
Sensoy et al. 2018 (EDL); Pandey & Yu 2023 (RED).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from miue.common.errors import out_of_range
from miue.distributions.dirichlet import divergence_from_uniform
from miue.distributions.special import inverse_trigamma_remainder, trigamma
from miue.evidence.activation import alpha_of


@dataclass(frozen=True)
class EvidentialLoss:
    """Squared error + λ2 · KL, with Fisher weights and − λ1 · log|I| for I-EDL, and RED on top.

    Attributes:
        fisher_weighted: weigh the squared error of each class with the trigamma of its alpha (I-EDL).
        fisher_coefficient: λ1, weight of the log-determinant of the Fisher information; from 0.
        annealing_epochs: epochs over which λ2 rises to 1; from 1.
        red: add the RED term, which teaches where evidence is near zero.
    """

    fisher_weighted: bool = True
    fisher_coefficient: float = 0.0
    annealing_epochs: int = 10
    red: bool = True

    def __post_init__(self) -> None:
        if self.fisher_coefficient < 0:
            raise out_of_range("fisher_coefficient", "a number from 0", self.fisher_coefficient)
        if self.annealing_epochs < 1:
            raise out_of_range("annealing_epochs", "at least 1", self.annealing_epochs)

    def __call__(
        self, log_evidence: Float[Tensor, "n C"], target: Int64[Tensor, "n"], epoch: int
    ) -> Float[Tensor, "n"]:
        """Return the loss of each item in the given epoch, the first being 1."""
        alpha = alpha_of(log_evidence)
        loss = squared_error(alpha, target, trigamma(alpha) if self.fisher_weighted else None)
        if self.fisher_coefficient:
            loss = loss - self.fisher_coefficient * log_fisher_determinant(alpha)
        loss = loss + min(1.0, epoch / self.annealing_epochs) * misleading_evidence(alpha, target)
        return loss + correct_evidence(log_evidence, target) if self.red else loss


def squared_error(
    alpha: Float[Tensor, "n C"], target: Int64[Tensor, "n"], class_weights: Float[Tensor, "n C"] | None = None
) -> Float[Tensor, "n"]:
    """Expected squared error of the class probabilities, Σ w_i [(y_i − p_i)² + p_i (1 − p_i) / (α0 + 1)].

    Args:
        alpha: concentrations.
        target: class of each item.
        class_weights: w; ones for EDL (L^MSE), the trigamma of alpha for I-EDL (L^I-MSE).
    """
    strength = alpha.sum(-1, keepdim=True)
    probability = alpha / strength
    error = (_one_hot(target, alpha) - probability) ** 2 + probability * (1 - probability) / (strength + 1)
    return (error if class_weights is None else error * class_weights).sum(-1)


def log_fisher_determinant(alpha: Float[Tensor, "n C"]) -> Float[Tensor, "n"]:
    """log |I(alpha)|, Σ log ψ′(α_i) + log(1 − Σ ψ′(α0) / ψ′(α_i)).

    The second logarithm is of a difference that vanishes like 1/α0. With 1/ψ′(x) = x − ½ + ρ(x) it is
    ψ′(α0) · [(C − 1)/2 + ρ(α0) − Σ ρ(α_i)], which loses nothing.
    """
    strength = alpha.sum(-1)
    rest = (alpha.shape[-1] - 1) / 2 + (
        inverse_trigamma_remainder(strength) - inverse_trigamma_remainder(alpha).sum(-1)
    )
    return trigamma(alpha).log().sum(-1) + trigamma(strength).log() + rest.log()


def misleading_evidence(alpha: Float[Tensor, "n C"], target: Int64[Tensor, "n"]) -> Float[Tensor, "n"]:
    """KL from the uniform Dirichlet of alpha with the target's own evidence taken off (L^KL)."""
    hit = _one_hot(target, alpha)
    return divergence_from_uniform(alpha * (1 - hit) + hit)


def correct_evidence(log_evidence: Float[Tensor, "n C"], target: Int64[Tensor, "n"]) -> Float[Tensor, "n"]:
    """RED, −(C / α0) · log(alpha_target − 1): linear in the target's log-evidence, so it never saturates."""
    vacuity = log_evidence.shape[-1] / alpha_of(log_evidence).sum(-1)
    return -vacuity * log_evidence.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def _one_hot(target: Int64[Tensor, "n"], like: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
    return one_hot(target, like.shape[-1]).to(like.dtype)


def expected_probability(log_evidence: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
    """Expected class probabilities alpha / α0."""
    alpha = alpha_of(log_evidence)
    return alpha / alpha.sum(-1, keepdim=True)
