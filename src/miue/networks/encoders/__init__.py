"""Instance encoders f: map one instance to one feature vector h of width ``out_features``."""

from __future__ import annotations

from miue.common.parts import ENCODERS as _ENCODERS
from miue.common.registry import Registry
from miue.networks.encoders.base import Encoder
from miue.networks.encoders.images import AlexNet, CompactCNN, LeNet
from miue.networks.encoders.vectors import MLP, Columns, Identity, WithCovariates

ENCODERS: Registry[type[Encoder]] = _ENCODERS


def default_encoder(instance_shape: tuple[int, ...]) -> str:
    """Return the name of the encoder that suits instances of this shape.

    >>> default_encoder((512,)), default_encoder((28, 28, 1)), default_encoder((8, 8, 1))
    ('mlp', 'lenet', 'compact')
    """
    if len(instance_shape) == 1:
        return "mlp"
    return "lenet" if min(instance_shape[:2]) >= LeNet.smallest_side else "compact"


__all__ = [
    "ENCODERS",
    "MLP",
    "AlexNet",
    "Columns",
    "CompactCNN",
    "Encoder",
    "Identity",
    "LeNet",
    "WithCovariates",
    "default_encoder",
]
