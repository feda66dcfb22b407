"""Evidential learning: evidence of classes, residuals of instances, and their losses."""

from __future__ import annotations

from miue.evidence.activation import ACTIVATIONS, Activation, clamped_exponential, to_alpha
from miue.evidence.residual import ResidualNetwork, residual_log_evidence

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "ResidualNetwork",
    "clamped_exponential",
    "residual_log_evidence",
    "to_alpha",
]
