"""``miue export``: what pathologists get out of saved predictions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.flags import Command, takes_settings
from miue.cli.options import AsJson, Out, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs
from miue.common.errors import ConfigError, DataError
from miue.common.folder_kinds import EXPORT
from miue.common.outputs import refuse_existing
from miue.common.text import plural, say, show_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from miue.common.tasks import Executor
    from miue.pathology.export.folders import Written
    from miue.predictions import Predictions
    from miue.settings import DrawnSettings, ExportSettings, PredictSettings

export_app = typer.Typer(help="Turn predictions into overlays, heatmaps, maps, tables.", no_args_is_help=True)
SETTINGS = "miue.settings:ExportSettings"

Given = Annotated[Path, typer.Argument(metavar="PREDICTIONS", help="Folder of predictions.")]
ClassName = Annotated[
    str | None,
    typer.Option(
        "--class",
        metavar="NAME",
        help="Class whose probability is drawn; by default the positive one of two, else the one that the slide "
        "is predicted as.",
    ),
]


def _slides(help_text: str) -> Any:
    return typer.Option(metavar="FOLDER", help=help_text)


@export_app.command("geojson", cls=Command)
@takes_settings(settings=SETTINGS, drawn="miue.settings:DrawnSettings")
@keeps_inputs
def export_geojson(
    given: Given,
    out: Out,
    settings: ExportSettings,
    drawn: DrawnSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a GeoJSON file per slide for QuPath.

    Patches are squares, or merged into regions. Coordinates are level-0 pixels from the top left. Each object has
    its class with a color and, as measurements, the probability of each class, every uncertainty measure and
    every distance score. Probabilities of patches are the model's own: a calibration scales those of slides alone.

    Example: miue export geojson predictions --out overlays --class tumor --threshold 0.5 --merge
    """
    options = {
        "classes": drawn.chosen_classes or None,
        "threshold": drawn.threshold,
        "merge": drawn.merge,
        "slides": drawn.slides,
        "bounds": parse_bounds(drawn.bounds),
    }
    what = "{regions} of {slides}" if drawn.merge else "{patches} of {slides}"
    _export(given, out, "geojson", settings, what, overwrite=overwrite, quiet=quiet, as_json=as_json, **options)


