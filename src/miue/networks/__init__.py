"""MIL networks: S scores a bag; T, the same network applied to a bag of one, scores an instance."""

from __future__ import annotations

from miue.common.parts import NETWORKS as _NETWORKS
from miue.common.registry import Registry
from miue.networks.adapter import BagModuleNetwork, ModuleEncoder
from miue.networks.attention import AttentionNetwork, GatedAttentionNetwork
from miue.networks.base import (
    PRECISIONS,
    InstanceEstimator,
    MILNetwork,
    NetworkOutput,
    Projection,
    Scores,
    encoder_precision,
    instance_logits_of_features,
    join,
    say_if_slow,
)
from miue.networks.dual_stream import DualStreamNetwork
from miue.networks.encoders import Columns, Identity, WithCovariates
from miue.networks.initialization import initialize, seeded
from miue.networks.one_sided import OneSidedNetwork
from miue.networks.padded import PaddedNetwork
from miue.networks.pooling import MaxNetwork, MeanNetwork

NETWORKS: Registry[type[MILNetwork]] = _NETWORKS

__all__ = [
    "NETWORKS",
    "PRECISIONS",
    "AttentionNetwork",
    "BagModuleNetwork",
    "Columns",
    "DualStreamNetwork",
    "GatedAttentionNetwork",
    "Identity",
    "InstanceEstimator",
    "MILNetwork",
    "MaxNetwork",
    "MeanNetwork",
    "ModuleEncoder",
    "NetworkOutput",
    "OneSidedNetwork",
    "PaddedNetwork",
    "Projection",
    "Scores",
    "WithCovariates",
    "encoder_precision",
    "initialize",
    "instance_logits_of_features",
    "join",
    "say_if_slow",
    "seeded",
]
