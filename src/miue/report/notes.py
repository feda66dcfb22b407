"""Notes of a report: what is missing, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence

from miue.bags.ood_flags import OodFlags
from miue.calibration.calibration import applied_calibration
from miue.predictions.folder import Predictions


def notes_on_content(runs: Sequence[tuple[str, Predictions]]) -> list[str]:
    """Return what is missing in predictions, each with its title, and what follows from that."""
    notes = []
    if not any(one.bags.labels.known.any() for _, one in runs):
        notes.append(
            "No bag has a label, so nothing can be said about errors: class metrics, the reliability diagram and "
            "the risk–coverage curve are missing. To see them, pass the labels to 'miue predict' with --labels "
            "TABLE, or fill the column 'label' of the bag table."
        )
    decided = any(one.bags.decisions is not None and one.bags.decisions.flagged.any() for _, one in runs)
    notes += _notes_on_flags(OodFlags.concatenate([one.bags.is_ood for _, one in runs]), decided=decided)
    for title, predictions in runs:
        shift = predictions.provenance.dataset_shift
        if shift:
            calibration = applied_calibration(predictions.provenance)
            patients = predictions.bags.patients
            missing = calibration.describe_missing_patients(patients, len(predictions.bags)) if calibration else ""
            notes.append(" ".join(filter(None, (f"{title}: {shift}. {shift.meaning}.", missing))))
        table = predictions.instances
        if table is None:
            notes.append(f"{title} has no predictions of instances.")
        elif not any(part.labels.known.any() for part in table.known_parts()):
            notes.append(f"{title} has no instance labels, so errors of instances are unknown.")
    return notes


def _notes_on_flags(flags: OodFlags, *, decided: bool) -> list[str]:
    """Return what follows from what is known of bags being out of distribution, of which some may be called so."""
    missing = "so OOD detection cannot be measured"
    if not flags.known.any():
        return [
            "For no bag is it known whether it is out of distribution (column 'is_ood': true, false, or empty "
            f"if unknown), {missing}."
            + (" The decision 'out of distribution' is made by the calibration." if decided else "")
        ]
    if not flags.out_of_distribution.any():
        return [f"No bag is known to be out of distribution (column 'is_ood'), {missing}."]
    if not flags.in_distribution.any():
        return [f"No bag is known to be in distribution (false in the column 'is_ood'), {missing}."]
    return []
