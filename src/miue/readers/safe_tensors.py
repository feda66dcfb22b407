"""Files of safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from miue.readers.base import OpenFile, bag_error, refusing
from miue.readers.names import coords_name, features_name


@contextmanager
def open_safetensors(path: Path) -> Iterator[OpenFile]:
    """Open a file with features and, where it has them, coords in level-0 pixels; memory-mapped.

    Raises:
        DataError: damaged, or without features.
    """
    with (
        refusing(path, "a whole file of safetensors", OSError, SafetensorError),
        safe_open(path, "pt") as file,
    ):
        names = list(file.keys())
        features = _numpy(file.get_tensor(features_name(path, names)))
        where = coords_name(names)
        coords = None if where is None else _numpy(file.get_tensor(where))
    if coords is not None and (coords.ndim != 2 or coords.shape[1] != 2):
        raise bag_error(path, "coords (n, 2)", f"shape {coords.shape}")
    yield OpenFile(format="safetensors", features=features, coords=coords)


def _numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
