"""``miue export``: what pathologists get out of saved predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

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
    from rich.progress import track

    from miue.export.geojson import Selection, regions, squares, write_geojson
    from miue.export.patches import class_names, class_number, file_names, patches_by_slide
    from miue.files import atomic_folder, refuse_existing
    from miue.predictions import read_predictions

    refuse_existing(out, overwrite=overwrite)
    fixed = parse_bounds(bounds, slides)
    predictions = read_predictions(given)
    names = class_names(predictions)
    chosen = sorted({class_number(names, name) for name in class_name or names})
    selection = Selection(names, chosen, threshold)
    files = file_names([str(slide) for slide in predictions.bags.bag_ids], ".geojson")
    skipped: list[str] | None = [] if skip_bad else None
    written = objects = 0
    with atomic_folder(out, overwrite=overwrite) as folder:
        every = patches_by_slide(predictions, patch_size, skipped)
        for patches in track(
            every, "Writing GeoJSON", total=len(files), disable=quiet, console=Console(stderr=True)
        ):
            origin = fixed if slides is None else slide_origin(slides, patches.slide, skipped)
            if origin is None:
                continue
            about = {
                "slide": patches.slide,
                "patch_size_level0": patches.size,
                "patch_size_from": patches.size_from,
                "bounds_subtracted": list(origin),
                "threshold": threshold,
                "classes": [names[number] for number in chosen],
            }
            features = (regions if merge else squares)(patches, selection, origin)
            objects += write_geojson(folder / files[patches.slide], features, about)
            written += 1
        report(skipped, written)
    typer.echo(f"{objects:,} {'regions' if merge else 'patches'} of {written:,} slides written to {out}")


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
    """Draw one PNG per slide: probability, data uncertainty and model uncertainty side by side.

    Raw values on fixed ranges with their units: the same colour is the same number on every slide.
    Example: miue export heatmap predictions --slides slides --out heatmaps
    """
    from rich.progress import track

    from miue.export.heatmap import heatmap_figure, layers_of, save_heatmap
    from miue.export.patches import class_names, class_number, file_names, patches_by_slide
    from miue.files import atomic_folder, refuse_existing
    from miue.predictions import read_predictions

    refuse_existing(out, overwrite=overwrite)
    predictions = read_predictions(given)
    names = class_names(predictions)
    number = class_number(names, class_name) if class_name is not None else len(names) - 1
    files = file_names([str(slide) for slide in predictions.bags.bag_ids], ".png")
    skipped: list[str] | None = [] if skip_bad else None
    written = 0
    with atomic_folder(out, overwrite=overwrite) as folder:
        every = patches_by_slide(predictions, patch_size, skipped)
        for patches in track(every, "Drawing", total=len(files), disable=quiet, console=Console(stderr=True)):
            assert predictions.instances is not None
            layers = layers_of(predictions.instances.distribution, names[number])
            slide = None
            if slides is not None and (slide := slide_picture(slides, patches.slide, skipped)) is None:
                continue
            save_heatmap(heatmap_figure(patches, layers, number, slide), folder / files[patches.slide])
            written += 1
        report(skipped, written)
    typer.echo(f"{written:,} heatmaps written to {out}")


@export_app.command("worklist")
def export_worklist(
    given: Given,
    out: Annotated[Path, typer.Option(help="CSV file to write; its limits go beside it as .json.")],
    probability: Annotated[
        float, typer.Option(min=0, max=1, help="In between classes: the predicted class is less probable.")
    ] = 0.8,
    model: Annotated[
        float, typer.Option(min=0, help="Model unsure: mutual information of so many nats or more.")
    ] = 0.05,
    distance: Annotated[
        float | None,
        typer.Option(
            help="Far from training data: a distance above this; else five median absolute deviations above "
            "the median of the slides, where there are ten or more."
        ),
    ] = None,
    patches: Annotated[int, typer.Option(min=0, help="Few patches: fewer than this.")] = 50,
    show: Annotated[int, typer.Option(min=0, help="Rows on screen; the file holds all.")] = 20,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """List slides by what needs a human first, with the reasons in words; labels are not read.

    First come slides far from the training data, then those the model is unsure of, those in between
    classes, those of few patches; then all others, which are routine.
    """
    from miue.export.worklist import Limits, worklist, write_worklist
    from miue.files import refuse_existing
    from miue.predictions import read_predictions

    refuse_existing(out, overwrite=overwrite)
    made = worklist(read_predictions(given), Limits(probability, model, distance, patches))
    write_worklist(out, made)
    console = Console()
    console.print(worklist_table(made.rows[:show]))
    for reason, limit in made.judged.items():
        console.print(f"{reason}: {limit}", highlight=False)
    for reason, why in made.not_judged.items():
        console.print(f"not judged, {reason}: {why}", highlight=False)
    first = sum(row["look"] == "first" for row in made.rows)
    typer.echo(f"{first:,} of {len(made.rows):,} slides to be looked at first: {out}")


def worklist_table(rows: list[dict[str, Any]]) -> Any:
    """Return the rows as a rich table; the numbers behind the reasons are in the file."""
    from rich.table import Table

    table = Table("", "slide", "look", "predicted", "probability", "patches", "reason")
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


def parse_bounds(text: str | None, slides: Path | None) -> tuple[int, int]:
    """Return X and Y of "X,Y", (0, 0) for None.

    Raises:
        ConfigError: not two whole numbers, or given together with slides to read them from.
    """
    from miue.errors import ConfigError

    if text is None:
        return 0, 0
    if slides is not None:
        raise ConfigError(item="--bounds with --slides", wanted="one of the two", got="both", fix="leave one out")
    try:
        x, y = (int(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError(
            item="--bounds", wanted="two whole numbers X,Y", got=repr(text), fix="write --bounds 1024,2048, say"
        ) from error
    return x, y


def slide_origin(folder: Path, name: str, skipped: list[str] | None) -> tuple[int, int] | None:
    """Return the slide's bounds-x and bounds-y; None, and why in ``skipped``, where it cannot be read."""
    from miue.errors import StorageError
    from miue.slides import bounds_origin, find_slide, open_slide

    try:
        with open_slide(find_slide(folder, name)) as slide:
            return bounds_origin(slide)
    except StorageError as error:
        if skipped is None:
            raise
        skipped.append(str(error))
        return None


def slide_picture(folder: Path, name: str, skipped: list[str] | None) -> Any:
    """Return the slide's picture; None, and why in ``skipped``, where it cannot be read."""
    from miue.errors import StorageError
    from miue.export.heatmap import LONGEST, Slide
    from miue.slides import find_slide, microns_per_pixel, open_slide, thumbnail

    try:
        with open_slide(find_slide(folder, name)) as slide:
            return Slide(thumbnail(slide, LONGEST), tuple(slide.dimensions), microns_per_pixel(slide))
    except StorageError as error:
        if skipped is None:
            raise
        skipped.append(str(error))
        return None


def report(skipped: list[str] | None, written: int) -> None:
    """Say which slides were left out; an output without any slide is an error.

    Raises:
        DataError: nothing was written.
    """
    from miue.errors import DataError

    for reason in skipped or []:
        typer.echo(f"left out: {reason}", err=True)
    if written == 0:
        raise DataError(
            item="the export", wanted="at least one slide", got="none", fix="see the slides left out above"
        )
