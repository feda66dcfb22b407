"""Slides as a command takes them, and a file of patches made of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miue.cli.interrupt import saying_what_is_kept
from miue.common.errors import DataError, MiueError, StorageError, first_few, first_repeated, lacking, not_stated
from miue.common.text import plural, say, show_result

if TYPE_CHECKING:
    from miue.common.tasks import Executor


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
    from miue.common.files import remove_temporaries
    from miue.common.locks import locked, remove_left_lock
    from miue.common.tasks import Task, run_tasks
    from miue.pathology.tile_files import refuse_other_file

    slides = list_slides(slides)
    refuse_same_names(slides)
    failed: dict[str, str] = {}
    tasks: list[Task] = []

    def leave_out(name: str, error: MiueError) -> None:
        if not skip_bad:
            raise error
        failed[name] = str(error)

    kept = 0

    def say_kept() -> str:
        if overwrite:
            return f"each file in {out} is whole, as before or written again; give the same command again"
        finished = plural(kept + sum(task.is_done for task in tasks), "slide")
        return f"finished and kept in {out}: {finished}; the same command goes on"

    with saying_what_is_kept(say_kept), locked(out):
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
