"""Evidence activations A, as functions from logits to *log*-evidence.

The library computes with log-evidence: the residual multiplies it, RED is linear in it, and only this module
converts it to evidence and alpha. There is no ReLU activation: zero evidence has no logarithm and no gradient
(Pandey & Yu 2023).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

LOGIT_LIMIT = 10.0

Activation = Callable[[Tensor], Tensor]


def clamped_exponential(logits: Float[Tensor, "*n C"]) -> Float[Tensor, "*n C"]:
    """log A(s) for A(s) = exp(clamp(s, ±10)).

    Reference: Liu & Ji 2024, Eq. 5 and Appendix D.3; the clamp is that of the published code.
    """
    return logits.clamp(-LOGIT_LIMIT, LOGIT_LIMIT)


def log_softplus(logits: Float[Tensor, "*n C"]) -> Float[Tensor, "*n C"]:
    """log A(s) for A(s) = log(1 + exp(s)), accurate also where softplus underflows (log A(s) ≈ s)."""
    low = logits < -15.0
    return torch.where(low, logits - logits.clamp(max=-15.0).exp() / 2, softplus(logits.clamp(min=-15.0)).log())


def log_elu(logits: Float[Tensor, "*n C"]) -> Float[Tensor, "*n C"]:
    """log A(s) for A(s) = ELU(s) + 1: s below zero, log(1 + s) above."""
    return torch.where(logits < 0, logits, logits.clamp(min=0).log1p())


def to_alpha(log_evidence: Float[Tensor, "*n C"]) -> Float[Tensor, "*n C"]:
    """Concentration of the Dirichlet: alpha = evidence + 1.

    >>> to_alpha(torch.tensor([0.0, -torch.inf])).tolist()
    [2.0, 1.0]
    """
    return log_evidence.exp() + 1


ACTIVATIONS: dict[str, Activation] = {"exp": clamped_exponential, "softplus": log_softplus, "elu": log_elu}
