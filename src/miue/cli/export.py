"""``miue export``: what pathologists get out of saved predictions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.help import Command, Commands
from miue.cli.option_groups import takes_options
from miue.cli.options import (
    MANY_NAMES,
    OUTPUT,
    Address,
    AsJson,
    ExecutorKind,
    Jobs,
    Overwrite,
    Quiet,
    SkipBad,
    make_executor,
    separate_names,
)
from miue.cli.outputs import keeps_inputs
from miue.common.errors import ConfigError, DataError, StorageError, not_a_folder
from miue.common.folder_kinds import EXPORT, PREDICTIONS
from miue.common.outputs import refuse_existing
from miue.common.text import plural, say, show_result

if TYPE_CHECKING:
    from miue.common.tasks import Executor
    from miue.pathology.export.folders import Written
    from miue.predictions.folder import Predictions

export_app = typer.Typer(
    cls=Commands,
    help="Turn predictions into overlays, heatmaps, maps, tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DRAWN = "Patches"
Given = Annotated[Path, typer.Argument(metavar="PREDICTIONS", help="Folder of predictions.")]
Out = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder to write, one file per slide.", rich_help_panel=OUTPUT)
]
Ids = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Slides to export: a text file with one id per line, or a table with ids in its first column.",
    ),
]
PatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Side of a patch in level-0 pixels; by default as the slide's features state it, else its grid step.",
        rich_help_panel=DRAWN,
    ),
]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        metavar="NAME",
        help=f"Class to export, by name or number; by default all. {MANY_NAMES}",
        callback=separate_names,
        rich_help_panel=DRAWN,
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Least probability of a patch's (chosen) class; by default its predicted class is exported.",
        rich_help_panel=DRAWN,
    ),
]
Merge = Annotated[
    bool,
    typer.Option("--merge", help="Merge neighboring patches of one class into regions.", rich_help_panel=DRAWN),
]
Bounded = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of slides: subtracts their OpenSlide bounds-x/y, as QuPath shows them."
    ),
]
Bounds = Annotated[
    str | None, typer.Option(metavar="X,Y", help="Bounds to subtract, instead of reading them from --slides.")
]


@dataclass(frozen=True)
class Shared:
    """What the options of every export say."""

    ids: Ids = None
    patch_size: PatchSize = None
    executor: ExecutorKind = None
    jobs: Jobs = None
    address: Address = None
    skip_bad: SkipBad = False
    overwrite: Overwrite = False
    quiet: Quiet = False
    as_json: AsJson = False


@export_app.command("geojson", cls=Command)
@keeps_inputs
@takes_options
def export_geojson(
    given: Given,
    out: Out,
    how: Shared,
    class_name: Classes = None,
    threshold: Threshold = None,
    merge: Merge = False,
    slides: Bounded = None,
    bounds: Bounds = None,
) -> None:
    """Write a GeoJSON file per slide for QuPath.

    Patches are squares, or merged into regions. Coordinates are level-0 pixels from the top left. Each object has
    its class with a color and, as measurements, the probability of each class, every uncertainty measure and
    every distance score. Probabilities of patches are the model's own: a calibration scales those of slides alone.

    Example: miue export geojson predictions --out overlays --class tumor --threshold 0.5 --merge
    """
    drawn = {"classes": class_name, "threshold": threshold, "merge": merge}
    where = {"slides": slides, "bounds": parse_bounds(bounds)}
    what = "{regions} of {slides}" if merge else "{patches} of {slides}"
    _export(given, out, "geojson", how, what, **drawn, **where)


@export_app.command("heatmap", cls=Command)
@keeps_inputs
@takes_options
def export_heatmap(
    given: Given,
    out: Out,
    how: Shared,
    slides: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of slides to draw under the values; needs OpenSlide (miue[slides])."
        ),
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="Class whose probability is drawn; by default the positive one of two, else the one that the "
            "slide is predicted as.",
            rich_help_panel=DRAWN,
        ),
    ] = None,
) -> None:
    """Draw a heatmap of each slide.

    One PNG shows probability, aleatoric and epistemic uncertainty, and distance side by side. Raw values on fixed
    ranges with their units: the same color is the same number on every slide. Probabilities of patches are the
    model's own: a calibration scales those of slides alone.

    Example: miue export heatmap predictions --slides slides --out heatmaps
    """
    _export(given, out, "heatmap", how, "{heatmaps}", class_name=class_name, slides=slides)


@export_app.command("arrays", cls=Command)
@keeps_inputs
@takes_options
def export_arrays(
    given: Given,
    out: Out,
    how: Shared,
) -> None:
    """Write an HDF5 file per slide with all values.

    Holds coords, probabilities, and each uncertainty and score of the slide's patches, in TRIDENT's layout: coords
    in level-0 pixels with patch_size_level0.

    Example: miue export arrays predictions --out arrays
    """
    _export(given, out, "arrays", how, "{patches} of {slides}")


@export_app.command("geoparquet", cls=Command)
@keeps_inputs
@takes_options
def export_geo_parquet(
    given: Given,
    out: Out,
    how: Shared,
) -> None:
    """Write a GeoParquet table per slide.

    Each patch has a row with its square in level-0 pixels, its class, the probability of each class, and each
    uncertainty and score. geopandas, QGIS, DuckDB and tools for SpatialData (lazyslide) read it.

    Example: miue export geoparquet predictions --out tables
    """
    _export(given, out, "geoparquet", how, "{patches} of {slides}")


@export_app.command("ome-tiff", cls=Command)
@keeps_inputs
@takes_options
def export_ome_tiff(
    given: Given,
    out: Out,
    how: Shared,
    slides: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of slides, from which maps take their size and their pixel width in µm."
        ),
    ] = None,
) -> None:
    """Write the maps of each slide as OME-TIFF.

    Each file is a pyramid with a channel of raw values for the probability of each class, each uncertainty and
    each score; QuPath and napari open it. A map begins at the slide's top left corner; overlapping patches are
    averaged.

    Example: miue export ome-tiff predictions --slides slides --out maps
    """
    _export(given, out, "ome-tiff", how, "maps of {slides}", slides=slides)


def _export(given: Path, out: Path, kind: str, how: Shared, what: str, **options: Any) -> None:
    """Export predictions that were saved, and say what was written and what was left out."""
    from miue.predictions.folder import read_predictions

    where = make_executor(how.executor, how.jobs, how.address)
    refuse_existing(out, EXPORT, overwrite=how.overwrite)
    ids = None if how.ids is None else _read_ids(how.ids)
    shared = {"ids": ids, "skip_bad": how.skip_bad, "overwrite": how.overwrite, "progress": not how.quiet}
    written = _write(
        read_predictions(given), given, out, kind, where, patch_size=how.patch_size, **shared, **options
    )
    say_left_out(written.left_out)
    objects, slides = written.objects, written.slides
    nouns = {"patches": plural(objects, "patch"), "regions": plural(objects, "region")}
    nouns |= {"slides": plural(slides, "slide"), "heatmaps": plural(slides, "heatmap")}
    facts = {"slides": slides, "objects": objects, "left_out": list(written.left_out), "out": str(out)}
    show_result(facts, f"{what.format(**nouns)} written to {out}", how.as_json)


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


def refuse_export(
    out: Path, kinds: Sequence[str], slides: Path | None, *, skip_bad: bool, overwrite: bool
) -> None:
    """Raise where predictions cannot be exported into ``out``, before they are computed.

    Args:
        out: folder of the predictions.
        kinds: of the exports.
        slides: folder of slides, for the kinds that take one.
        skip_bad: whether slides that fail are left out.
        overwrite: whether predictions that are there are replaced.

    Raises:
        ConfigError: a kind that does not exist.
        StorageError: no folder of slides; or ``out`` holds predictions already, whose missing exports other
            commands write.
    """
    from miue.pathology.export.kinds import check_kinds

    check_kinds(kinds)
    if not kinds:
        return
    if overwrite or not PREDICTIONS.matches(out):
        if slides is not None and not slides.is_dir():
            raise not_a_folder(slides, "the folder of slides (--slides)")
        return
    got, instead = "predictions with these exports", ""
    if missing := _missing(out, kinds):
        there = plural(len(missing), "export")
        got = f"predictions that lack {there} ({', '.join(missing)})"
        instead = f"{_writing(out, missing, slides, skip_bad=skip_bad)}; or "
    raise StorageError(
        item=f"output {str(out)!r}",
        wanted="a new or empty folder",
        got=got,
        fix=f"{instead}choose another --out, or pass --overwrite to predict again",
    )


def kept_predictions(out: Path, kinds: Sequence[str], slides: Path | None, *, skip_bad: bool) -> str:
    """Return that the predictions in ``out`` are kept, and which commands write the exports that they lack."""
    kept = f"the predictions are kept in {out}"
    missing = _missing(out, kinds)
    return f"{kept}; {_writing(out, missing, slides, skip_bad=skip_bad)}" if missing else kept


def _missing(out: Path, kinds: Sequence[str]) -> list[str]:
    """Return the kinds of export that the predictions in ``out`` lack."""
    return [kind for kind in dict.fromkeys(kinds) if not EXPORT.matches(out / kind)]


def _writing(out: Path, kinds: Sequence[str], slides: Path | None, *, skip_bad: bool) -> str:
    """Return which commands write exports, as a clause."""
    commands = [shlex.join(_words(out, kind, slides, skip_bad=skip_bad)) for kind in kinds]
    return f"{' and '.join(map(repr, commands))} {'writes' if len(commands) == 1 else 'write'} what is missing"


def _words(out: Path, kind: str, slides: Path | None, *, skip_bad: bool) -> list[str]:
    """Return the command that writes an export into the predictions ``out`` as ``export_beside`` does."""
    from miue.pathology.export.kinds import takes_slides

    drawn = ["--slides", str(slides)] if slides is not None and takes_slides(kind) else []
    return ["miue", "export", kind, str(out), "--out", str(out / kind), *drawn, *(["--skip-bad"] * skip_bad)]


def export_beside(
    predictions: Predictions,
    folder: Path,
    kinds: Sequence[str],
    slides: Path | None,
    *,
    executor: Executor,
    skip_bad: bool,
    progress: bool,
    to_stderr: bool,
) -> None:
    """Write exports of predictions that were just saved to ``folder`` into it, each a folder of its kind.

    Raises:
        ConfigError, DataError, StorageError: a kind that cannot be written; the predictions stay.
    """
    from miue.pathology.export.kinds import takes_slides

    for kind in dict.fromkeys(kinds):
        options: dict[str, Any] = {"slides": slides} if takes_slides(kind) else {}
        try:
            written = _write(
                predictions, folder, folder / kind, kind, executor, skip_bad=skip_bad, progress=progress, **options
            )
        except DataError as error:
            again = shlex.join(_words(folder, kind, slides, skip_bad=skip_bad))
            kept = f"{error.fix}; the predictions are kept in {str(folder)!r}, to export with {again!r}"
            raise error.replaced(fix=kept) from error
        say_left_out(written.left_out)
        say(f"{kind} of {plural(written.slides, 'slide')} written to {folder / kind}", err=to_stderr)


def say_left_out(reasons: Sequence[str]) -> None:
    """Write which slides were left out and why to the standard error."""
    for reason in reasons:
        say(f"left out: {reason}", err=True)
