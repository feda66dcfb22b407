"""``miue calibrate`` and ``miue decide``: decisions with a stated guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from miue.errors import ConfigError, DataError, unknown_name

if TYPE_CHECKING:
    from rich.table import Table

    from miue.bags import BagDataset
    from miue.calibration import Calibration

PARTS = ("scaling", "referral", "sets", "ood")
STOPPED_EARLY = (
    "these bags also chose the epoch that training kept, so that the guarantees hold nearly, not exactly; "
    "a split of their own, named calibration, mends this"
)


def calibrate(
    run: Annotated[Path | None, typer.Argument(help="Folder of a trained model.")] = None,
    store: Annotated[Path | None, typer.Argument(help="Bag store with bags kept from training.")] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split to calibrate on; else calibration where there is one, else validation."),
    ] = None,
    bags: Annotated[Path | None, typer.Option(help="Bag table of any tool, instead of RUN and STORE.")] = None,
    class_names: Annotated[
        str | None, typer.Option("--classes", help="Class names of --bags, in order, separated by commas.")
    ] = None,
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
    without: Annotated[
        list[str] | None, typer.Option(help=f"Part to leave out: {', '.join(PARTS)}; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bags that choose the referral thresholds tried.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Calibrate a model, or the predictions of any tool, on labelled bags that took no part in training.

    Fits four parts: a temperature for the probabilities or the evidence; a threshold from which on bags are
    referred to a human, so that the error among the kept stays below --max-error at --confidence; label
    sets that hold the label but for --set-error; a threshold above which a bag is called out of
    distribution, at a rate of --false-alarms. Asks for more bags where there are too few.

    With RUN and STORE the calibration is kept in the run's folder and applied by miue predict; with --bags
    FILE --out FILE it is applied by miue decide. What is promised and what is not: docs/decisions.md.
    """
    from miue import calibration as parts
    from miue.predictions import read_tables

    left_out = set(without or ())
    for part in left_out - set(PARTS):
        raise unknown_name("part", part, PARTS)
    about: dict[str, Any]
    if bags is not None and out is not None and run is None and store is None:
        predictions, about = read_tables(bags), {"table": str(bags)}
        names = [] if class_names is None else [name.strip() for name in class_names.split(",")]
    elif run is not None and store is not None and bags is None and class_names is None:
        predictions, about = _predicted(run, store, split, "cuda" if device == "gpu" else device, quiet)
        names, out = list(predictions.about["classes"]), out or run / "calibration.json"
    else:
        raise ConfigError(
            item="miue calibrate",
            wanted="RUN and STORE, or --bags FILE with --out FILE and perhaps --classes",
            got="neither, or a mixture",
            fix="see miue calibrate --help",
        )
    made = parts.calibrate(
        predictions,
        scaling="scaling" not in left_out,
        referral=None if "referral" in left_out else parts.ReferralGoal(max_error, confidence, measure),
        label_sets=None if "sets" in left_out else parts.LabelSetGoal(set_error, set_score, per_class),
        false_alarms=None if "ood" in left_out else parts.FalseAlarmGoal(false_alarms, ood_score, ood_confidence),
        class_names=names,
        seed=seed,
        about=about,
    )
    made.save(out)
    Console().print(calibration_table(made))
    if "caveat" in about:
        typer.echo(f"Note: {about['caveat']}.")
    typer.echo(f"Written to {out}")


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
    from miue.files import refuse_existing
    from miue.predictions import read_predictions, read_tables

    if (predictions is None) == (bags is None) or (instances is not None and bags is None):
        raise ConfigError(
            item="miue decide",
            wanted="a folder of predictions, or --bags FILE with or without --instances FILE",
            got="both or neither",
            fix="give one of the two",
        )
    refuse_existing(out, overwrite=overwrite)
    made = Calibration.load(calibration)
    if predictions is not None:
        given = read_predictions(predictions)
    else:
        assert bags is not None
        given = read_tables(bags, instances)
    decided = decide_on(given, made)
    decided.save(out, overwrite=overwrite)
    decisions = decided.bags.decisions
    assert decisions is not None
    typer.echo(
        f"{len(decided.bags):,} bags: {int(decisions.kept.sum()):,} kept, {int(decisions.referred.sum()):,} "
        f"referred, {int(decisions.flagged.sum()):,} called out of distribution. Written to {out}"
    )


