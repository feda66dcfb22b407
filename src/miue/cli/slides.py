"""``miue data tile`` and ``miue data shift``: slides cut into encoded patches, as they are or shifted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, Overwrite, Quiet
from miue.common.errors import (
    ConfigError,
    DataError,
    MiueError,
    StorageError,
    first_few,
    first_repeated,
    lacking,
    not_stated,
)
from miue.common.text import OUTPUT, plural, say, show_result

if TYPE_CHECKING:
    from miue.settings import ShiftSettings, TileSettings

Slides = Annotated[
    list[Path],
    typer.Argument(metavar="SLIDE", help="Slides that OpenSlide reads, or folders of them."),
]
Out = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder to write, one .h5 per slide.", rich_help_panel=OUTPUT)
]


@takes_settings(settings="miue.settings:TileSettings")
def data_tile(
    slides: Slides,
    out: Out,
    settings: TileSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Cut slides into patches and encode them.

    Writes .h5 files in TRIDENT's layout: features, coords in level-0 pixels, and image statistics, by which a
    model trained on the features can detect blur and other stains. Tissue is what is more saturated than Otsu's
    threshold. Without --patch-encoder, features are 24 plain statistics, not learned: good for trying things out,
    not for results. Slides already cut the same way are kept, so the same command continues an interrupted run.

    Example: miue data tile slides/*.svs --out features --patch-px 256 --magnification 20
    """
    from dataclasses import asdict

    from miue.pathology.patch_encoders import open_encoder
    from miue.pathology.tiling import Tiling, matches

    tiling, encoder = Tiling(**settings.tiling()), settings.encoder()
    chosen = open_encoder(**encoder)
    for_each_slide(
        slides,
        out,
        ("miue.pathology.tiling:tile_task", {"tiling": asdict(tiling), "encoder": encoder}),
        lambda slide, target: matches(target, slide, tiling, chosen),
        "cut into",
        settings=settings,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )


