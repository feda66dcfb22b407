"""Numbers in double precision, on devices that have it and on those that have not."""

from __future__ import annotations

from jaxtyping import Shaped
from torch import Tensor

WITHOUT_DOUBLE = {"mps"}  # Apple GPUs


def in_double(values: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """Return values in float64, in main memory where their device computes nothing in it.

    >>> import torch
    >>> in_double(torch.tensor([0.5])).dtype
    torch.float64
    """
    return (values.cpu() if values.device.type in WITHOUT_DOUBLE else values).double()
