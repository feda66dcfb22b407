"""Predictions: distributions over class probabilities."""

from __future__ import annotations

from miue.distributions.base import PredictiveDistribution
from miue.distributions.categorical import Categorical
from miue.distributions.dirichlet import Dirichlet
from miue.distributions.draws import Draws
from miue.distributions.moments import to_dirichlet

__all__ = ["Categorical", "Dirichlet", "Draws", "PredictiveDistribution", "to_dirichlet"]
