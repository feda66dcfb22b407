"""Uncertainty methods: how a network learns and what distribution it predicts. Any method takes any network."""

from __future__ import annotations

from miue.methods.base import BatchPrediction, Method
from miue.methods.bayes_mil import BayesMIL
from miue.methods.deep_ensemble import DeepEnsemble
from miue.methods.deterministic import Deterministic
from miue.methods.edl import EDL, FisherEDL
from miue.methods.mc_dropout import MCDropout
from miue.methods.mirel import MIREL

METHODS: dict[str, type[Method]] = {
    "deterministic": Deterministic,
    "deep-ensemble": DeepEnsemble,
    "mc-dropout": MCDropout,
    "edl": EDL,
    "i-edl": FisherEDL,
    "bayes-mil": BayesMIL,
    "mirel": MIREL,
}

__all__ = [
    "EDL",
    "METHODS",
    "MIREL",
    "BatchPrediction",
    "BayesMIL",
    "DeepEnsemble",
    "Deterministic",
    "FisherEDL",
    "MCDropout",
    "Method",
]
