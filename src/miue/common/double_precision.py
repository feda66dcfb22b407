"""Numbers in double precision, on devices that have it and on those that have not."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor

WITHOUT_DOUBLE = {"mps"}  # Apple GPUs


def has_double(device: torch.device) -> bool:
    """Return whether a device computes in float64."""
    return device.type not in WITHOUT_DOUBLE


def in_double(values: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """Return values in float64, in main memory where their device computes nothing in it.

    >>> in_double(torch.tensor([0.5])).dtype
    torch.float64
    """
    return (values if has_double(values.device) else values.cpu()).double()
