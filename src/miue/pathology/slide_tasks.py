"""Slides as tasks: one slide becomes one file of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from miue.common.tasks import report_share
from miue.pathology.patch_encoders import PatchEncoder, check_normalization, network_encoder, plain_encoder
from miue.pathology.slide_shifts import SlideShift, shift_slide
from miue.pathology.stain_shifts import StainShift
from miue.pathology.tiling import Tiling, tile_slide


@lru_cache(1)
def open_encoder(path: str | None, normalization: str, batch: int, device: str) -> PatchEncoder:
    """Return the network in a file, or the plain statistics where there is no path; the last one is kept.

    Raises:
        ConfigError, StorageError, ModelError: as ``network_encoder`` does.
    """
    if path is None:
        check_normalization(normalization)
        return plain_encoder()
    return network_encoder(Path(path), normalization=normalization, batch=batch, device=device)


def tile_task(slide: str, out: str, tiling: Mapping[str, Any], encoder: Mapping[str, Any]) -> int:
    """Cut a slide and return how many patches it has; arguments of ``Tiling`` and ``open_encoder``."""
    return tile_slide(Path(slide), Path(out), Tiling(**tiling), open_encoder(**encoder), _reported)


def shift_task(slide: str, out: str, shift: Mapping[str, Any], encoder: Mapping[str, Any]) -> int:
    """Write a shifted copy of a slide and return how many patches it has; ``shift`` as ``read_shift`` takes it."""
    return shift_slide(Path(slide), Path(out), read_shift(shift, encoder), _reported)


def read_shift(shift: Mapping[str, Any], encoder: Mapping[str, Any]) -> SlideShift:
    """Return the shift that JSON values describe.

    Args:
        shift: kind, strength, drawn_per, seed, pictures, and tiles: a folder, or arguments of ``Tiling``.
        encoder: arguments of ``open_encoder``.
    """
    tiles = shift["tiles"]
    where = Path(tiles) if isinstance(tiles, str) else Tiling(**tiles)
    stains = StainShift(shift["kind"], shift["strength"], shift["drawn_per"])
    return SlideShift(stains, shift["seed"], open_encoder(**encoder), where, shift["pictures"])


def _reported(coords: np.ndarray) -> Iterator[np.ndarray]:
    for number, corner in enumerate(coords):
        report_share(number / len(coords))
        yield corner
