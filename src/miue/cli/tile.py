"""``miue data tile``: slides cut into encoded patches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.interrupt import kept_on_interrupt
from miue.cli.options import (
    OUTPUT,
    Address,
    AsJson,
    Device,
    ExecutorKind,
    Jobs,
    Quiet,
    SkipBad,
    make_executor,
)
from miue.common.plural import plural
from miue.common.terminal import say, show_result

if TYPE_CHECKING:
    from miue.tasks import Executor

PATCHES, ENCODER = "Patches", "Patch encoder"
Slides = Annotated[
    list[Path],
    typer.Argument(metavar="SLIDE", help="Slides that OpenSlide reads, or folders of them."),
]
Out = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder to write, one .h5 per slide.", rich_help_panel=OUTPUT)
]
PatchPx = Annotated[
    int, typer.Option(min=8, help="Side of a patch, in pixels at --magnification.", rich_help_panel=PATCHES)
]
Magnification = Annotated[
    float, typer.Option(help="Magnification, 20 for 20× (about 0.5 µm per pixel).", rich_help_panel=PATCHES)
]
Mpp = Annotated[
    float | None,
    typer.Option(help="µm per level-0 pixel of slides that do not state it.", rich_help_panel=PATCHES),
]
Tissue = Annotated[float, typer.Option(help="Least share of tissue in a patch.", rich_help_panel=PATCHES)]
PatchEncoder = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=ENCODER,
        help="Network: TorchScript, or an exported program (.pt2). It is code: load only what you trust. "
        "Without it, 24 plain statistics (colour-texture).",
    ),
]
Normalisation = Annotated[
    str,
    typer.Option(
        metavar="imagenet|none",
        help="Input of the network: normalized with ImageNet's mean and deviation, or 0 to 1.",
        rich_help_panel=ENCODER,
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Patches per pass of the network.", rich_help_panel=ENCODER)]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Write existing files again.", rich_help_panel=OUTPUT)
]


def data_tile(
    slides: Slides,
    out: Out,
    patch_px: PatchPx = 256,
    magnification: Magnification = 20.0,
    tissue: Tissue = 0.25,
    mpp: Mpp = None,
    patch_encoder: PatchEncoder = None,
    normalisation: Normalisation = "imagenet",
    batch: Batch = 64,
    device: Device = "auto",
    executor: ExecutorKind = None,
    jobs: Jobs = None,
    address: Address = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Cut slides into patches and encode them.

    Writes .h5 files in TRIDENT's layout, with coords in level-0 pixels, and image statistics, by which a model of
    the features detects blur and other stains. Tissue is what is more saturated than Otsu's threshold. Without
    --patch-encoder, features are plain statistics, not learned: good for trying things out, not for results.
    Slides already cut the same way are kept, so an interrupted run continues with the same command.

    Example: miue data tile slides/*.svs --out features --patch-px 256 --magnification 20
    """
    from miue.pathology.slide_tasks import open_encoder
    from miue.pathology.tiling import Tiling, matches

    tiling = Tiling(patch_px, magnification, tissue, mpp)
    encoder = describe_encoder(patch_encoder, normalisation, batch, device)
    chosen = open_encoder(**encoder)
    for_each_slide(
        slides,
        out,
        ("miue.pathology.slide_tasks:tile_task", {"tiling": asdict(tiling), "encoder": encoder}),
        lambda _, target: matches(target, tiling, chosen),
        "cut into",
        executor=make_executor(executor, jobs, address),
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )


def describe_encoder(path: Path | None, normalisation: str, batch: int, device: str) -> dict[str, Any]:
    """Return the encoder that the options name as JSON values, which ``open_encoder`` takes."""
    where = None if path is None else str(path.resolve())
    return {"path": where, "normalisation": normalisation, "batch": batch, "device": device}


