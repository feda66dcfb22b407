"""Numbers that float32 and float64 hold exactly, or at all."""

from __future__ import annotations

import numpy as np

from miue.common.errors import DataError
from miue.common.text import plural

MOST_EXACT = 2**53  # up to which float64 holds every whole number
LARGEST_COORD = MOST_EXACT  # beyond it a float64 does not separate one pixel from the next


def in_single(array: np.ndarray, item: str) -> np.ndarray:
    """Return numbers as float32, in which features are computed with; NaN and infinity stay what they are.

    Raises:
        DataError: a finite number that float32 cannot hold.

    >>> in_single(np.array([0.5, np.inf]), "bag 'a'").dtype
    dtype('float32')
    """
    with np.errstate(over="ignore"):
        single: np.ndarray = array.astype(np.float32, copy=False)
    if single.dtype.itemsize < array.dtype.itemsize and array.dtype.kind == "f":
        beyond = np.isinf(single) & np.isfinite(array)
        if beyond.any():
            raise DataError(
                item=item,
                wanted=f"features that float32 can hold, of at most {np.finfo(np.float32).max:.2g}",
                got=f"{plural(int(beyond.sum()), 'number')} beyond it, first {array[beyond][0]:.3g}",
                fix="scale the features, or leave out what is no measurement",
            )
    return single