@export_app.command("heatmap", cls=Command)
@takes_settings(settings=SETTINGS)
@keeps_inputs
def export_heatmap(
    given: Given,
    out: Out,
    settings: ExportSettings,
    slides: Annotated[
        Path | None, _slides("Folder of slides to draw under the values; needs the extra 'slides'.")
    ] = None,
    class_name: ClassName = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw a heatmap of each slide.

    One PNG shows probability, aleatoric and epistemic uncertainty, and distance side by side. Raw values on fixed
    ranges with their units: the same color is the same number on every slide. Probabilities of patches are the
    model's own: a calibration scales those of slides alone.

    Example: miue export heatmap predictions --slides slides --out heatmaps
    """
    options = {"class_name": class_name, "slides": slides}
    _export(
        given, out, "heatmap", settings, "{heatmaps}", overwrite=overwrite, quiet=quiet, as_json=as_json, **options
    )


@export_app.command("arrays", cls=Command)
@takes_settings(settings=SETTINGS)
@keeps_inputs
def export_arrays(
    given: Given,
    out: Out,
    settings: ExportSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write an HDF5 file per slide with all values.

    Holds coords, probabilities, and each uncertainty and score of the slide's patches, in TRIDENT's layout: coords
    in level-0 pixels with patch_size_level0.

    Example: miue export arrays predictions --out arrays
    """
    _export(given, out, "arrays", settings, overwrite=overwrite, quiet=quiet, as_json=as_json)


@export_app.command("geoparquet", cls=Command)
@takes_settings(settings=SETTINGS)
@keeps_inputs
def export_geo_parquet(
    given: Given,
    out: Out,
    settings: ExportSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write a GeoParquet table per slide.

    Each patch has a row with its square in level-0 pixels, its class, the probability of each class, and each
    uncertainty and score. geopandas, QGIS, DuckDB and tools for SpatialData (lazyslide) read it.

    Example: miue export geoparquet predictions --out tables
    """
    _export(given, out, "geoparquet", settings, overwrite=overwrite, quiet=quiet, as_json=as_json)


@export_app.command("ome-tiff", cls=Command)
@takes_settings(settings=SETTINGS)
@keeps_inputs
def export_ome_tiff(
    given: Given,
    out: Out,
    settings: ExportSettings,
    slides: Annotated[
        Path | None, _slides("Folder of slides, from which maps take their size and their pixel width in µm.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the maps of each slide as OME-TIFF.

    Each file is a pyramid with a channel of raw values for the probability of each class, each uncertainty and
    each score; QuPath and napari open it. A map begins at the slide's top left corner; overlapping patches are
    averaged.

    Example: miue export ome-tiff predictions --slides slides --out maps
    """
    shown = {"overwrite": overwrite, "quiet": quiet, "as_json": as_json}
    _export(given, out, "ome-tiff", settings, "maps of {slides}", **shown, slides=slides)


def _export(
    given: Path,
    out: Path,
    kind: str,
    settings: ExportSettings,
    what: str = "{patches} of {slides}",
    *,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Export predictions that were saved, and say what was written and what was left out."""
    from miue.predictions import read_predictions

    refuse_existing(out, EXPORT, overwrite=overwrite)
    ids = None if settings.ids is None else _read_ids(settings.ids)
    shared = {"ids": ids, "patch_size": settings.patch_size, "skip_bad": settings.skip_bad, "overwrite": overwrite}
    written = _write(
        read_predictions(given), given, out, kind, settings.to_executor(), progress=not quiet, **shared, **options
    )
    say_left_out(written.left_out)
    objects, slides = written.objects, written.slides
    nouns = {"patches": plural(objects, "patch"), "regions": plural(objects, "region")}
    nouns |= {"slides": plural(slides, "slide"), "heatmaps": plural(slides, "heatmap")}
    facts = {"slides": slides, "objects": objects, "left_out": list(written.left_out), "out": str(out)}
    show_result(facts, f"{what.format(**nouns)} written to {out}", as_json)


def _read_ids(path: Path) -> list[str]:
    """Return the ids in the first column of a table, or those in the lines of another file.

    Raises:
        StorageError: a file that cannot be read.
    """
    from miue.bags.names import TABLES
    from miue.common.files import open_file
    from miue.common.tables import read_text_columns

    if path.name.lower().endswith(TABLES):
        return next(iter(read_text_columns(path).values()))
    with open_file(path) as file:
        lines = file.read().decode("utf-8-sig", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _write(
    predictions: Predictions, folder: Path, out: Path, kind: str, executor: Executor, **options: Any
) -> Written:
    """Export predictions that are in ``folder``, in this process or in several."""
    from miue.pathology.export.folders import export, export_side_by_side

    if executor.is_local:
        return export(predictions, out, kind, **options)
    return export_side_by_side(predictions, folder, out, kind, executor, **options)


def parse_bounds(text: str | None) -> tuple[int, int]:
    """Return X and Y of "X,Y", (0, 0) for None.

    Raises:
        ConfigError: not two whole numbers.
    """
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
    predictions: Predictions,
    folder: Path,
    settings: PredictSettings,
    *,
    skip_bad: bool,
    progress: bool,
    to_stderr: bool,
) -> None:
    """Write exports of predictions that were just saved to ``folder`` into it, each a folder of its kind.

    Raises:
        ConfigError, DataError, StorageError: a kind that cannot be written; the predictions stay.
    """
    from miue.pathology.export.kinds import takes_slides

    shared = {"skip_bad": skip_bad, "progress": progress}
    for kind in dict.fromkeys(settings.export):
        options: dict[str, Any] = {"slides": settings.slides} if takes_slides(kind) else {}
        try:
            written = _write(predictions, folder, folder / kind, kind, settings.to_executor(), **shared, **options)
        except DataError as error:
            again = shlex.join(["miue", "export", kind, str(folder), "--out", str(folder / kind)])
            kept = f"{error.fix}; the predictions are kept in {str(folder)!r}, to export with {again!r}"
            raise error.replaced(fix=kept) from error
        say_left_out(written.left_out)
        say(f"{kind} of {plural(written.slides, 'slide')} written to {folder / kind}", err=to_stderr)


def say_left_out(reasons: Sequence[str]) -> None:
    """Write which slides were left out and why to the standard error."""
    for reason in reasons:
        say(f"left out: {reason}", err=True)
