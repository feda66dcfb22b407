"""The precision in which encoders compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from torch import nn

from miue.common.errors import unknown_name
from miue.networks.base import MILNetwork

Precision = Literal["float32", "bf16-mixed"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


@contextmanager
def encoder_precision(module: nn.Module, precision: str) -> Iterator[None]:
    """Let the encoders in ``module`` compute in ``precision`` within the block.

    Weights, pooling, logits, evidence and losses are float32 in either case: evidence grows exponentially with
    logits, and bfloat16 has 8 significant bits.

    Args:
        module: a network, or a method with one or several.
        precision: "float32", or "bf16-mixed" for matrix products and convolutions in bfloat16, faster on devices
            with instructions for it.

    Raises:
        ConfigError: another name.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    networks = [network for network in module.modules() if isinstance(network, MILNetwork)]
    before = [network.encodes_in_bfloat16 for network in networks]
    for network in networks:
        network.encodes_in_bfloat16 = precision == "bf16-mixed"
    try:
        yield
    finally:
        for network, was in zip(networks, before, strict=True):
            network.encodes_in_bfloat16 = was
