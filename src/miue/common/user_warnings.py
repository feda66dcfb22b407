"""Warnings that point to the line of the user's program which called miue."""

from __future__ import annotations

import sys
import warnings

PASSED_OVER = {__name__.partition(".")[0], "contextlib", "lightning"}


def warn_user(message: str) -> None:
    """Warn at the line outside this package and Lightning from which it was called, however deep the call is.

    Python shows the same warning once for each such line.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
