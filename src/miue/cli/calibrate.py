"""``miue calibrate``: decision rules with a stated guarantee."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.given_predictions import read_given
from miue.cli.held_out import calibration_bags
from miue.cli.options import MANY, OUTPUT, RULES, RUNNING, AsJson, Device, Quiet, Trust, separate
from miue.cli.sources import BAGS_HELP, Source, check_order, open_bags, say_left_out, takes_bags
from miue.common.errors import ConfigError, unknown_name
from miue.common.terminal import TextTable, say, say_json, show_table

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset
    from miue.calibration import Calibration, CalibrationBags
    from miue.model.model import Model

PARTS = ("scaling", "deferral", "sets", "ood")


FLAGS = "Flags of instances"
GUARANTEES = ("no-false-flag", "false-positives", "detection", "recall")


def _rule(metavar: str, help_text: str) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=RULES)


def _flags(metavar: str, help_text: str) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=FLAGS)


@takes_bags
def calibrate(
    source: Source,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|PREDICTIONS", help="Folder of a trained model, or predictions: a folder or a bag table."
        ),
    ],
    held_out: Annotated[
        Path | None,
        typer.Argument(metavar="BAGS", help="With RUN: labelled bags that were not trained on. " + BAGS_HELP),
    ] = None,
    part: Annotated[
        str | None,
        _rule(
            "NAME",
            "Part of the bags to calibrate on, or all; by default calibration, else validation, else the bags "
            "that training held out.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        _rule(
            "PREDICTIONS",
            "Predictions of new bags of another mix, without labels: weight the calibration bags to be like them. "
            "Leaves out deferral and out-of-distribution threshold.",
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
    max_error: Annotated[float, _rule("SHARE", "Largest share of wrong predictions among accepted bags.")] = 0.05,
    confidence: Annotated[float, _rule("SHARE", "Confidence that this error is not exceeded.")] = 0.9,
    measure: Annotated[
        str, _rule("NAME", "Uncertainty by which bags are deferred for review.")
    ] = "least_confidence",
    coverage: Annotated[float, _rule("SHARE", "Probability that a prediction set has the true label.")] = 0.9,
    prediction_set: Annotated[
        str, _rule("lac|aps", "Kind of prediction sets: lac (smallest) or aps (adaptive).")
    ] = "lac",
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Reach --coverage for each class.", rich_help_panel=RULES)
    ] = False,
    false_alarms: Annotated[float, _rule("SHARE", "Largest share of in-distribution bags called OOD.")] = 0.05,
    ood_score: Annotated[
        str | None,
        _rule(
            "NAME", "Score for that; by default combined_mean or knn_mean if available, else vacuity or similar."
        ),
    ] = None,
    ood_confidence: Annotated[
        float | None, _rule("SHARE", "Confidence in that share; by default it holds on average.")
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(GUARANTEES),
            help="Also flag instances, with this promise: no flag on a negative bag, few flags on a negative bag, "
            "a flag on a positive bag, or most positive instances flagged (needs instance labels).",
            rich_help_panel=FLAGS,
        ),
    ] = None,
    instance_level: Annotated[
        float, _flags("NUMBER", "Largest chance, number of flags of a negative bag, or share of misses.")
    ] = 0.1,
    instance_score: Annotated[
        str,
        _flags("NAME", "Score of instances, higher where more suspicious: a measure, a distance or probability."),
    ] = "probability",
    estimator: Annotated[
        str | None, _flags("residual|bag-of-one|attention", "With RUN: estimator of instances.")
    ] = None,
    negative_class: Annotated[
        str | None, _flags("NAME", "Class whose bags have negative instances only; by default the first.")
    ] = None,
    allowed_flags: Annotated[
        int, _flags("COUNT", "Of no-false-flag: flags of a negative bag that do not count.")
    ] = 0,
    flags_cap: Annotated[int, _flags("COUNT", "Of false-positives: the most that a bag counts.")] = 10,
    bags_of_patient: Annotated[
        str, _rule("one|all", "Bags of each patient to count, if patients are known: one drawn at random, or all.")
    ] = "one",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(PARTS), help=f"Rule to leave out. {MANY}", callback=separate, rich_help_panel=RULES
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="Random seed of the bags that choose deferral thresholds.", rich_help_panel=RUNNING
        ),
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file that --out names.", rich_help_panel=OUTPUT)
    ] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Make decision rules from held-out labelled bags.

    Fits four rules: a temperature for the probabilities or the evidence; a threshold above which bags are
    deferred for review, so that the error among accepted bags stays below --max-error at --confidence; prediction
    sets with --coverage; a threshold above which a bag is called out of distribution, at a rate of
    --false-alarms. With --instances a fifth, from which score on an instance is flagged: every instance of a
    negative bag is negative, so that bag labels are enough for a promise. If there are too few bags, says before
    predicting how many each rule needs. If no deferral threshold passes its tests, every bag will be deferred.

    With RUN and BAGS the rules are stored in the run's folder, and miue predict applies them. With PREDICTIONS
    they are written to --out, and miue decide applies them.

    Example: miue calibrate run store --max-error 0.05
    """
    from miue import calibration as parts
    from miue.common.files import refuse_existing

    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    left_out = set(without or ())
    for name in left_out - set(PARTS):
        raise unknown_name("rule", name, PARTS)
    goals = parts.Goals(
        scaling="scaling" not in left_out,
        deferral=None if "deferral" in left_out else parts.DeferralGoal(max_error, confidence, measure),
        prediction_sets=None
        if "sets" in left_out
        else parts.PredictionSetGoal(round(1 - coverage, 12), prediction_set, per_class),
        false_alarms=None if "ood" in left_out else parts.FalseAlarmGoal(false_alarms, ood_score, ood_confidence),
        instances=None
        if instances is None
        else parts.InstanceGoal(
            instances, instance_level, instance_score, negative_class, allowed_flags, flags_cap
        ),
    )
    fitted_goals, new_bags = goals, None
    if like is not None:
        fitted_goals, _ = goals.keep_weighted()
        new_bags = read_given(like, classes=source.classes)
        of_new = new_bags.provenance.model_copy(update={"bags": str(like)})
        new_bags = replace(new_bags, provenance=of_new)
    if held_out is not None:
        check_order(path, held_out)
        model, chosen, made_from = _opened(path, held_out, source, part, quiet, trust)
        parts.check_bags(
            chosen.ids,
            chosen.labels,
            chosen.is_ood,
            chosen.patients,
            fitted_goals,
            class_names=model.contract.class_names,
            bags_of_patient=bags_of_patient,
            seed=seed,
        )
        first = model.predict(chosen.subset([0]), estimator=estimator, device=device)
        parts.check_names(first.bags, fitted_goals, first.instances)
        predictions = model.predict(chosen, estimator=estimator, progress=not quiet, device=device)
        names, out = list(model.contract.class_names), out or path / "calibration.json"
    else:
        out = _check_predictions_alone(path, source, part, estimator, out)
        predictions, made_from = read_given(path, classes=source.classes), parts.CalibrationBags(path=str(path))
        names = list(source.classes or predictions.provenance.classes)
    made = parts.calibrate(
        predictions,
        scaling=goals.scaling,
        deferral=goals.deferral,
        prediction_sets=goals.prediction_sets,
        false_alarms=goals.false_alarms,
        instances=goals.instances,
        like=new_bags,
        class_names=names,
        bags_of_patient=bags_of_patient,
        seed=seed,
        made_from=made_from,
    )
    made.save(out)
    if as_json:
        say_json(made.model_dump(mode="json"))
    else:
        show_table(calibration_table(made))
    _say_notes(made, to_stderr=as_json)
    say(f"Written to {out}", err=as_json)


