"""MIL networks: S scores a bag; T, the same network applied to a bag of one, scores an instance."""

from __future__ import annotations

from miue.common.parts import NETWORKS as _NETWORKS
from miue.common.registry import Registry
from miue.networks.attention import AttentionNetwork
from miue.networks.base import MILNetwork, NetworkOutput, Scores
from miue.networks.dual_stream import DualStreamNetwork
from miue.networks.gated_attention import GatedAttentionNetwork
from miue.networks.initialization import initialize
from miue.networks.max import MaxNetwork
from miue.networks.mean import MeanNetwork
from miue.networks.one_sided import OneSidedNetwork
from miue.networks.padded import PaddedNetwork

NETWORKS: Registry[type[MILNetwork]] = _NETWORKS

__all__ = [
    "NETWORKS",
    "AttentionNetwork",
    "DualStreamNetwork",
    "GatedAttentionNetwork",
    "MILNetwork",
    "MaxNetwork",
    "MeanNetwork",
    "NetworkOutput",
    "OneSidedNetwork",
    "PaddedNetwork",
    "Scores",
    "initialize",
]
