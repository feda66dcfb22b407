"""Evidential learning: evidence of classes, residuals of instances, and their losses."""

from __future__ import annotations

from miue.evidence.activation import ACTIVATIONS, Activation, clamped_exponential, to_alpha
from miue.evidence.losses import EvidentialLoss, kl_penalty, squared_error
from miue.evidence.residual import ResidualNetwork, residual_log_evidence
from miue.evidence.weak_supervision import STRATEGIES, instance_weights, supervise

__all__ = [
    "ACTIVATIONS",
    "STRATEGIES",
    "Activation",
    "EvidentialLoss",
    "ResidualNetwork",
    "clamped_exponential",
    "instance_weights",
    "kl_penalty",
    "residual_log_evidence",
    "squared_error",
    "supervise",
    "to_alpha",
]
