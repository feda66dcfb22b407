"""The Dirichlet distribution over class probabilities, with closed-form measures."""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log, pi
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.errors import DataError
from miue.common.tensors import in_double
from miue.distributions.base import PredictiveDistribution, add_columns, in_any_order, sum_classes
from miue.distributions.special import (
    SERIES_FROM,
    digamma_gap,
    digamma_remainder,
    lgamma_remainder,
    trigamma,
    trigamma_excess,
)

_HALF_LOG_TWO_PI = log(2 * pi) / 2


class Dirichlet(PredictiveDistribution):
    """Dir(alpha), computed in float64.

    Reference: Liu & Ji 2024, Appendix B.2. Differs from the published code: no constant is added to alpha
    or inside a logarithm, so that mutual information is exact and never negative.

    Args:
        alpha: positive concentrations; alpha = evidence + 1.

    Raises:
        DataError: a concentration is not positive and finite.

    >>> prediction = Dirichlet(torch.tensor([[1.0, 1.0], [90.0, 10.0]]))
    >>> prediction.vacuity().tolist()
    [1.0, 0.02]
    """

    def __init__(self, alpha: Float[Tensor, "n C"]) -> None:
        low, high = alpha.aminmax() if alpha.numel() else (1.0, 1.0)
        if not ((low > 0) & (high < torch.inf)):  # NaN is neither; a device is waited for once
            wrong = ~((alpha > 0) & alpha.isfinite()).all(-1)
            row = int(wrong.nonzero()[0])
            raise DataError(
                item=f"row {row} of alpha",
                wanted="concentrations above 0",
                got=str(alpha[row].tolist()),
                fix="pass alpha = evidence + 1, not evidence or logits",
            )
        self.alpha = in_double(alpha)

    @classmethod
    def concatenate(cls, parts: Sequence[PredictiveDistribution]) -> Dirichlet:
        """Return the predictions of all parts in order."""
        return cls(torch.cat([part.alpha for part in parts if isinstance(part, Dirichlet)]))

    def subset(self, rows: Int64[Tensor, "m"]) -> Dirichlet:
        """Return the predictions of the items in ``rows``."""
        return Dirichlet(self.alpha[rows])

    def tempered(self, temperature: float) -> Dirichlet:
        """Return log e / T as log-evidence, alpha = e^(1/T) + 1; no evidence, or alpha below 1, is none.

        Where evidence is exp(logit), T is the temperature of the logits. An evidence of one stays one, and the
        classes stay in their order.
        """
        evidence = (self.alpha - 1).clamp(min=0)
        return Dirichlet((evidence.log() / temperature).exp() + 1)

    def cpu(self) -> Dirichlet:
        """Return the same predictions in main memory."""
        return Dirichlet(self.alpha.cpu())

    @property
    def alpha0(self) -> Float[Tensor, "n"]:
        """α0 = Σ alpha, the total evidence plus C."""
        return sum_classes(self.alpha)

    @property
    def probabilities(self) -> Float[Tensor, "n C"]:
        """alpha / α0."""
        return self.alpha / self.alpha0.unsqueeze(-1)

    def expected_entropy(self) -> Float[Tensor, "n"]:
        """Aleatoric (data) uncertainty, Σ p_i (ψ(α0 + 1) − ψ(α_i + 1))."""
        gaps = torch.digamma(self.alpha0 + 1).unsqueeze(-1) - torch.digamma(self.alpha + 1)
        return sum_classes(self.probabilities * gaps)

    def mutual_information(self) -> Float[Tensor, "n"]:
        """Epistemic (model) uncertainty, Σ p_i δ(α_i) − δ(α0) with δ(x) = ψ(x + 1) − log x.

        Equals entropy − expected entropy, which loses all digits from α0 ≈ 1e6.

        Reference: Liu & Ji 2024, Eq. 17.
        """
        gaps, total = digamma_gap(self.alpha), digamma_gap(self.alpha0)
        return (sum_classes(self.probabilities * gaps) - total).clamp(min=0)

    def differential_entropy(self) -> Float[Tensor, "n"]:
        """Differential entropy, log B(α) + (α0 − C) ψ(α0) − Σ (α_i − 1) ψ(α_i), at most −log Γ(C).

        Highest for α = 1: with smaller α, as R-EDL has it without evidence, it is low again.
        """
        return differential_entropy(in_any_order(self.alpha))

    def inverse_max_alpha(self) -> Float[Tensor, "n"]:
        """1 / max alpha, in (0, 1] for evidential alpha; the reversed ranking of max alpha."""
        return self.alpha.max(-1).values.reciprocal()

    def vacuity(self) -> Float[Tensor, "n"]:
        """C / α0, for alpha = evidence + 1 in (0, 1]: the belief mass without evidence; ranks as −α0 does.

        Reference: Liu & Ji 2024, Section 2.2 (u).
        """
        return self.num_classes / self.alpha0


def differential_entropy(alpha: Float[Tensor, "*n C"]) -> Float[Tensor, "*n"]:
    """Differential entropy of Dir(alpha), in nats, with its gradient in closed form.

    Args:
        alpha: concentrations above zero.
    """
    value: Tensor = _DifferentialEntropy.apply(alpha)
    return value


def divergence_from_uniform(alpha: Float[Tensor, "*n C"]) -> Float[Tensor, "*n"]:
    """KL(Dir(alpha) ‖ Dir(1, …, 1)), at least zero.

    Reference: Liu & Ji 2024, Appendix C (L^KL).
    """
    return -differential_entropy(alpha) - lgamma(alpha.shape[-1])


class _DifferentialEntropy(torch.autograd.Function):
    """log B(α) + (α0 − C) ψ(α0) − Σ (α_i − 1) ψ(α_i) and its gradient (α0 − C) ψ′(α0) − (α_i − 1) ψ′(α_i).

    log Γ and ψ are split into leading terms and remainders, so that terms of size α log α cancel analytically.
    Terms of the gradient are about 1 for large α, their difference about 1/α: there they are written with αψ′ − 1.
    """

    @staticmethod
    def forward(alpha: Tensor) -> Tensor:
        num_classes = alpha.shape[-1]
        alpha0 = add_columns(alpha).unsqueeze(-1)
        x = torch.cat([alpha, alpha0], -1)
        excess = torch.cat([alpha - 1, alpha0 - num_classes], -1)
        log_gamma_rest, slope = lgamma_remainder(x), excess * (0.5 / x + digamma_remainder(x))
        per_class = 0.5 * alpha.log() + (log_gamma_rest + slope)[..., :-1]
        total = (0.5 - num_classes) * alpha0.log() - (log_gamma_rest + slope)[..., -1:]
        return add_columns(per_class) + total.squeeze(-1) + (num_classes - 1) * _HALF_LOG_TWO_PI

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (alpha,) = ctx.saved_tensors
        num_classes, alpha0 = alpha.shape[-1], alpha.sum(-1, keepdim=True)
        curvature, curvature0 = trigamma(alpha), trigamma(alpha0)
        direct = (alpha0 - num_classes) * curvature0 - (alpha - 1) * curvature
        of_large = trigamma_excess(alpha0) - num_classes * curvature0 - (trigamma_excess(alpha) - curvature)
        return gradient.unsqueeze(-1) * torch.where(alpha0 < SERIES_FROM, direct, of_large)
