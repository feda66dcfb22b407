"""``miue decide``: the rules of a calibration, applied to predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.given_predictions import read_given
from miue.cli.options import AsJson, ClassNames, GivenPredictions, Instances, Out, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs
from miue.cli.shift_warning import warn_of_shift
from miue.common.folder_kinds import PREDICTIONS
from miue.common.outputs import refuse_existing
from miue.common.text import is_or_are, plural, say, say_json


@keeps_inputs
def decide(
    predictions: GivenPredictions,
    calibration: Annotated[
        Path, typer.Option(metavar="FILE|RUN", help="File that miue calibrate wrote, or a calibrated run.")
    ],
    out: Out,
    instances: Instances = None,
    classes: ClassNames = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Apply decision rules to predictions.

    The decision on a bag is a class, "deferred" or "out of distribution", with a reason. Writes the predictions
    again with the columns decision, reason, prediction_set and calibrated probabilities. miue calibrate fits the
    rules. miue predict applies those of a calibrated run by itself, without this command.

    Example: miue decide theirs.csv --calibration calibration.json --out decided
    """
    from miue.bags.classes import numbered_classes
    from miue.calibration import Calibration
    from miue.calibration import decide as decide_on
    from miue.predictions.folder import read_predictions

    if predictions.is_file() and not classes:
        names = Calibration.load(calibration).class_names  # by which the table may have its labels
        classes = None if names == numbered_classes(len(names)) else list(names)
    given = read_given(predictions, instances, classes)
    refuse_existing(out, PREDICTIONS, overwrite=overwrite)
    rules = Calibration.load(calibration)
    decided = decide_on(given, rules)
    decided.save(out, overwrite=overwrite, progress=not quiet)
    decisions = decided.bags.decisions
    assert decisions is not None
    counts = {
        "bags": len(decided.bags),
        "accepted": int(decisions.accepted.sum()),
        "deferred": int(decisions.deferred.sum()),
        "out_of_distribution": int(decisions.flagged.sum()),
    }
    if rules.prediction_sets is not None:
        counts["empty_sets"] = int(decisions.empty_sets.sum())
    written = None if rules.instances is None else read_predictions(out).instances
    if written is not None:
        counts["flagged_instances"] = sum((written.flagged_by_bag() or {}).values())
    if as_json:
        say_json({**counts, "dataset_shift": decided.provenance.to_json().get("dataset_shift"), "out": str(out)})
    else:
        accepted = f"{counts['accepted']:,} accepted, {counts['deferred']:,} deferred"
        if rules.deferral is None:
            accepted = "none deferred, for which the calibration has no rule"
        flagged = f"{counts['out_of_distribution']:,} called out of distribution"
        if rules.false_alarms is None:
            flagged = "none called out of distribution, for which the calibration has no rule"
        if rules.deferral is None and rules.false_alarms is None:
            accepted, flagged = "no rule of the calibration defers bags", "nor calls them out of distribution"
        if counts.get("empty_sets"):
            empty = counts["empty_sets"]
            flagged += f"; {plural(empty, 'prediction set')} {is_or_are(empty)} empty"
        flags = "" if rules.instances is None else "; there are no instances to flag"
        if written is not None:
            flags = f"; {counts['flagged_instances']:,} of {plural(len(written), 'instance')} flagged"
        say(f"{plural(counts['bags'], 'bag')}: {accepted}, {flagged}{flags}. Written to {out}")
    warn_of_shift(decided)
