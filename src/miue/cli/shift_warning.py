"""A warning where new bags are not like those that a model was calibrated on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from miue.common.text import say

if TYPE_CHECKING:
    from miue.predictions.folder import Predictions

ADVICE = {
    False: "check scanner, stain, focus, features and the mix of cases, and calibrate again if any of these has "
    "changed",
    True: "weight the calibration for these bags: miue calibrate RUN STORE --like PREDICTIONS",
}


def warn_of_shift(predictions: Predictions) -> None:
    """Warn, on the standard error, where the decided bags together differ from the calibration bags."""
    from miue.calibration import applied_calibration

    shift = predictions.provenance.dataset_shift
    if shift:
        say(f"Warning: {shift}. {shift.meaning}: {ADVICE[shift.weighted]}.", err=True)
        calibration, table = applied_calibration(predictions.provenance), predictions.bags
        if calibration and (note := calibration.describe_missing_patients(table.patients, len(table))):
            say(f"Note: {note}", err=True)
