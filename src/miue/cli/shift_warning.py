"""A warning where new bags are not like those that a model was calibrated on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from miue.common.terminal import say

if TYPE_CHECKING:
    from miue.predictions.folder import Predictions

MEANING = (
    "What the calibration promises, it promises for bags like its own: look at scanner, stain, focus, features "
    "and the mix of cases, and calibrate again where these have changed."
)


def warn_of_shift(predictions: Predictions) -> None:
    """Warn, on the standard error, where the decided bags together differ from the calibration bags."""
    shift = predictions.provenance.dataset_shift
    if shift:
        say(f"Warning: {shift}. {MEANING}", err=True)
