"""``miue data tile``: slides cut into encoded patches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

Slides = Annotated[list[Path], typer.Argument(metavar="SLIDE...", help="Slides that OpenSlide reads.")]


def data_tile(
    slides: Slides,
    out: Annotated[Path, typer.Option(help="Folder to write, one .h5 per slide.")],
    patch_px: Annotated[int, typer.Option(min=8, help="Side of a patch, in pixels at --magnification.")] = 256,
    magnification: Annotated[float, typer.Option(help="20 for 20×, about 0.5 µm per pixel.")] = 20.0,
    tissue: Annotated[float, typer.Option(help="Least share of a patch that is tissue.")] = 0.25,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on after a slide that fails or has no tissue, and list it.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Cut slides again that are there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Cut slides into patches of tissue with 24 plain colour and texture features, as .h5 in TRIDENT's layout.

    Tissue is what is more saturated than Otsu's threshold. The features (colour-texture) are statistics, not
    learned: good for trying things out, not for results. Coords are level-0 pixels. Slides already cut the
    same way are left as they are, so an interrupted run goes on with the same command.
    Example: miue data tile slides/*.svs --out features --patch-px 256 --magnification 20
    """
    from rich.progress import Progress

    from miue.data.colour_texture import NAME, colour_texture
    from miue.data.slide_tiles import Tiling, tile_slide
    from miue.errors import DataError, MiueError

    tiling = Tiling(patch_px, magnification, tissue)
    refuse_same_names(slides)
    failed: list[str] = []
    written = kept = patches = 0
    with Progress(disable=quiet, console=Console(stderr=True)) as bar:
        of_slides, of_patches = bar.add_task("Slides", total=len(slides)), bar.add_task("Patches", total=None)

        def follow(coords: Any) -> Any:
            bar.reset(of_patches, total=len(coords))
            return bar.track(coords, task_id=of_patches)

        for slide in bar.track(slides, task_id=of_slides):
            target = out / f"{slide.stem}.h5"
            try:
                if target.exists() and not overwrite:
                    refuse_other(target, tiling)
                    kept += 1
                    continue
                patches += tile_slide(slide, target, tiling, colour_texture, NAME, follow)
                written += 1
            except MiueError as error:
                if not skip_bad:
                    raise
                failed.append(str(error))
    for reason in failed:
        typer.echo(f"left out: {reason}", err=True)
    if not written + kept:
        raise DataError(item="the slides", wanted="at least one with tissue", got="none", fix="see the list above")
    already = f", {kept:,} were there already" if kept else ""
    typer.echo(f"{written:,} slides cut into {patches:,} patches{already}: {out}")


def refuse_same_names(slides: list[Path]) -> None:
    """Raise unless every slide has a name of its own, since that names its file.

    Raises:
        DataError: two of one name.
    """
    from miue.errors import DataError

    names = [slide.stem for slide in slides]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(
            item=f"slide {twice[0]!r}",
            wanted="slides of different names",
            got=f"{names.count(twice[0])} of this name",
            fix="cut them into different folders",
        )


def refuse_other(target: Path, tiling: Any) -> None:
    """Raise unless the file there was cut with this tiling.

    Raises:
        StorageError: it was not, or is no such file.
    """
    from miue.data.colour_texture import NAME
    from miue.data.slide_tiles import matches
    from miue.errors import StorageError

    if not matches(target, tiling, NAME):
        raise StorageError(
            item=f"{str(target)!r}",
            wanted="features cut as asked for",
            got="a file cut otherwise",
            fix="choose another --out, or pass --overwrite",
        )
