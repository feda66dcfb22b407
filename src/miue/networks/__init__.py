"""MIL networks: S scores a bag, and T, the same network on bags of one, scores an instance."""

from __future__ import annotations

from miue.networks.attention import AttentionNetwork
from miue.networks.base import MILNetwork, NetworkOutput, Scores
from miue.networks.dual_stream import DualStreamNetwork
from miue.networks.gated_attention import GatedAttentionNetwork
from miue.networks.initialisation import initialise
from miue.networks.max import MaxNetwork
from miue.networks.mean import MeanNetwork
from miue.networks.padded import PaddedNetwork
from miue.networks.torchmil import TORCHMIL_NETWORKS

NETWORKS: dict[str, type[MILNetwork]] = {
    "mean": MeanNetwork,
    "max": MaxNetwork,
    "attention": AttentionNetwork,
    "gated-attention": GatedAttentionNetwork,
    "dsmil": DualStreamNetwork,
}

__all__ = [
    "NETWORKS",
    "TORCHMIL_NETWORKS",
    "AttentionNetwork",
    "DualStreamNetwork",
    "GatedAttentionNetwork",
    "MILNetwork",
    "MaxNetwork",
    "MeanNetwork",
    "NetworkOutput",
    "PaddedNetwork",
    "Scores",
    "initialise",
]
