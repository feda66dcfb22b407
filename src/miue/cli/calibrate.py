"""``miue calibrate`` and ``miue decide``: decision rules with a stated guarantee, and decisions by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import calibration_bags, check_order, label_as_trained, open_bags_of, say_left_out
from miue.cli.flags import takes_settings
from miue.cli.options import BAGS_HELP, AsJson, GivenPredictions, Out, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs
from miue.cli.predictions import labeled_by, read_given, warn_of_shift
from miue.common.errors import ConfigError, first_few, one_of_two
from miue.common.folder_kinds import PREDICTIONS
from miue.common.label_folders import label_folders, of_label
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, RULES, is_or_are, plural, say, say_json

OF_PREDICTIONS = {"classes", "labels", "id_column", "label_column"}
"""What of the settings of bags is said of predictions, too."""

if TYPE_CHECKING:
    from miue.bags import BagDataset
    from miue.calibration import Calibration, Goals
    from miue.predictions import Predictions
    from miue.settings import CalibrateSettings, LoadSettings, RunRuleSettings, TableSettings


@takes_settings(
    load="miue.settings:LoadSettings",
    of_run="miue.settings:RunRuleSettings",
    rules="miue.settings:CalibrateSettings",
)
@keeps_inputs
def calibrate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|PREDICTIONS", help="Folder of a trained model, or predictions: a folder or a bag table."
        ),
    ],
    load: LoadSettings,
    of_run: RunRuleSettings,
    rules: CalibrateSettings,
    held_out: Annotated[
        Path | None,
        typer.Argument(metavar="BAGS", help="With RUN: labeled bags that were not trained on. " + BAGS_HELP),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="PREDICTIONS",
            help="Predictions of new bags of another mix, without labels: weight the calibration bags to be like "
            "them. Leaves out deferral and out-of-distribution threshold.",
            rich_help_panel=RULES,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write; by default calibration.json in RUN, which miue predict applies.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit decision rules to held-out labeled bags.

    Fits four rules: a temperature for the probabilities or the evidence; a threshold above which bags are
    deferred for review, so that the error among accepted bags stays below --max-error at --confidence; prediction
    sets with --coverage; and a threshold above which a bag is called out of distribution, with false alarms at a
    rate of at most --false-alarms. --instances adds a fifth rule, the score at which an instance is flagged; bag
    labels suffice for its guarantee, since every instance of a negative bag is negative. If there are too few
    bags, the command says how many each rule needs before it predicts any. If no deferral threshold passes its
    tests, every bag will be deferred.

    With RUN and BAGS the rules are stored in the run's folder, and miue predict applies them. With PREDICTIONS
    they are written to --out, and miue decide applies them. A run of several labels gets rules for each.

    Example: miue calibrate run store --max-error 0.05
    """
    from miue.calibration import CalibrationBags, Goals
    from miue.calibration import calibrate as calibrate_on
    from miue.common.outputs import locked

    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    goals = Goals.of(rules)
    new_bags = None if like is None else _read_new_bags(like, load)
    several, made = label_folders(path), {}
    if several and (out is not None or like is not None):
        fix = f"calibrate each: {first_few(map(str, several.values()))}"
        raise one_of_two("a run of several labels with --out or --like", fix=fix)
    if held_out is None:
        _check_predictions_alone(path, load, of_run, out)
        assert out is not None
        assert load.labels is None or isinstance(load.labels, Path)
        with locked(out):  # a place that cannot be written is refused before the work
            made[""] = calibrate_on(
                labeled_by(read_given(path, classes=load.classes), load.labels, load.named_columns),
                **vars(goals),
                like=new_bags,
                class_names=load.classes,
                made_from=CalibrationBags(path=str(path)),
                settings={"bags_of_patient": rules.bags_of_patient, "seed": rules.seed},
            )
            made[""].save(out)
    else:
        check_order(path, held_out)
        with locked(path if several else out or path / "calibration.json"):
            opened = _open_held_out(path, held_out, load, tuple(several), progress=not quiet)
            for label, run in (several or {"": path}).items():
                options = (load, of_run, rules, goals, new_bags)
                with of_label(label):
                    made[label] = _calibrate_run(run, held_out, opened, label, *options, progress=not quiet)
                made[label].save(out or run / "calibration.json")
    if as_json:
        every = {label: one.model_dump(mode="json") for label, one in made.items()}
        say_json({"labels": every} if several else every[""])
    for label, one in made.items():
        if not as_json:
            one.tables()[0].show(f"Calibration {label}".strip())
        for note in one.notes():
            say(f"Note: {note}", err=as_json)
        if one.warning:
            say(f"Warning: {one.warning}", err=True)
        say(f"Written to {out or several.get(label, path) / 'calibration.json'}", err=as_json)


