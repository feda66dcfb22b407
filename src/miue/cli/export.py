"""``miue export``: what pathologists get out of saved predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from miue.cli.shift_warning import warn_of_shift
from miue.common.terminal import TextTable, say, show_table

export_app = typer.Typer(
    help="Turn saved predictions into QuPath overlays, heatmaps and a worklist; the model is not needed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Given = Annotated[Path, typer.Argument(metavar="PREDICTIONS", help="Folder of predictions.")]
Out = Annotated[Path, typer.Option(help="Folder to write, one file per slide.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what --out holds.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
PatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Side of a patch in level-0 pixels; else the grid step of each slide's coords, as stated."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Go on after a slide that fails, and list it at the end.")
]
Classes = Annotated[
    list[str] | None,
    typer.Option("--class", help="Only this class, by name or number; may be repeated. Else all classes."),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Keep patches whose (chosen) class is at least so probable; else the predicted class."
    ),
]
Merge = Annotated[bool, typer.Option("--merge", help="Unite neighbouring patches of one class into regions.")]
Bounded = Annotated[
    Path | None,
    typer.Option(help="Folder of slides: their OpenSlide bounds-x/y are subtracted, as QuPath shows them."),
]
Bounds = Annotated[str | None, typer.Option(metavar="X,Y", help="Subtract these instead.")]


@export_app.command("geojson")
def export_geojson(
    given: Given,
    out: Out,
    patch_size: PatchSize = None,
    class_name: Classes = None,
    threshold: Threshold = None,
    merge: Merge = False,
    slides: Bounded = None,
    bounds: Bounds = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write one GeoJSON file per slide for QuPath: patches as squares, or merged into regions.

    Coordinates are level-0 pixels from the top left. Each object has its class with a colour and, as
    measurements, the probability of each class, every uncertainty measure and every distance score.
    Example: miue export geojson predictions --out overlays --class tumour --threshold 0.5 --merge
    """
    from miue.common.files import refuse_existing
    from miue.pathology.export.folders import export
    from miue.predictions.folder import read_predictions

    refuse_existing(out, overwrite=overwrite)
    written = export(
        read_predictions(given),
        out,
        "geojson",
        patch_size=patch_size,
        skip_bad=skip_bad,
        overwrite=overwrite,
        progress=not quiet,
        classes=class_name,
        threshold=threshold,
        merge=merge,
        slides=slides,
        bounds=parse_bounds(bounds),
    )
    say_left_out(written.left_out)
    kind = "regions" if merge else "patches"
    say(f"{written.objects:,} {kind} of {written.slides:,} slides written to {out}")


@export_app.command("heatmap")
def export_heatmap(
    given: Given,
    out: Out,
    slides: Annotated[
        Path | None, typer.Option(help="Folder of slides, drawn under the values; needs OpenSlide (miue[slides]).")
    ] = None,
    patch_size: PatchSize = None,
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="Whose probability, by name or number; else the last class."),
    ] = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw one PNG per slide: probability, aleatoric and epistemic uncertainty, and distance.

    Raw values on fixed ranges with their units: the same colour is the same number on every slide.
    Example: miue export heatmap predictions --slides slides --out heatmaps
    """
    from miue.common.files import refuse_existing
    from miue.pathology.export.folders import export
    from miue.predictions.folder import read_predictions

    refuse_existing(out, overwrite=overwrite)
    written = export(
        read_predictions(given),
        out,
        "heatmap",
        patch_size=patch_size,
        skip_bad=skip_bad,
        overwrite=overwrite,
        progress=not quiet,
        class_name=class_name,
        slides=slides,
    )
    say_left_out(written.left_out)
    say(f"{written.slides:,} heatmaps written to {out}")


@export_app.command("arrays")
def export_arrays(
    given: Given,
    out: Out,
    patch_size: PatchSize = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write one HDF5 file per slide: coords, probabilities, each uncertainty and score of its patches.

    Laid out as TRIDENT lays out features: coords in level-0 pixels with patch_size_level0.
    Example: miue export arrays predictions --out arrays
    """
    from miue.common.files import refuse_existing
    from miue.pathology.export.folders import export
    from miue.predictions.folder import read_predictions

    refuse_existing(out, overwrite=overwrite)
    written = export(
        read_predictions(given),
        out,
        "arrays",
        patch_size=patch_size,
        skip_bad=skip_bad,
        overwrite=overwrite,
        progress=not quiet,
    )
    say_left_out(written.left_out)
    say(f"{written.objects:,} patches of {written.slides:,} slides written to {out}")


