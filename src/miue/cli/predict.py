"""``miue predict`` and ``miue merge``: a model and bags become tables, whole or in shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.bags import (
    as_trained,
    check_order,
    label_as_trained,
    open_bags_of,
    say_left_out,
    say_of_unknown_patients,
)
from miue.cli.export import export_beside
from miue.cli.flags import takes_settings
from miue.cli.options import BAGS_HELP, AsJson, Out, Overwrite, Quiet, Run
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.predictions import warn_of_shift
from miue.common.errors import ConfigError, first_few, not_a_folder, one_of_two
from miue.common.folder_kinds import LABELS, PREDICTIONS
from miue.common.outputs import refuse_existing, refuse_taken
from miue.common.text import OUTPUT, plural, say, say_json, show_result

if TYPE_CHECKING:
    from miue.bags import BagDataset
    from miue.common.tasks import Shard
    from miue.model import Model
    from miue.model.shards import PredictionRequest
    from miue.predictions import Predictions
    from miue.settings import LoadSettings, PredictSettings


@takes_settings(load="miue.settings:LoadSettings", settings="miue.settings:PredictSettings")
@keeps_inputs
@locks_out
def predict(
    run: Run,
    bags: Annotated[Path, typer.Argument(metavar="BAGS", help=BAGS_HELP + " Labels are not needed.")],
    out: Out,
    load: LoadSettings,
    settings: PredictSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict bags and instances with their uncertainty.

    Writes plain tables: bags.csv and the instances. A calibrated run (miue calibrate) also decides on each bag.

    Labels are not needed to predict, only to evaluate. If the bags have no labels and --labels is not given, the
    labels that the run's splits.csv lists for them are used, with a note.

    Of several labels, --out gets a folder for each.

    If patients have several bags, patients.csv is written, too. Bags of patients that the model was trained on
    are left out if the run knows them, unless --part all, train or validation asks for them; any other --part
    that contains some is refused.

    With --executor or --jobs, bags are predicted and exported in parallel, with the same result; after a kill, the
    same command continues. With --shard, only a part of the bags is predicted into --out; miue merge joins the
    parts.

    Example: miue predict run new_features --out predictions --export geojson --export heatmap
    """
    from miue.common.devices import torch_device
    from miue.common.label_folders import label_folders, open_label_folders
    from miue.common.tasks import parse_shard
    from miue.model import Model
    from miue.model.shards import PredictionRequest
    from miue.pathology.export.kinds import check_kinds

    shard = None if settings.shard is None else parse_shard(settings.shard)
    if shard is not None and settings.export:
        raise one_of_two("--shard with --export", fix="export what 'miue merge' writes")
    if shard is not None and not settings.to_executor().is_local:
        raise one_of_two("--shard with --executor", fix="let each job predict its shard by itself")
    check_kinds(settings.export)
    if settings.export and settings.slides is not None and not settings.slides.is_dir():
        raise not_a_folder(settings.slides, "the folder of slides (--slides)")
    several = label_folders(run)
    if several and shard is not None:
        raise one_of_two(
            "--shard with a run of several labels", fix=f"predict each: {first_few(map(str, several.values()))}"
        )
    if several:
        refuse_taken(out, LABELS, overwrite=overwrite)
    else:
        refuse_existing(out, PREDICTIONS, overwrite=overwrite)
    check_order(run, bags)
    torch_device(settings.device)
    first = next(iter(several.values()), run)
    model = Model.load(first, trust=settings.trust)
    contract, coords_for = model.contract, "--export" if settings.export else ""
    more = {"instance_shape": contract.instance_shape, "coords_for": coords_for}
    opened = open_bags_of(contract, bags, load, labels=tuple(several), progress=not quiet, **more)
    say_left_out(opened)
    chosen, split = _bags_of_part(opened.bags, load, settings.part, run, first, contract.class_names)
    places, shown = {"": out}, {}
    if several:
        places = open_label_folders(out, several, overwrite=overwrite, resume=False)
    for label, place in places.items():
        folder = several.get(label, run)
        labeled = label_as_trained(chosen.of_label(label) if label else chosen, load, folder, contract.class_names)
        request = PredictionRequest(
            run=str(folder.resolve()),
            source=str(bags),
            split=split,
            estimator=settings.estimator,
            seed=settings.seed,
            device=settings.device,
            precision=settings.precision,
            skip_bad=load.skip_bad,
            trust=settings.trust,
        )
        if folder != first:
            model = Model.load(folder, trust=settings.trust)
        predictions, failed = _predict(
            model, labeled, request, place, shard, settings, overwrite=overwrite, progress=not quiet
        )
        shown[label] = _facts(predictions, failed, place)
        if not several or not as_json:
            show_result(*shown[label], as_json)
        if predictions is not None:
            warn_of_shift(predictions)
            skip, shows = load.skip_bad, not quiet
            export_beside(predictions, place, settings, skip_bad=skip, progress=shows, to_stderr=as_json)
    if several and as_json:
        say_json({"labels": {label: facts for label, (facts, _) in shown.items()}, "out": str(out)})


