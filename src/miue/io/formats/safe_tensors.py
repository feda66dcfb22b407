"""Files of safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from miue.io.formats.base import OpenFile, refusing
from miue.io.formats.names import coords_name, features_name
from miue.io.formats.tensors import as_numpy


@contextmanager
def open_safetensors(path: Path) -> Iterator[OpenFile]:
    """Open a file with features and, where it has them, coords in level-0 pixels; memory-mapped.

    Raises:
        DataError: damaged, or without features.
    """
    from safetensors import SafetensorError, safe_open

    with refusing(path, "a whole file of safetensors", OSError, SafetensorError), safe_open(path, "pt") as file:
        names = list(file.keys())
        features = as_numpy(path, file.get_tensor(features_name(path, names)))
        where = coords_name(names)
        coords = None if where is None else as_numpy(path, file.get_tensor(where))
    yield OpenFile(format="safetensors", features=features, coords=None if coords is None else lambda: coords)
