"""Writing an array of instances that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Shaped


def write_array(
    path: Path, dtype: np.dtype, shape: tuple[int, ...], spans: Iterable[Shaped[np.ndarray, "..."]]
) -> None:
    """Write a .npy file span by span, with plain writes: a full disk is an error of the one that does not fit.

    (A memory map would end the process instead, when its pages reach the disk.)

    Args:
        path: the file.
        dtype: of the array.
        shape: of all spans together.
        spans: consecutive rows of the array, of any numbers.

    Raises:
        OSError: the disk is full, or the file cannot be written.
        ValueError: the spans are not of that shape.
    """
    rows = 0
    with path.open("wb") as file:
        file.write(array_header(dtype, shape))
        for span in spans:
            if span.shape[1:] != shape[1:]:
                raise ValueError(f"rows of shape {span.shape[1:]} in an array of {shape}")
            file.write(bytes_of(np.asarray(span, dtype)))
            rows += len(span)
    if rows != shape[0]:
        raise ValueError(f"{rows} rows in an array of {shape}")


def array_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Return the header of a .npy file; NumPy leaves room in it for more rows, so that its length stays."""
    written = BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, header)
    return written.getvalue()


def bytes_of(rows: np.ndarray) -> memoryview:
    """Return the bytes of an array, without a copy where they are contiguous."""
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