def _predict(
    model: Model,
    bags: BagDataset,
    request: PredictionRequest,
    out: Path,
    shard: Shard | None,
    settings: PredictSettings,
    *,
    overwrite: bool,
    progress: bool,
) -> tuple[Predictions | None, list[str]]:
    """Write predictions of bags, of a shard or by several processes; return them, and what was left out."""
    from miue.model.shards import describe_shard, write_predictions, write_predictions_side_by_side

    written = {"overwrite": overwrite, "table_format": settings.table_format, "progress": progress}
    executor = settings.to_executor()
    if not executor.is_local:
        return write_predictions_side_by_side(bags, request, out, executor, **written)  # type: ignore[arg-type]
    of_shard = None
    if shard is not None:
        of_shard = describe_shard(shard, bags, request.seed, request.precision, Path(request.run))
    return write_predictions(model, bags, request, out, shard=of_shard, **written)  # type: ignore[arg-type]


def _facts(predictions: Predictions | None, failed: Sequence[str], out: Path) -> tuple[dict[str, Any], str]:
    """Return how much was predicted as facts and in a sentence, and write what was left out."""
    for reason in failed:
        say(f"left out: {reason}", err=True)
    bags = len(predictions.bags) if predictions else 0
    instances = len(predictions.instances) if predictions and predictions.instances is not None else 0
    sentence = f"{plural(bags, 'bag')} with {plural(instances, 'instance')} predicted: {out}"
    if predictions is None:
        sentence = f"no bag is predicted in this shard, which is merged with the others: {out}"
    return {"bags": bags, "instances": instances, "left_out": list(failed), "out": str(out)}, sentence


def _bags_of_part(
    every: BagDataset, load: LoadSettings, part: str | None, run: Path, first: Path, classes: tuple[str, ...]
) -> tuple[BagDataset, str]:
    """Return the bags to predict, and which part of all bags they are.

    Patients that the run, or the model of its first label, lists count as well.
    """
    wanted = set(_bags_to_predict(as_trained(every, load, first, classes)[0], part, run).ids)
    chosen = every.subset([row for row, name in enumerate(every.ids) if name in wanted])
    whole = "all bags" if len(chosen) == len(every) else "bags that the model did not learn from"
    return chosen, " ".join(sorted(set(chosen.splits))).strip() or whole


def _bags_to_predict(bags: BagDataset, part: str | None, run: Path) -> BagDataset:
    """Return the bags of the part asked for, else of test, else all; none that the model learned from.

    Bags without splits are in the part in which the run lists them; without a part, those that it keeps for
    calibration are left out as well, since decisions are made by them.
    """
    from miue.model import parts_of_run

    if part == "all":
        return bags
    of_run = parts_of_run(run, bags)
    if part is not None and not any(bags.splits) and part in of_run.parts:
        bags = replace(bags, splits=of_run.parts)
    chosen = bags.split(part or "test") if part is not None or "test" in bags.splits else bags
    if part is None and len(chosen) < len(bags):
        say(f"part test: {len(chosen):,} of {plural(len(bags), 'bag')}; --part names another, or all", err=True)
    if part in ("train", "validation"):
        return chosen
    known = of_run.or_of_their_patients("train", "validation")
    unseen = [row for row, name in enumerate(chosen.ids) if name not in known]
    learned = len(chosen) - len(unseen)
    if learned and (part is not None or not unseen):
        share = f"{learned:,}" if unseen else "all"
        raise ConfigError(
            item="the bags to predict" if part is None else f"part {part!r}",
            wanted="bags of patients that the model did not learn from",
            got=f"{plural(len(chosen), 'bag')}, {share} of which it was trained or validated on, or on their "
            "patients",
            fix="pass --part all to predict all bags all the same; rename bags that are others",
        )
    if learned:
        text = f"left out: {plural(learned, 'bag')} that the model learned from, or from their patients"
        if others := len(known & of_run.other_sizes & set(chosen.ids)):
            text += (
                f"; {others:,} of them with another number of instances: rename bags that are others, or pass "
                "--part all"
            )
        say(text, err=True)
    calibration = of_run.within("calibration") if part is None and not any(bags.splits) else set()
    kept = [row for row in unseen if chosen.ids[row] not in calibration]
    if kept and len(kept) < len(unseen):
        aside = plural(len(unseen) - len(kept), "bag")
        say(f"left out: {aside} that the run keeps for calibration; --part calibration predicts them", err=True)
        unseen = kept
    chosen = chosen.subset(unseen) if len(unseen) < len(chosen) else chosen
    say_of_unknown_patients(of_run, chosen)
    return chosen


@keeps_inputs
@locks_out
def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD", help="Folders of all shards, in any order.")],
    out: Out,
    table_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="parquet|csv",
            help="Format of the instances, instead of that of the shards.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Merge the shards of a prediction.

    Writes what miue predict writes without --shard, byte for byte, including the decisions of a calibrated run.
    Shards of different predictions, missing shards and duplicate shards are refused. The shards of a
    cross-validation need no merge: the last one writes the tables.

    Example: miue merge shards/* --out predictions
    """
    from miue.model.shards import merge_predictions
    from miue.predictions import check_table_format

    refuse_existing(out, PREDICTIONS, overwrite=overwrite)
    if table_format is not None:
        check_table_format(table_format)
    predictions = merge_predictions(
        shards, out, overwrite=overwrite, table_format=table_format, progress=not quiet
    )
    instances = 0 if predictions.instances is None else len(predictions.instances)
    facts = {"shards": len(shards), "bags": len(predictions.bags), "instances": instances, "out": str(out)}
    sentence = (
        f"{plural(len(shards), 'shard')} with {plural(len(predictions.bags), 'bag')} and "
        f"{plural(instances, 'instance')} merged: {out}"
    )
    show_result(facts, sentence, as_json)
    warn_of_shift(predictions)
