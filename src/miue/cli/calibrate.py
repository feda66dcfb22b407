"""``miue calibrate``: decision rules with a stated guarantee."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.given_predictions import read_given
from miue.cli.held_out import calibration_bags
from miue.cli.option_groups import takes_options
from miue.cli.options import OUTPUT, RULES, RUNNING, AsJson, Device, OverwriteFile, Quiet, Trust
from miue.cli.outputs import keeps_inputs
from miue.cli.rules import RuleOptions, flag_option
from miue.cli.sources import BAGS_HELP, Source, check_order, label_as_trained, open_bags_for
from miue.common.errors import ConfigError
from miue.common.outputs import refuse_existing
from miue.common.text import plural, say, say_json

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset
    from miue.calibration import CalibrationBags
    from miue.model.model import Model
    from miue.predictions.folder import Predictions


@keeps_inputs
@takes_options
def calibrate(
    source: Source,
    rules: RuleOptions,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|PREDICTIONS", help="Folder of a trained model, or predictions: a folder or a bag table."
        ),
    ],
    held_out: Annotated[
        Path | None,
        typer.Argument(metavar="BAGS", help="With RUN: labeled bags that were not trained on. " + BAGS_HELP),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Part of the bags to calibrate on, or all; by default calibration, else validation, else the "
            "bags that training held out.",
            rich_help_panel=RULES,
        ),
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
    estimator: Annotated[
        str | None, flag_option("residual|bag-of-one|attention", "With RUN: estimator of instances.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write; by default calibration.json in RUN, which miue predict applies.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: OverwriteFile = False,
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="Random seed of the bags that choose deferral thresholds.", rich_help_panel=RUNNING
        ),
    ] = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    trust: Trust = False,
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
    they are written to --out, and miue decide applies them.

    Example: miue calibrate run store --max-error 0.05
    """
    from miue.calibration import CalibrationBags, describe
    from miue.calibration import calibrate as calibrate_on
    from miue.common.locks import locked
    from miue.model.calibrate import calibrate_model
    from miue.model.model import Model

    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    goals = rules.goals()
    new_bags = None if like is None else _read_new_bags(like, source)
    if held_out is None:
        model, out = None, _check_predictions_alone(path, source, part, estimator, out)
    else:
        check_order(path, held_out)
        model, out = Model.load(path, trust=trust, calibrated=False), out or path / "calibration.json"
    with locked(out):  # a place that cannot be written is refused before the work
        if model is None:
            made = calibrate_on(
                read_given(path, classes=source.classes),
                **vars(goals),
                like=new_bags,
                class_names=source.classes or (),
                bags_of_patient=rules.bags_of_patient,
                seed=seed,
                made_from=CalibrationBags(path=str(path)),
            )
        else:
            assert held_out is not None
            bags, made_from = _open_bags(model, path, held_out, source, part, quiet)
            made = calibrate_model(
                model,
                bags,
                goals,
                like=new_bags,
                estimator=estimator,
                bags_of_patient=rules.bags_of_patient,
                seed=seed,
                made_from=made_from,
                progress=not quiet,
                device=device,
            )
        made.save(out)
    if as_json:
        say_json(made.model_dump(mode="json"))
    else:
        made.tables()[0].show("Calibration")
    for note in describe.notes(made):
        say(f"Note: {note}", err=as_json)
    if warning := describe.warning(made):
        say(f"Warning: {warning}", err=True)
    say(f"Written to {out}", err=as_json)


def _read_new_bags(path: Path, source: Source) -> Predictions:
    """Return the predictions of new bags that --like names, which remember where they are from."""
    predictions = read_given(path, classes=source.classes)
    return replace(predictions, provenance=predictions.provenance.model_copy(update={"bags": str(path)}))


def _open_bags(
    model: Model, run: Path, path: Path, source: Source, part: str | None, quiet: bool
) -> tuple[BagDataset, CalibrationBags]:
    """Return the bags to calibrate the model of ``run`` on, and which these are."""
    opened = open_bags_for(model, path, source, progress=not quiet)
    bags, made_from = calibration_bags(run, opened, part)
    if part is None and len(bags) < len(opened) and not any(opened.splits):
        count = f"{len(bags):,} of {plural(len(opened), 'bag')}"
        listed = str(run / "splits.csv")
        say(f"calibration bags: {count}, {made_from.split} ({listed!r}); pass others alone", err=True)
    bags = label_as_trained(bags, source, run, model.contract.class_names)
    return bags, made_from.model_copy(update={"path": str(path)})


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