def _read_new_bags(path: Path, load: LoadSettings) -> Predictions:
    """Return the predictions of new bags that --like names, which remember where they are from."""
    predictions = read_given(path, classes=load.classes)
    return replace(predictions, provenance=predictions.provenance.model_copy(update={"bags": str(path)}))


def _open_held_out(
    path: Path, held_out: Path, load: LoadSettings, labels: tuple[str, ...], *, progress: bool
) -> BagDataset:
    """Return the bags to choose those from that the run at ``path`` is calibrated on."""
    from miue.model import read_config

    contract = read_config(next(iter(label_folders(path).values()), path)).contract
    shape = contract.instance_shape
    opened = open_bags_of(contract, held_out, load, progress=progress, labels=labels, instance_shape=shape)
    say_left_out(opened)
    return opened.bags


def _calibrate_run(
    run: Path,
    held_out: Path,
    every: BagDataset,
    label: str,
    load: LoadSettings,
    of_run: RunRuleSettings,
    rules: CalibrateSettings,
    goals: Goals,
    new_bags: Predictions | None,
    *,
    progress: bool,
) -> Calibration:
    """Return the calibration of the model in ``run``; of one of several labels, by the bags where it is known."""
    from miue.model import Model
    from miue.model.calibrate import calibrate_model

    model = Model.load(run, trust=of_run.trust, calibrated=False)
    bags, made_from = calibration_bags(run, every.of_label(label) if label else every, of_run.part)
    if of_run.part is None and len(bags) < len(every) and not any(every.splits):
        count = f"{len(bags):,} of {plural(len(every), 'bag')}"
        listed = str(run / "splits.csv")
        say(f"calibration bags: {count}, {made_from.split} ({listed!r}); pass others alone", err=True)
    bags = label_as_trained(bags, load, run, model.contract.class_names)
    return calibrate_model(
        model,
        bags.subset(bags.labels.known.nonzero()[0]) if label else bags,
        goals,
        like=new_bags,
        estimator=of_run.estimator,
        bags_of_patient=rules.bags_of_patient,
        seed=rules.seed,
        made_from=made_from.model_copy(update={"path": str(held_out)}),
        progress=progress,
        device=of_run.device,
    )


def _check_predictions_alone(path: Path, load: LoadSettings, of_run: RunRuleSettings, out: Path | None) -> None:
    """Raise unless there is a file to write the rules to, and the options are those that suit predictions.

    Raises:
        ConfigError: a run without bags, no --out, or options of bags.
    """
    is_run = (path / "config.json").exists()
    unsuited = [*(load.given().keys() - OF_PREDICTIONS), *(of_run.given().keys() & {"part", "estimator"})]
    if out is not None and not is_run and not unsuited:
        return
    raise ConfigError(
        item="miue calibrate",
        wanted="RUN and BAGS, or PREDICTIONS with --out FILE and perhaps --labels or --classes",
        got="RUN without BAGS" if is_run else f"PREDICTIONS with {unsuited[0]}=…" if unsuited else "no --out",
        fix="see miue calibrate --help",
    )


@takes_settings(table="miue.settings:TableSettings")
@keeps_inputs
def decide(
    predictions: GivenPredictions,
    calibration: Annotated[
        Path, typer.Option(metavar="FILE|RUN", help="File that miue calibrate wrote, or a calibrated run.")
    ],
    out: Out,
    table: TableSettings,
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
    from miue.predictions import read_predictions

    refuse_existing(out, PREDICTIONS, overwrite=overwrite)
    rules, classes = Calibration.load(calibration), table.classes
    if predictions.is_file() and not classes and rules.class_names != numbered_classes(len(rules.class_names)):
        classes = rules.class_names  # by which the table may have its labels
    given = read_given(predictions, table.instances, classes)
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