@takes_settings(settings="miue.settings:ShiftSettings")
def data_shift(
    slides: Slides,
    kind: Annotated[
        str,
        typer.Option(
            metavar="blur|hed|jpeg|noise",
            help="Shift: Gaussian blur, stains stronger or weaker, JPEG compression, or noise.",
        ),
    ],
    strength: Annotated[str, typer.Option(metavar="lighter|light|strong", help="Strength of the shift.")],
    out: Out,
    settings: ShiftSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write shifted copies of slides as features.

    Each kind is a distribution shift that a model should detect. The copies are .h5 files in TRIDENT's layout.
    blur: a Gaussian of 0.5, 1 or 2 pixels. hed: each stain is scaled and raised by amounts within 0.02, 0.05 or
    0.2, drawn for each patch, or with --drawn-per slide once for the slide. jpeg: quality 60, 30 or 10. noise:
    Gaussian, of 4, 8 or 16 gray levels. With --tiles, patches are read at the coords of those files, and
    --patch-px, --magnification and --tissue are ignored; without it, slides are cut as data tile cuts them. Use
    the encoder that made the features of the original slides.

    Example: miue data shift slides/*.svs --kind hed --strength strong --tiles features --out features-hed-strong
    """
    from miue.pathology.slide_shifts import is_shifted_so, read_shift

    if settings.tiles is not None and settings.tiles.resolve() == out.resolve():
        raise ConfigError(
            item=f"--out {str(out)!r}",
            wanted="another folder than that of --tiles, whose files stay as they are",
            got="the same",
            fix="choose another --out",
        )
    shift, encoder = settings.shift(kind, strength), settings.encoder()
    how = read_shift(shift, encoder)
    for_each_slide(
        slides,
        out,
        ("miue.pathology.slide_shifts:shift_task", {"shift": shift, "encoder": encoder}),
        lambda slide, target: is_shifted_so(target, slide, how),
        f"shifted ({how.shift.name}),",
        settings=settings,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )


def for_each_slide(
    slides: list[Path],
    out: Path,
    call: tuple[str, dict[str, Any]],
    made: Callable[[Path, Path], bool],
    done: str,
    *,
    settings: TileSettings,
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
        settings: where slides are cut, one task each, and whether those that fail are left out.
        overwrite, quiet, as_json: the options of these names.

    Raises:
        DataError: two slides of one name, or none was left.
        StorageError: a file that is there was made otherwise.
    """
    from miue.common.files import remove_temporaries
    from miue.common.outputs import locked, remove_left_lock
    from miue.common.tasks import Task, run_tasks
    from miue.pathology.tile_files import refuse_other_file

    slides = list_slides(slides)
    refuse_same_names(slides)
    failed: dict[str, str] = {}
    tasks: list[Task] = []

    def leave_out(name: str, error: MiueError) -> None:
        if not settings.skip_bad:
            raise error
        failed[name] = str(error)

    kept = 0
    with locked(out):
        remove_temporaries(out)
        for slide in slides:
            target = out.resolve() / f"{slide.stem}.h5"
            if overwrite and target.exists():
                refuse_other_file(target)
            if overwrite or not target.exists():
                arguments = {"slide": str(slide.absolute()), "out": str(target), **call[1]}
                tasks.append(Task(slide.stem, call[0], arguments, target, overwrite))
                continue
            remove_left_lock(target)
            try:
                _check_made(made(slide, target), target)
                kept += 1
            except MiueError as error:
                leave_out(slide.stem, error)
            except OSError as error:
                leave_out(slide.stem, not_stated(error.filename or slide, error))
        values = run_tasks(
            tasks,
            settings.to_executor(),
            doing="Slides",
            unit="slides",
            progress=not quiet,
            on_error=(lambda task, error: leave_out(task.name, error)) if settings.skip_bad else None,
        )
    patches = [value for value in values if value is not None]
    for reason in failed.values():
        say(f"left out: {reason}", err=True)
    if not patches and not kept:
        raise lacking("the slides", "at least one that is not left out", "mend what the list above names")
    already = f", {kept:,} already there" if kept else ""
    facts = {"slides": len(patches), "patches": sum(patches), "already_there": kept}
    show_result(
        {**facts, "left_out": list(failed.values()), "out": str(out)},
        f"{plural(len(patches), 'slide')} {done} {plural(sum(patches), 'patch')}{already}: {out}",
        as_json,
    )


def list_slides(paths: list[Path]) -> list[Path]:
    """Return the slides at paths, those of a folder sorted by name; say which of its files are none.

    Raises:
        StorageError: a folder without slides, or of DICOM files, of which several make one slide.
    """
    from miue.pathology.slides import SUFFIXES

    slides: list[Path] = []
    for path in paths:
        if not path.is_dir():
            slides.append(path)
            continue
        files = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
        found = [file for file in files if file.suffix.lower() in SUFFIXES]
        others = [file.name for file in files if file.suffix.lower() not in SUFFIXES]
        dicom = [file for file in found if file.suffix.lower() == ".dcm"]
        if dicom or not found:
            raise StorageError(
                item=f"folder {str(path)!r}",
                wanted=f"slides in it: {', '.join(SUFFIXES)}",
                got=f"{plural(len(dicom), 'DICOM file')}, of which several make one slide" if dicom else "none",
                fix="name one .dcm file of each slide" if dicom else "check the folder, or name the files",
            )
        if others:
            say(f"left out of {path}, no slides: {plural(len(others), 'file')}: {first_few(others)}", err=True)
        slides += found
    return slides


def refuse_same_names(slides: list[Path]) -> None:
    """Raise unless every slide has a name of its own, since that names its file.

    Raises:
        DataError: two of one name.
    """
    if (twice := first_repeated(slide.stem for slide in slides)) is not None:
        same = [repr(str(slide)) for slide in slides if slide.stem == twice]
        raise DataError(
            item=f"slide {twice!r}",
            wanted="slides of different names",
            got=" and ".join(same[:2]) + (", …" if same[2:] else ""),
            fix="name it once" if len(set(same)) == 1 else "cut them into different folders",
        )


def _check_made(is_wanted: bool, target: Path) -> None:
    if not is_wanted:
        raise StorageError(
            item=f"{str(target)!r}",
            wanted="features made as asked for",
            got="a file made otherwise, or of another slide of this name",
            fix="choose another --out, or pass --overwrite",
        )
