"""Evidential learning: evidence of a class, the residual of an instance, and the losses that teach both."""

from __future__ import annotations

from miue.evidence.activation import ACTIVATIONS, Activation, alpha_of, clamped_exponential
from miue.evidence.residual import ResidualNetwork, residual_log_evidence

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "ResidualNetwork",
    "alpha_of",
    "clamped_exponential",
    "residual_log_evidence",
]