def _check_predictions_alone(
    path: Path, source: Source, part: str | None, estimator: str | None, out: Path | None
) -> Path:
    """Return the file to write the rules to, if the options are those that suit predictions.

    Raises:
        ConfigError: a run without bags, no --out, or options of bags.
    """
    is_run = (path / "config.json").exists()
    unsuited = [
        f"--{one.name.replace('_', '-')}"
        for one in fields(Source)
        if one.name != "classes" and getattr(source, one.name) != one.default
    ]
    unsuited += ["--part"] if part is not None else []
    unsuited += ["--estimator"] if estimator is not None else []
    if out is not None and not is_run and not unsuited:
        return out
    raise ConfigError(
        item="miue calibrate",
        wanted="RUN and BAGS, or PREDICTIONS with --out FILE and perhaps --classes",
        got="RUN without BAGS" if is_run else f"PREDICTIONS with {unsuited[0]}" if unsuited else "no --out",
        fix="see miue calibrate --help",
    )


def _say_notes(made: Calibration, *, to_stderr: bool) -> None:
    """Write what to know of the rules."""
    if made.made_from.left_out:
        say(
            f"Note: one bag of each of {made.made_from.patients:,} patients was drawn, as bags of one patient are "
            f"alike; {made.made_from.left_out:,} further bags were left out.",
            err=to_stderr,
        )
    if made.deferral is not None and made.deferral.refused:
        say(
            f"Warning: {made.deferral.refused}. Every bag will be deferred; raise --max-error, lower "
            "--confidence, add bags, or leave the deferral out: --without deferral.",
            err=True,
        )
    if made.instances is not None and made.instances.left_out:
        say(
            f"Note: {made.instances.left_out:,} positive bags without labels of all their instances, or without a "
            "positive one, were left out of the flags.",
            err=to_stderr,
        )
    shift = made.covariate_shift
    if shift is not None:
        what = f"Left out: {shift.rules_left_out}; every bag is accepted. " if shift.rules_left_out else ""
        rest = f"{shift.clipped:,} of the new bags exceed the clip. " if shift.clipped else ""
        rest += f"{shift.left_out:,} new bags were not counted. " if shift.left_out else ""
        rest += f"Not finite everywhere, so unused: {', '.join(shift.unused)}. " if shift.unused else ""
        if what or rest:
            say(f"Note: {what}{rest}".rstrip(), err=to_stderr)
    if made.scaling_left_out:
        say(f"Note: no temperature was fitted: {made.scaling_left_out}.", err=to_stderr)
    if made.made_from.caveat:
        say(f"Note: {made.made_from.caveat}.", err=to_stderr)


