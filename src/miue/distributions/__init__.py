"""Predictions: distributions over class probabilities."""

from __future__ import annotations

from miue.distributions.base import PredictiveDistribution
from miue.distributions.categorical import SUM_TOLERANCE, Categorical
from miue.distributions.dirichlet import Dirichlet, divergence_from_uniform
from miue.distributions.draws import Draws
from miue.distributions.gaussian_logits import contrast_basis, softmax_of_gaussian
from miue.distributions.measures import MEASURES, Measure, applicable_measures
from miue.distributions.moments import to_dirichlet
from miue.distributions.special import inverse_trigamma_remainder, trigamma

__all__ = [
    "MEASURES",
    "SUM_TOLERANCE",
    "Categorical",
    "Dirichlet",
    "Draws",
    "Measure",
    "PredictiveDistribution",
    "applicable_measures",
    "contrast_basis",
    "divergence_from_uniform",
    "inverse_trigamma_remainder",
    "softmax_of_gaussian",
    "to_dirichlet",
    "trigamma",
]