@export_app.command("worklist")
def export_worklist(
    given: Given,
    out: Annotated[Path, typer.Option(help="CSV file to write; its limits go beside it as .json.")],
    probability: Annotated[
        float | None, typer.Option(min=0, max=1, help="In between classes: the predicted class is less probable.")
    ] = None,
    model: Annotated[
        float | None, typer.Option(min=0, help="Model unsure: mutual information above so many nats.")
    ] = None,
    distance: Annotated[float | None, typer.Option(help="Far from training data: a distance above this.")] = None,
    patches: Annotated[int | None, typer.Option(min=0, help="Few patches: fewer than this.")] = None,
    quantile: Annotated[
        float,
        typer.Option(
            min=0.5, max=1, help="Where no limit is given: the quantile of the validation bags to exceed."
        ),
    ] = 0.95,
    show: Annotated[int, typer.Option(min=0, help="Rows on screen; the file holds all.")] = 20,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """List slides by what needs a human first, with the reasons in words; labels are not read.

    With a calibration, its decisions alone say which slides are first: those called out of distribution, then
    those referred. Without one, slides that stand out from the bags that the model was validated on: far from the
    training data, model unsure, in between classes, of few patches. For each reason the most out of distribution
    come first. All others are routine.
    """
    from miue.common.files import refuse_existing
    from miue.predictions.folder import read_predictions
    from miue.report.worklist import Limits, worklist, write_worklist

    refuse_existing(out, overwrite=overwrite)
    predictions = read_predictions(given)
    made = worklist(predictions, Limits(probability, model, distance, patches, quantile))
    write_worklist(out, made)
    show_table(worklist_table(made.rows[:show]))
    for reason, limit in made.judged.items():
        say(f"{reason}: {limit}")
    for reason, why in made.not_judged.items():
        say(f"not judged, {reason}: {why}")
    say(f"order: {made.order}")
    first = sum(row["look"] == "first" for row in made.rows)
    say(f"{first:,} of {len(made.rows):,} slides to be looked at first: {out}")
    if made.warning:
        say(f"Warning: {made.warning}.", err=True)
    warn_of_shift(predictions)


def worklist_table(rows: list[dict[str, Any]]) -> TextTable:
    """Return the rows as a table; the numbers behind the reasons are in the file."""

    table = TextTable("", "slide", "look", "predicted", "probability", "patches", "reason")
    for row in rows:
        count = "—" if row["patches"] is None else f"{row['patches']:,}"
        cells = [
            str(row["order"]),
            row["slide"],
            row["look"],
            row["predicted"],
            f"{row['probability']:.2f}",
            count,
        ]
        table.add_row(*cells, "\n".join(part.split(" (")[0] for part in row["reason"].split("; ")))
    return table


def parse_bounds(text: str | None) -> tuple[int, int]:
    """Return X and Y of "X,Y", (0, 0) for None.

    Raises:
        ConfigError: not two whole numbers.
    """
    from miue.common.errors import ConfigError

    if text is None:
        return 0, 0
    try:
        x, y = (int(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError(
            item="--bounds", wanted="two whole numbers X,Y", got=repr(text), fix="write --bounds 1024,2048, say"
        ) from error
    return x, y


def export_beside(
    predictions: Any, folder: Path, kinds: Sequence[str], slides: Path | None, *, skip_bad: bool, progress: bool
) -> None:
    """Write exports of predictions that were just saved to ``folder`` into it, each a folder of its kind.

    Raises:
        ConfigError, DataError, StorageError: a kind that cannot be written; the predictions stay.
    """
    from miue.pathology.export.folders import export

    for kind in dict.fromkeys(kinds):
        options: dict[str, Any] = {} if kind == "arrays" else {"slides": slides}
        written = export(predictions, folder / kind, kind, skip_bad=skip_bad, progress=progress, **options)
        say_left_out(written.left_out)
        say(f"{kind} of {written.slides:,} slides written to {folder / kind}")


def say_left_out(reasons: Sequence[str]) -> None:
    """Write which slides were left out and why to the standard error."""
    for reason in reasons:
        say(f"left out: {reason}", err=True)