def calibration_table(calibration: Calibration) -> Table:
    """Return the parts of a calibration as rows: what was fitted, and what it promises."""
    from rich.table import Table

    table = Table("part", "fitted", "promise", title="Calibration", title_justify="left", caption_justify="left")
    scaling, referral = calibration.scaling, calibration.referral
    sets, alarms = calibration.label_sets, calibration.false_alarms
    if scaling is not None:
        fitted = f"{scaling.kind}: T = {scaling.temperature:.4g}"
        changed = f"none; NLL of these bags {scaling.nll_before:.4f} before, {scaling.nll_after:.4f} after"
        table.add_row("scaling", fitted, "; ".join(filter(None, (changed, scaling.note))))
    if referral is not None:
        table.add_row(
            "referral",
            "keep all"
            if referral.threshold is None
            else f"keep where {referral.measure} ≤ {referral.threshold:.4g}",
            f"error among the kept ≤ {referral.max_error:g} at confidence {referral.confidence:g}; "
            f"{referral.errors} errors among {referral.kept} kept of {referral.bags} test bags",
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
    table.caption = f"From {calibration.about.get('bags', '?')} bags. For bags like these, and not for instances."
    return table


def _predicted(run: Path, store: Path, split: str | None, device: str, quiet: bool) -> tuple[Any, dict[str, Any]]:
    """Return predictions of the calibration bags, without the decisions of an older calibration."""
    from dataclasses import replace

    from miue.data.store import read_store
    from miue.model import Model

    model, all_bags = replace(Model.load(run), calibration=None), read_store(store)
    _check_classes(model.contract.class_names, all_bags)
    bags, about = calibration_bags(run, all_bags, split)
    predictions = model.predict(bags, progress=not quiet, device=device)
    return predictions, {"store": str(store), **about}


def calibration_bags(run: Path, bags: BagDataset, split: str | None) -> tuple[BagDataset, dict[str, Any]]:
    """Return the bags to calibrate on, and what there is to say of them.

    Without ``split``: the split calibration, else validation, else the bags that training held out.

    Raises:
        DataError: bags that the model was trained on, or none that are known not to be.
    """
    from miue.files import read_json
    from miue.plan import fingerprint

    marks = read_json(run / "run.json", what="run") if (run / "run.json").exists() else {}
    training, held_out = _training_sets(marks, bags)
    if split is None and held_out is not None and "validation" not in bags.splits:
        chosen, name = held_out, "held out by training"
    else:
        name = split or ("calibration" if "calibration" in bags.splits else "validation")
        chosen = bags.split(name)
    seen = set(chosen.ids) & set(() if training is None else training.ids)
    if name == "train" or seen or fingerprint(chosen) == marks.get("training_bags"):
        raise DataError(
            item=f"split {name!r}",
            wanted="bags that took no part in training",
            got=f"{len(seen) or len(chosen)} bags that the model was trained on",
            fix="keep bags for calibration in a split of their own, and pass --split",
        )
    about: dict[str, Any] = {"split": name, "fingerprint": fingerprint(chosen)}
    if about["fingerprint"] == marks.get("validation_bags"):
        about["caveat"] = STOPPED_EARLY
    return chosen, about


def _training_sets(marks: dict[str, Any], bags: BagDataset) -> tuple[BagDataset | None, BagDataset | None]:
    """Return the bags that the run trained on and those it held out, where they are among ``bags``."""
    from miue.config import training_config
    from miue.errors import MiueError
    from miue.plan import fingerprint, training_sets

    if "training" not in marks:
        return None, None
    try:
        training, held_out = training_sets(bags, None, training_config(marks["training"]))
    except MiueError:  # not a store that could have been trained on
        return None, None
    if fingerprint(training) != marks.get("training_bags"):
        return None, None
    return training, held_out if fingerprint(held_out) == marks.get("validation_bags") else None


def _check_classes(names: tuple[str, ...], bags: BagDataset) -> None:
    theirs = bags.class_names or tuple(str(c) for c in range(bags.num_classes))
    if theirs != names:
        raise DataError(
            item="the bag store",
            wanted=f"the classes of the model: {', '.join(names)}",
            got=", ".join(theirs),
            fix="calibrate on bags of the same classes, in the same order",
        )
