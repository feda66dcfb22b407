"""``miue calibrate`` and ``miue decide``: decisions with a stated guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.given import read_given
from miue.cli.held_out import calibration_bags
from miue.cli.options import Trust
from miue.cli.shift_warning import warn_of_shift
from miue.cli.sources import BAGS_HELP, Source, open_bags, say_left_out, takes_bags
from miue.common.errors import ConfigError, unknown_name
from miue.common.terminal import TextTable, say, show_table

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset
    from miue.calibration import Calibration, CalibrationBags
    from miue.model.model import Model

PARTS = ("scaling", "referral", "sets", "ood")


@takes_bags
def calibrate(
    source: Source,
    run: Annotated[Path | None, typer.Argument(help="Folder of a trained model.")] = None,
    held_out: Annotated[
        Path | None,
        typer.Argument(metavar="bags", help=BAGS_HELP + " They hold labelled bags kept from training."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split to calibrate on, or all; else calibration, else validation, else what training held out."
        ),
    ] = None,
    bags: Annotated[Path | None, typer.Option(help="Bag table of any tool, instead of RUN and BAGS.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; else calibration.json in RUN, which predict then applies.")
    ] = None,
    max_error: Annotated[float, typer.Option(help="Error among the bags that are kept, at most.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Confidence that this error is not exceeded.")] = 0.9,
    measure: Annotated[
        str, typer.Option(help="Uncertainty that says which bags are referred.")
    ] = "least_confidence",
    set_error: Annotated[float, typer.Option(help="Chance that a label set misses the label, at most.")] = 0.1,
    set_score: Annotated[str, typer.Option(help="lac (smallest sets) or aps (sets that adapt).")] = "lac",
    per_class: Annotated[bool, typer.Option("--per-class", help="Hold that for each class by itself.")] = False,
    false_alarms: Annotated[
        float, typer.Option(help="Chance that an in-distribution bag is called out of distribution, at most.")
    ] = 0.05,
    ood_score: Annotated[
        str | None, typer.Option(help="Score for that; else knn_mean where there is one, else vacuity or so.")
    ] = None,
    ood_confidence: Annotated[
        float | None, typer.Option(help="Confidence of that rate; else it is kept on average.")
    ] = None,
    bags_of_patient: Annotated[
        str,
        typer.Option(
            help="one (drawn at random) or all: how many bags of a patient are counted, where patients are known."
        ),
    ] = "one",
    without: Annotated[
        list[str] | None, typer.Option(help=f"Part to leave out: {', '.join(PARTS)}; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bags that choose the referral thresholds tried.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file that --out names; that of RUN always is.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    trust: Trust = False,
) -> None:
    """Calibrate a model, or the predictions of any tool, on labelled bags that took no part in training.

    Fits four parts: a temperature for the probabilities or the evidence; a threshold from which on bags are
    referred to a human, so that the error among the kept stays below --max-error at --confidence; label
    sets that hold the label but for --set-error; a threshold above which a bag is called out of
    distribution, at a rate of --false-alarms. Where there are too few bags, says before predicting how many
    each part needs. Where no referral threshold passes its tests, every bag will be referred.

    With RUN and BAGS the calibration is kept in the run's folder and applied by miue predict; with --bags
    FILE --out FILE it is applied by miue decide. What is promised and what is not: docs/decisions.md.
    """
    from miue import calibration as parts
    from miue.common.files import refuse_existing
    from miue.predictions.folder import read_tables

    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    left_out = set(without or ())
    for part in left_out - set(PARTS):
        raise unknown_name("part", part, PARTS)
    goals = parts.Goals(
        scaling="scaling" not in left_out,
        referral=None if "referral" in left_out else parts.ReferralGoal(max_error, confidence, measure),
        label_sets=None if "sets" in left_out else parts.LabelSetGoal(set_error, set_score, per_class),
        false_alarms=None if "ood" in left_out else parts.FalseAlarmGoal(false_alarms, ood_score, ood_confidence),
    )
    table_alone = source == Source(classes=source.classes) and split is None
    if bags is not None and out is not None and run is None and held_out is None and table_alone:
        predictions, made_from = read_tables(bags), parts.CalibrationBags(path=str(bags))
        names = [name.strip() for name in source.classes.split(",")] if source.classes else []
    elif run is not None and held_out is not None and bags is None:
        model, chosen, made_from = _opened(run, held_out, source, split, quiet, trust)
        parts.check_bags(
            chosen.ids,
            chosen.labels,
            chosen.is_ood,
            chosen.patients,
            goals,
            class_names=model.contract.class_names,
            bags_of_patient=bags_of_patient,
            seed=seed,
        )
        parts.check_names(model.predict(chosen.subset([0]), device=device).bags, goals)
        predictions = model.predict(chosen, progress=not quiet, device=device)
        names, out = list(model.contract.class_names), out or run / "calibration.json"
    else:
        raise ConfigError(
            item="miue calibrate",
            wanted="RUN and BAGS, or --bags FILE with --out FILE and perhaps --classes",
            got="neither, or a mixture",
            fix="see miue calibrate --help",
        )
    made = parts.calibrate(
        predictions,
        scaling=goals.scaling,
        referral=goals.referral,
        label_sets=goals.label_sets,
        false_alarms=goals.false_alarms,
        class_names=names,
        bags_of_patient=bags_of_patient,
        seed=seed,
        made_from=made_from,
    )
    made.save(out)
    show_table(calibration_table(made))
    if made.made_from.left_out:
        say(
            f"Note: one bag of each of {made.made_from.patients:,} patients was drawn, as bags of one patient are "
            f"alike; {made.made_from.left_out:,} further bags were left out."
        )
    if made.referral is not None and made.referral.refused:
        say(
            f"Warning: {made.referral.refused}. Every bag will be referred; raise --max-error, lower "
            "--confidence, add bags, or leave the referral out: --without referral.",
            err=True,
        )
    if made.scaling_left_out:
        say(f"Note: no temperature was fitted: {made.scaling_left_out}.")
    if made.made_from.caveat:
        say(f"Note: {made.made_from.caveat}.")
    say(f"Written to {out}")


def decide(
    calibration: Annotated[Path, typer.Argument(help="File that miue calibrate wrote, or a calibrated run.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    predictions: Annotated[Path | None, typer.Argument(help="Folder of predictions.")] = None,
    bags: Annotated[Path | None, typer.Option(help="Bag table of any tool, instead of a folder.")] = None,
    instances: Annotated[Path | None, typer.Option(help="Instance table that goes with --bags.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what --out holds.")] = False,
) -> None:
    """Decide on predictions by a calibration: a class, refer, or out of distribution, with the reason.

    Writes the predictions again with the columns decision, reason, label_set and calibrated probabilities.
    """
    from miue.calibration import Calibration
    from miue.calibration import decide as decide_on
    from miue.common.files import refuse_existing

    given = read_given("miue decide", predictions, bags, instances)
    refuse_existing(out, overwrite=overwrite)
    made = Calibration.load(calibration)
    decided = decide_on(given, made)
    decided.save(out, overwrite=overwrite)
    decisions = decided.bags.decisions
    assert decisions is not None
    say(
        f"{len(decided.bags):,} bags: {int(decisions.kept.sum()):,} kept, {int(decisions.referred.sum()):,} "
        f"referred, {int(decisions.flagged.sum()):,} called out of distribution. Written to {out}"
    )
    warn_of_shift(decided)


def calibration_table(calibration: Calibration) -> TextTable:
    """Return the parts of a calibration as rows: what was fitted, and what it promises."""

    table = TextTable("part", "fitted", "promise", title="Calibration")
    scaling, referral = calibration.scaling, calibration.referral
    sets, alarms = calibration.label_sets, calibration.false_alarms
    if scaling is not None:
        fitted = f"{scaling.kind}: T = {scaling.temperature:.4g}"
        changed = f"none; NLL of these bags {scaling.nll_before:.4f} before, {scaling.nll_after:.4f} after"
        table.add_row("scaling", fitted, "; ".join(filter(None, (changed, scaling.note))))
    if referral is not None:
        table.add_row(
            "referral",
            "refer all"
            if referral.refused
            else "keep all"
            if referral.threshold is None
            else f"keep where {referral.measure} ≤ {referral.threshold:.4g}",
            f"error among the kept ≤ {referral.max_error:g} at confidence {referral.confidence:g}; "
            + (
                "no threshold passed"
                if referral.refused
                else f"{referral.errors} errors among {referral.kept} kept of {referral.bags} test bags"
            ),
        )
    if sets is not None:
        limits = sets.thresholds if sets.per_class else sets.thresholds[:1]
        table.add_row(
            "label sets",
            f"{sets.score} ≤ {', '.join(f'{t:.4g}' for t in limits)}",
            f"a set misses the label with chance ≤ {sets.error:g}, "
            + ("for each class" if sets.per_class else "over all bags"),
        )
    if alarms is not None:
        sure = "on average" if alarms.confidence is None else f"at confidence {alarms.confidence:g}"
        fitted = f"out of distribution where {alarms.score} > {alarms.threshold:.4g}"
        table.add_row("out of distribution", fitted, f"false alarms ≤ {alarms.rate:g} {sure}")
    table.caption = f"From {calibration.made_from.bags or '?'} bags. For bags like these, and not for instances."
    return table


def _opened(
    run: Path, path: Path, source: Source, split: str | None, quiet: bool, trust: bool
) -> tuple[Model, BagDataset, CalibrationBags]:
    """Return the model without the decisions of an older calibration, the calibration bags, and which they are."""
    from dataclasses import replace

    from miue.io.labels.run_labels import with_labels_of_run
    from miue.model.model import Model

    model = replace(Model.load(run, trust=trust), calibration=None)
    opened = open_bags(
        path,
        source.of_model(model.contract.class_names),
        progress=not quiet,
        instance_shape=model.contract.instance_shape,
    )
    say_left_out(opened)
    bags, made_from = calibration_bags(run, opened.bags, split)
    if source.labels is None and not bags.labels.known.any():
        bags, said = with_labels_of_run(bags, run / "splits.csv", model.contract.class_names)
        say(said, err=True)
    return model, bags, made_from.model_copy(update={"path": str(path)})
