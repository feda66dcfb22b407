"""Uncertainty methods: how a network is trained and which distribution it predicts."""

from __future__ import annotations

from miue.common.parts import METHODS as _METHODS
from miue.common.registry import Registry
from miue.methods.base import ATTENTION, BAG_OF_ONE, RESIDUAL, BatchPrediction, Method
from miue.methods.bayes_mil import BayesMIL
from miue.methods.cumulative_links import CumulativeLinks
from miue.methods.deep_ensemble import DeepEnsemble
from miue.methods.density_aware_edl import DensityAwareEDL
from miue.methods.edl import EDL, FisherEDL, RelaxedEDL
from miue.methods.laplace import Laplace
from miue.methods.mc_dropout import MCDropout
from miue.methods.mirel import MIREL
from miue.methods.mixture import Mixture, can_be_mixed
from miue.methods.one_sided_gp import OneSidedGP
from miue.methods.pooled import PooledForest, PooledLogistic
from miue.methods.returned import check_distribution, check_log_probabilities, check_loss, wrong_return
from miue.methods.sngp import SNGP
from miue.methods.softmax import EmbeddingMethod, Softmax

METHODS: Registry[type[Method]] = _METHODS

__all__ = [
    "ATTENTION",
    "BAG_OF_ONE",
    "EDL",
    "METHODS",
    "MIREL",
    "RESIDUAL",
    "SNGP",
    "BatchPrediction",
    "BayesMIL",
    "CumulativeLinks",
    "DeepEnsemble",
    "DensityAwareEDL",
    "EmbeddingMethod",
    "FisherEDL",
    "Laplace",
    "MCDropout",
    "Method",
    "Mixture",
    "OneSidedGP",
    "PooledForest",
    "PooledLogistic",
    "RelaxedEDL",
    "Softmax",
    "can_be_mixed",
    "check_distribution",
    "check_log_probabilities",
    "check_loss",
    "wrong_return",
]
