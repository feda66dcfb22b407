"""The precision in which encoders compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import nn

from miue.common.devices import has_bfloat16
from miue.common.errors import unknown_name
from miue.common.text import say
from miue.networks.base import MILNetwork

Precision = Literal["float32", "bf16-mixed"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


def say_if_slow(precision: str, device: torch.device) -> None:
    """Say that bfloat16 is asked for on a device that has no instructions for it."""
    if precision == "bf16-mixed" and not has_bfloat16(device):
        slow = (
            f"this {device.type} has no instructions for bfloat16, and is many times slower in it than in float32"
        )
        say(f"bf16-mixed: {slow}", err=True)


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
