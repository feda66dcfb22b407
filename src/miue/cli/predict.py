"""``miue predict``: a model and bags become tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from miue.cli.export import export_beside
from miue.cli.options import Device, Out, Overwrite, Quiet, Trust
from miue.cli.outputs import locks_out
from miue.cli.shift_warning import warn_of_shift
from miue.cli.sources import BAGS_HELP, Source, open_bags, say_left_out, takes_bags
from miue.common.errors import ConfigError
from miue.common.terminal import say


@takes_bags
@locks_out
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a trained model.")],
    bags: Annotated[Path, typer.Argument(help=BAGS_HELP + " Labels are not needed.")],
    out: Out,
    source: Source,
    split: Annotated[
        str | None,
        typer.Option(help="Split to predict, or all; else test where there is one, else what was not trained on."),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(help="What instances are predicted from: residual, bag-of-one or attention."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws, where the method draws.")] = 0,
    export: Annotated[
        list[str] | None,
        typer.Option(
            help="Also write, as 'miue export' does, into OUT: arrays, geojson or heatmap; may be repeated."
        ),
    ] = None,
    slides: Annotated[
        Path | None, typer.Option(help="Folder of slides: under heatmaps, and to subtract bounds from overlays.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    trust: Trust = False,
    device: Device = "auto",
) -> None:
    """Predict bags and instances with their uncertainty, as plain tables.

    Labels are not needed; evaluation needs them. Bags without labels and without --labels get those that the
    training listed for them in its splits.csv, and that is said.

    Patients with several bags get a table of their own. Bags of patients that the model learned from are left
    out where the run tells which these are, unless --split all, train or validation asks for them; another
    --split that holds some is refused.
    Example: miue predict run new_features --out predictions --export geojson --export heatmap
    """
    from miue.common.devices import torch_device
    from miue.common.files import refuse_existing
    from miue.io.labels.run_labels import with_labels_of_run
    from miue.model.model import Model
    from miue.pathology.export.folders import check_kinds

    refuse_existing(out, overwrite=overwrite)
    check_kinds(export or [])
    torch_device(device)
    model = Model.load(run, trust=trust)
    opened = open_bags(
        bags,
        source.of_model(model.contract.class_names),
        progress=not quiet,
        instance_shape=model.contract.instance_shape,
        coords_for="--export" if export else "",
    )
    say_left_out(opened)
    chosen = _bags_to_predict(opened.bags, split, run)
    if source.labels is None and not chosen.labels.known.any():
        chosen, said = with_labels_of_run(chosen, run / "splits.csv", model.contract.class_names)
        say(said, err=True)
    failed: list[str] = []
    predictions = model.predict(
        chosen,
        estimator=estimator,
        seed=seed,
        progress=not quiet,
        device=device,
        on_bad=(lambda name, error: failed.append(f"{name}: {error}")) if source.skip_bad else None,
    )
    for one in failed:
        say(f"left out: {one}", err=True)
    whole = "all bags" if len(chosen) == len(opened.bags) else "bags that the model did not learn from"
    chosen_split = " ".join(sorted(set(chosen.splits))).strip() or whole
    provenance = predictions.provenance.model_copy(update={"bags": str(bags), "split": chosen_split})
    predictions = replace(predictions, provenance=provenance)
    predictions.save(out, overwrite=overwrite)
    instances = 0 if predictions.instances is None else len(predictions.instances)
    say(f"{len(predictions.bags):,} bags with {instances:,} instances predicted: {out}")
    warn_of_shift(predictions)
    export_beside(predictions, out, export or [], slides, skip_bad=source.skip_bad, progress=not quiet)


def _bags_to_predict(bags: Any, split: str | None, run: Path) -> Any:
    """Return the bags of the split asked for, else of test, else all; none that the model learned from."""
    from miue.model.training_bags import parts_of_run

    if split == "all":
        return bags
    chosen = bags.split(split or "test") if split is not None or "test" in bags.splits else bags
    if split in ("train", "validation"):
        return chosen
    known = parts_of_run(run, bags).or_of_their_patients("train", "validation")
    unseen = [row for row, name in enumerate(chosen.ids) if name not in known]
    learned = len(chosen) - len(unseen)
    if learned and (split is not None or not unseen):
        share = f"{learned:,}" if unseen else "all"
        raise ConfigError(
            item="the bags to predict" if split is None else f"split {split!r}",
            wanted="bags of patients that the model did not learn from",
            got=f"{len(chosen):,} bags, {share} of which it was trained or validated on, or on their patients",
            fix="pass --split all to predict all bags all the same; rename bags that are others",
        )
    if learned:
        say(f"left out: {learned:,} bags that the model learned from, or from their patients", err=True)
    return chosen.subset(unseen) if learned else chosen
