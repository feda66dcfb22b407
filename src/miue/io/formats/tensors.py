"""Tensors of a bag file as NumPy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from miue.io.formats.base import refuse_claim, refusing


def as_numpy(path: Path, tensor: Any) -> np.ndarray:
    """Return the numbers of a tensor of torch, those that NumPy has no type for as float32.

    Raises:
        DataError: it claims more than the file holds, or is of no plain numbers (float8, quantized, sparse).
    """
    import torch

    with refusing(path, "a dense tensor of plain numbers", TypeError, RuntimeError):
        refuse_claim(path, tensor)  # first: a tensor may repeat one number without end, and a copy writes it out
        plain = tensor.detach()
        array: np.ndarray = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return array
