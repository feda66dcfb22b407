"""Uncertainty methods: how a network learns and what distribution it predicts. Any method takes any network."""

from __future__ import annotations

from miue.methods.base import BatchPrediction, Method
from miue.methods.deterministic import Deterministic
from miue.methods.edl import EDL, FisherEDL
from miue.methods.mirel import MIREL

METHODS: dict[str, type[Method]] = {
    "deterministic": Deterministic,
    "edl": EDL,
    "i-edl": FisherEDL,
    "mirel": MIREL,
}

__all__ = ["EDL", "METHODS", "MIREL", "BatchPrediction", "Deterministic", "FisherEDL", "Method"]
