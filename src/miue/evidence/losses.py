"""Losses of evidential learning, as functions of log-evidence and target class of each item.

Reference: Liu & Ji 2024, Eq. 11, 18 and Appendix C; Deng et al. 2023 (I-EDL);
Sensoy et al. 2018 (EDL); Pandey & Yu 2023 (RED).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from miue.common.errors import out_of_range
from miue.distributions import divergence_from_uniform, inverse_trigamma_remainder, trigamma
from miue.evidence.activation import to_alpha


@dataclass(frozen=True)
class EvidentialLoss:
    """Squared error + λ2 · KL + RED, for I-EDL with Fisher weights and − λ1 · log|I|.

    Attributes:
        fisher_weighted: weight the squared error of each class by the trigamma of its alpha (I-EDL).
        fisher_coefficient: λ1, weight of the log-determinant of the Fisher information; at least 0.
        annealing_epochs: epochs over which λ2 rises to 1; at least 1.
        red: add the RED term, which has a gradient where evidence is near zero.
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
        """Return the loss of each item in an epoch; the first epoch is 1."""
        alpha = to_alpha(log_evidence)
        loss = squared_error(alpha, target, trigamma(alpha) if self.fisher_weighted else None)
        if self.fisher_coefficient:
            loss = loss - self.fisher_coefficient * log_fisher_determinant(alpha)
        loss = loss + min(1.0, epoch / self.annealing_epochs) * kl_penalty(alpha, target)
        return loss + red_loss(log_evidence, target) if self.red else loss


def squared_error(
    alpha: Float[Tensor, "n C"], target: Int64[Tensor, "n"], class_weights: Float[Tensor, "n C"] | None = None
) -> Float[Tensor, "n"]:
    """Expected squared error of the class probabilities, Σ w_i [(y_i − p_i)² + p_i (1 − p_i) / (α0 + 1)].

    Args:
        alpha: concentrations.
        target: class of each item.
        class_weights: w; ones for EDL (L^MSE), the trigamma of alpha for I-EDL (L^I-MSE).
    """
    alpha0 = alpha.sum(-1, keepdim=True)
    probability = alpha / alpha0
    error = (_one_hot(target, alpha) - probability) ** 2 + probability * (1 - probability) / (alpha0 + 1)
    return (error if class_weights is None else error * class_weights).sum(-1)


def log_fisher_determinant(alpha: Float[Tensor, "n C"]) -> Float[Tensor, "n"]:
    """log |I(alpha)|, Σ log ψ′(α_i) + log(1 − Σ ψ′(α0) / ψ′(α_i)).

    The argument of the second logarithm is a difference that vanishes like 1/α0. With 1/ψ′(x) = x − ½ + ρ(x) it
    equals ψ′(α0) · [(C − 1)/2 + ρ(α0) − Σ ρ(α_i)], which does not cancel.
    """
    alpha0 = alpha.sum(-1)
    rest = (alpha.shape[-1] - 1) / 2 + (
        inverse_trigamma_remainder(alpha0) - inverse_trigamma_remainder(alpha).sum(-1)
    )
    return trigamma(alpha).log().sum(-1) + trigamma(alpha0).log() + rest.log()


def kl_penalty(alpha: Float[Tensor, "n C"], target: Int64[Tensor, "n"]) -> Float[Tensor, "n"]:
    """KL divergence of Dir(alpha without the target's evidence) from the uniform Dirichlet (L^KL)."""
    is_target = _one_hot(target, alpha)
    return divergence_from_uniform(alpha * (1 - is_target) + is_target)


def red_loss(log_evidence: Float[Tensor, "n C"], target: Int64[Tensor, "n"]) -> Float[Tensor, "n"]:
    """RED, −(C / α0) · log(alpha_target − 1): linear in the target's log-evidence, so it never saturates."""
    vacuity = log_evidence.shape[-1] / to_alpha(log_evidence).sum(-1)
    return -vacuity * log_evidence.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def _one_hot(target: Int64[Tensor, "n"], like: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
    return one_hot(target, like.shape[-1]).to(like.dtype)


def expected_probability(log_evidence: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
    """Expected class probabilities alpha / α0."""
    alpha = to_alpha(log_evidence)
    return alpha / alpha.sum(-1, keepdim=True)