def for_each_slide(
    slides: list[Path],
    out: Path,
    call: tuple[str, dict[str, Any]],
    made: Callable[[Path, Path], bool],
    done: str,
    *,
    executor: Executor,
    skip_bad: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a file of patches of each slide, leave those that are there, and say what came of it.

    Args:
        slides: files of different names, or folders of them.
        out: folder of the files.
        call: import path and arguments of (slide, out, …) → number of patches.
        made: (slide, file) → whether the file there is the one asked for.
        done: what happened to slides, for the last line.
        executor: where slides are cut, one task each.
        skip_bad, overwrite, quiet, as_json: the options of these names.

    Raises:
        DataError: two slides of one name, or none was left.
        StorageError: a file that is there was made otherwise.
    """
    from miue.common.errors import MiueError, lacking
    from miue.common.files import remove_temporaries
    from miue.common.locks import locked
    from miue.tasks import Task, run_tasks

    slides = list_slides(slides)
    refuse_same_names(slides)
    failed: dict[str, str] = {}
    tasks: list[Task] = []

    def leave_out(name: str, error: MiueError) -> None:
        if not skip_bad:
            raise error
        failed[name] = str(error)

    def finished() -> int:
        return sum(task.is_done for task in tasks)

    with (
        kept_on_interrupt(
            lambda: f"finished and kept in {out}: {plural(finished(), 'slide')}; the same command goes on"
        ),
        locked(out),
    ):
        remove_temporaries(out)
        kept = 0
        for slide in slides:
            target = out.resolve() / f"{slide.stem}.h5"
            if target.exists() and not overwrite:
                try:
                    if not made(slide, target):
                        raise _made_otherwise(target)
                    kept += 1
                except MiueError as error:
                    leave_out(slide.stem, error)
                continue
            arguments = {"slide": str(slide.resolve()), "out": str(target), **call[1]}
            tasks.append(Task(slide.stem, call[0], arguments, target, overwrite))
        values = run_tasks(
            tasks,
            executor,
            doing="Slides",
            unit="slides",
            progress=not quiet,
            on_error=(lambda task, error: leave_out(task.name, error)) if skip_bad else None,
        )
    patches = [value for value in values if value is not None]
    for reason in failed.values():
        say(f"left out: {reason}", err=True)
    if not patches and not kept:
        raise lacking("the slides", "at least one with tissue", "see the list above")
    already = f", {kept:,} already there" if kept else ""
    facts = {
        "slides": len(patches),
        "patches": sum(patches),
        "already_there": kept,
        "left_out": list(failed.values()),
        "out": str(out),
    }
    show_result(
        facts, f"{plural(len(patches), 'slide')} {done} {plural(sum(patches), 'patch')}{already}: {out}", as_json
    )


def list_slides(paths: list[Path]) -> list[Path]:
    """Return the slides at paths, those of a folder sorted by name; say which of its files are none.

    Raises:
        StorageError: a folder without slides, or of DICOM files, of which several make one slide.
    """
    from miue.common.errors import StorageError, first_few
    from miue.pathology.slides import SUFFIXES

    slides: list[Path] = []
    for path in paths:
        if not path.is_dir():
            slides.append(path)
            continue
        files = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
        found = [file for file in files if file.suffix.lower() in SUFFIXES]
        dicom = [file for file in found if file.suffix.lower() == ".dcm"]
        if dicom or not found:
            raise StorageError(
                item=f"folder {str(path)!r}",
                wanted=f"slides in it: {', '.join(SUFFIXES)}",
                got=f"{plural(len(dicom), 'DICOM file')}, of which several make one slide" if dicom else "none",
                fix="name one .dcm file of each slide" if dicom else "check the folder, or name the files",
            )
        others = [file.name for file in files if file not in found]
        if others:
            say(f"left out of {path}, no slides: {plural(len(others), 'file')}: {first_few(others)}", err=True)
        slides += found
    return slides


def refuse_same_names(slides: list[Path]) -> None:
    """Raise unless every slide has a name of its own, since that names its file.

    Raises:
        DataError: two of one name.
    """

    from miue.common.errors import repeated

    names = [slide.stem for slide in slides]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise repeated(
            f"slide {twice[0]!r}",
            "slides of different names",
            names.count(twice[0]),
            "cut them into different folders",
        )


def _made_otherwise(target: Path) -> Exception:

    from miue.common.errors import StorageError

    return StorageError(
        item=f"{str(target)!r}",
        wanted="features made as asked for",
        got="a file made otherwise",
        fix="choose another --out, or pass --overwrite",
    )
