"""Uncertainty methods: how a network is trained and which distribution it predicts."""

from __future__ import annotations

from miue.common.parts import METHODS as _METHODS
from miue.common.registry import Registry
from miue.methods.base import BatchPrediction, Method
from miue.methods.bayes_mil import BayesMIL
from miue.methods.deep_ensemble import DeepEnsemble
from miue.methods.density_aware_edl import DensityAwareEDL
from miue.methods.edl import EDL, FisherEDL
from miue.methods.laplace import Laplace
from miue.methods.mc_dropout import MCDropout
from miue.methods.mirel import MIREL
from miue.methods.relaxed_edl import RelaxedEDL
from miue.methods.sngp import SNGP
from miue.methods.softmax import Softmax

METHODS: Registry[type[Method]] = _METHODS

__all__ = [
    "EDL",
    "METHODS",
    "MIREL",
    "SNGP",
    "BatchPrediction",
    "BayesMIL",
    "DeepEnsemble",
    "DensityAwareEDL",
    "FisherEDL",
    "Laplace",
    "MCDropout",
    "Method",
    "RelaxedEDL",
    "Softmax",
]
