"""``miue predict``: a model and bags become tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.export import export_beside, kept_predictions, refuse_export
from miue.cli.held_out import say_of_unknown_patients
from miue.cli.interrupt import saying_what_is_kept, written_from_now
from miue.cli.option_groups import takes_options
from miue.cli.options import (
    MANY,
    OUTPUT,
    RUNNING,
    Address,
    AsJson,
    Device,
    ExecutorKind,
    Jobs,
    Out,
    Overwrite,
    Precision,
    Quiet,
    Run,
    ShardText,
    Trust,
    make_executor,
    separate,
)
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.shift_warning import warn_of_shift
from miue.cli.sources import BAGS_HELP, Source, as_trained, check_order, label_as_trained, open_bags_for
from miue.common.errors import ConfigError, one_of_two
from miue.common.folder_kinds import PREDICTIONS
from miue.common.outputs import refuse_existing
from miue.common.text import plural, say, show_result

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset
    from miue.common.tasks import Executor, Shard
    from miue.model.model import Model
    from miue.model.write_predictions import PredictionRequest
    from miue.predictions.folder import Predictions


@keeps_inputs
@takes_options
@locks_out
def predict(
    run: Run,
    bags: Annotated[Path, typer.Argument(metavar="BAGS", help=BAGS_HELP + " Labels are not needed.")],
    out: Out,
    source: Source,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Part of the bags to predict, or all; by default test if there is one, else all that the model "
            "did not learn from.",
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(metavar="residual|bag-of-one|attention", help="Estimator of instances."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of methods that draw.", rich_help_panel=RUNNING)
    ] = 0,
    export: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"Also export arrays, geojson, geoparquet, heatmap or ome-tiff into --out. {MANY}",
            callback=separate,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    slides: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of slides: drawn under heatmaps, and to subtract bounds from overlays.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    table_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="parquet|csv",
            help="Format of the instances: parts in Parquet, which are read one at a time, or one table in CSV.",
            rich_help_panel=OUTPUT,
        ),
    ] = "parquet",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    trust: Trust = False,
    device: Device = "auto",
    precision: Precision = "float32",
    executor: ExecutorKind = None,
    jobs: Jobs = None,
    address: Address = None,
    shard: ShardText = None,
    as_json: AsJson = False,
) -> None:
    """Predict bags and instances with their uncertainty.

    Writes plain tables: bags.csv and the instances. A calibrated run (miue calibrate) also decides on each bag.

    Labels are not needed to predict, only to evaluate. If the bags have no labels and --labels is not given, the
    labels that the run's splits.csv lists for them are used, with a note.

    If patients have several bags, patients.csv is written, too. Bags of patients that the model was trained on
    are left out if the run knows them, unless --part all, train or validation asks for them; any other --part
    that contains some is refused.

    With --executor or --jobs, bags are predicted and exported in parallel, with the same result; after a kill, the
    same command continues, or names the commands that write missing exports. With --shard, only a part of the bags
    is predicted into --out; miue merge joins the parts.

    Example: miue predict run new_features --out predictions --export geojson --export heatmap
    """
    from miue.common.devices import torch_device
    from miue.common.tasks import parse_shard
    from miue.model.model import Model
    from miue.model.write_predictions import PredictionRequest
    from miue.predictions.folder import check_table_format

    one, kinds = None if shard is None else parse_shard(shard), export or []
    where = make_executor(executor, jobs, address)
    _check_shard(one, kinds, where)
    refuse_export(out, kinds, slides, skip_bad=source.skip_bad, overwrite=overwrite)
    refuse_existing(out, PREDICTIONS, overwrite=overwrite)
    check_order(run, bags)
    check_table_format(table_format)
    torch_device(device)
    model = Model.load(run, trust=trust)
    every = open_bags_for(model, bags, source, progress=not quiet, coords_for="--export" if kinds else "")
    chosen, split = _labeled_bags_to_predict(every, source, part, run, model.contract.class_names)
    request = PredictionRequest(
        run=str(run.resolve()),
        source=str(bags),
        split=split,
        estimator=estimator,
        seed=seed,
        device=device,
        precision=precision,
        skip_bad=source.skip_bad,
        trust=trust,
    )
    written = {"overwrite": overwrite, "table_format": table_format, "progress": not quiet}
    is_written = written_from_now(out)
    with saying_what_is_kept(
        lambda: kept_predictions(out, kinds, slides, skip_bad=source.skip_bad) if is_written() else ""
    ):
        predictions, failed = _predict(model, chosen, request, out, one, where, written)
        _show(predictions, failed, out, as_json)
        if predictions is not None:
            warn_of_shift(predictions)
            export_beside(
                predictions,
                out,
                kinds,
                slides,
                executor=where,
                skip_bad=source.skip_bad,
                progress=not quiet,
                to_stderr=as_json,
            )


def _check_shard(shard: Shard | None, exports: Sequence[str], executor: Executor) -> None:
    """Raise unless a shard is predicted alone: what belongs to the whole is made of all shards.

    Raises:
        ConfigError: exports, or another executor than this process, beside a shard.
    """
    if shard is not None and exports:
        raise one_of_two("--shard with --export", fix="export what 'miue merge' writes")
    if shard is not None and not executor.is_local:
        raise one_of_two("--shard with --executor", fix="let each job predict its shard by itself")


def _predict(
    model: Model,
    bags: BagDataset,
    request: PredictionRequest,
    out: Path,
    shard: Shard | None,
    executor: Executor,
    written: Mapping[str, Any],
) -> tuple[Predictions | None, list[str]]:
    """Write predictions of bags, of a shard or by several processes; return them, and what was left out."""
    from miue.model.shards import describe_shard
    from miue.model.write_predictions import write_predictions, write_predictions_side_by_side

    if not executor.is_local:
        return write_predictions_side_by_side(bags, request, out, executor, **written)
    of_shard = None
    if shard is not None:
        of_shard = describe_shard(shard, bags, request.seed, request.precision, Path(request.run))
    return write_predictions(model, bags, request, out, shard=of_shard, **written)


def _show(predictions: Predictions | None, failed: Sequence[str], out: Path, as_json: bool) -> None:
    """Write how much was predicted, and what was left out."""
    for reason in failed:
        say(f"left out: {reason}", err=True)
    bags = len(predictions.bags) if predictions else 0
    instances = len(predictions.instances) if predictions and predictions.instances is not None else 0
    facts = {"bags": bags, "instances": instances, "left_out": list(failed), "out": str(out)}
    sentence = f"{plural(bags, 'bag')} with {plural(instances, 'instance')} predicted: {out}"
    if predictions is None:
        sentence = f"no bag is predicted in this shard, which is merged with the others: {out}"
    show_result(facts, sentence, as_json)


def _labeled_bags_to_predict(
    every: BagDataset, source: Source, part: str | None, run: Path, classes: tuple[str, ...]
) -> tuple[BagDataset, str]:
    """Return the bags to predict with the labels that are known of them, and which part of all bags they are.

    Labels and patients that the run lists count as well; what was said of them is said once.
    """
    wanted = set(_bags_to_predict(as_trained(every, source, run, classes)[0], part, run).ids)
    chosen = every.subset([row for row, name in enumerate(every.ids) if name in wanted])
    chosen = label_as_trained(chosen, source, run, classes)
    whole = "all bags" if len(chosen) == len(every) else "bags that the model did not learn from"
    return chosen, " ".join(sorted(set(chosen.splits))).strip() or whole


def _bags_to_predict(bags: BagDataset, part: str | None, run: Path) -> BagDataset:
    """Return the bags of the part asked for, else of test, else all; none that the model learned from.

    Bags without splits are in the part in which the run lists them; without a part, those that it keeps for
    calibration are left out as well, since decisions are made by them.
    """
    from miue.model.training_bags import parts_of_run

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