def calibration_table(calibration: Calibration) -> TextTable:
    """Return the parts of a calibration as rows: what was fitted, and what it promises."""

    table = TextTable("part", "fitted", "promise", title="Calibration")
    scaling, deferral = calibration.scaling, calibration.deferral
    sets, alarms = calibration.prediction_sets, calibration.false_alarms
    if scaling is not None:
        fitted = f"{scaling.kind}: T = {scaling.temperature:.4g}"
        changed = f"none; NLL of these bags {scaling.nll_before:.4f} before, {scaling.nll_after:.4f} after"
        table.add_row("scaling", fitted, "; ".join(filter(None, (changed, scaling.note))))
    if deferral is not None:
        table.add_row(
            "deferral",
            "defer all"
            if deferral.refused
            else "accept all"
            if deferral.threshold is None
            else f"accept where {deferral.measure} ≤ {deferral.threshold:.4g}",
            f"error among the accepted ≤ {deferral.max_error:g} at confidence {deferral.confidence:g}; "
            + (
                "no threshold passed"
                if deferral.refused
                else f"{deferral.errors} errors among {deferral.accepted} accepted of {deferral.bags} test bags"
            ),
        )
    if sets is not None:
        limits = sets.thresholds if sets.per_class else sets.thresholds[:1]
        table.add_row(
            "prediction sets",
            f"{sets.score} ≤ {', '.join(f'{t:.4g}' for t in limits)}",
            f"a set misses the label with chance ≤ {sets.error:g}, "
            + ("for each class" if sets.per_class else "over all bags"),
        )
    if alarms is not None:
        sure = "on average" if alarms.confidence is None else f"at confidence {alarms.confidence:g}"
        fitted = f"out of distribution where {alarms.score} > {alarms.threshold:.4g}"
        table.add_row("out of distribution", fitted, f"false alarms ≤ {alarms.rate:g} {sure}")
    flags = calibration.instances
    if flags is not None:
        table.add_row("instances", f"flagged where {flags.rule}", f"{flags.promise}. Assumed: {flags.assumption}")
    shift = calibration.covariate_shift
    table.caption = f"From {calibration.made_from.bags or '?'} bags. " + (
        "For bags like these" + ("." if flags is not None else ", and not for instances.")
        if shift is None
        else f"For bags like the {shift.bags:,} new ones, by weights: effective sample size "
        f"{shift.effective_sample_size:.1f}, clip {shift.clip:g}."
    )
    return table


def _opened(
    run: Path, path: Path, source: Source, part: str | None, quiet: bool, trust: bool
) -> tuple[Model, BagDataset, CalibrationBags]:
    """Return the model without the decisions of an older calibration, the calibration bags, and which they are."""
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
    bags, made_from = calibration_bags(run, opened.bags, part)
    if source.labels is None and not bags.labels.known.any():
        bags, said = with_labels_of_run(bags, run / "splits.csv", model.contract.class_names)
        say(said, err=True)
    return model, bags, made_from.model_copy(update={"path": str(path)})
