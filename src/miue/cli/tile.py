"""``miue data tile``: slides cut into encoded patches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from miue.cli.interrupt import kept_on_interrupt
from miue.common.terminal import say

Slides = Annotated[list[Path], typer.Argument(metavar="SLIDE...", help="Slides that OpenSlide reads.")]
Out = Annotated[Path, typer.Option(help="Folder to write, one .h5 per slide.")]
PatchPx = Annotated[int, typer.Option(min=8, help="Side of a patch, in pixels at --magnification.")]
Magnification = Annotated[float, typer.Option(help="20 for 20×, about 0.5 µm per pixel.")]
Tissue = Annotated[float, typer.Option(help="Least share of a patch that is tissue.")]
Encoder = Annotated[
    Path | None,
    typer.Option(
        help="A network: TorchScript, or an exported program (.pt2). It is code: load only what you trust. "
        "Without it, 24 plain statistics (colour-texture)."
    ),
]
Normalisation = Annotated[
    str, typer.Option(help="What the network takes: imagenet (mean and deviation of ImageNet) or none (0 to 1).")
]
Batch = Annotated[int, typer.Option(min=1, help="Patches that the network takes at once.")]
Device = Annotated[str, typer.Option(help="Of the network: auto, cpu or gpu.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on after a slide that fails, and list it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Make files again that are there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


def data_tile(
    slides: Slides,
    out: Out,
    patch_px: PatchPx = 256,
    magnification: Magnification = 20.0,
    tissue: Tissue = 0.25,
    encoder: Encoder = None,
    normalisation: Normalisation = "imagenet",
    batch: Batch = 64,
    device: Device = "auto",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Cut slides into patches of tissue and encode them, as .h5 in TRIDENT's layout.

    Tissue is what is more saturated than Otsu's threshold. Without --encoder, features are plain statistics, not
    learned: good for trying things out, not for results. Coords are level-0 pixels. Slides already cut the
    same way are left as they are, so an interrupted run goes on with the same command.

    Example: miue data tile slides/*.svs --out features --patch-px 256 --magnification 20
    """
    from miue.pathology.tiling import Tiling, matches, tile_slide

    tiling = Tiling(patch_px, magnification, tissue)
    chosen = encoder_of(encoder, normalisation, batch, device)
    for_each_slide(
        slides,
        out,
        lambda slide, target, follow: tile_slide(slide, target, tiling, chosen, follow),
        lambda _, target: matches(target, tiling, chosen),
        "cut into",
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
    )


def encoder_of(path: Path | None, normalisation: str, batch: int, device: str) -> Any:
    """Return the encoder that the options name."""
    from miue.pathology.patch_encoders import network_encoder, plain_encoder

    if path is None:
        return plain_encoder()
    return network_encoder(path, normalisation=normalisation, batch=batch, device=device)


def for_each_slide(
    slides: list[Path],
    out: Path,
    make: Callable[[Path, Path, Any], int],
    made: Callable[[Path, Path], bool],
    done: str,
    *,
    skip_bad: bool,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Make a file of patches of each slide, leave those that are there, and say what came of it.

    Args:
        slides: of different names.
        out: folder of the files.
        make: (slide, file, what follows the patches) → number of patches.
        made: (slide, file) → whether the file there is the one asked for.
        done: what happened to slides, for the last line.
        skip_bad, overwrite, quiet: the options of these names.

    Raises:
        DataError: two slides of one name, or none was left.
        StorageError: a file that is there was made otherwise.
    """
    from rich.progress import Progress

    from miue.common.errors import MiueError, lacking
    from miue.common.files import remove_temporaries
    from miue.common.locks import locked

    refuse_same_names(slides)
    failed: list[str] = []
    written = kept = patches = 0
    with (
        kept_on_interrupt(
            lambda: f"{written:,} slides were finished and are kept in {out}; the same command goes on"
        ),
        locked(out),
        Progress(disable=quiet, console=Console(stderr=True)) as bar,
    ):
        remove_temporaries(out)
        of_slides, of_patches = bar.add_task("Slides", total=len(slides)), bar.add_task("Patches", total=None)

        def follow(coords: Any) -> Any:
            bar.reset(of_patches, total=len(coords))
            return bar.track(coords, task_id=of_patches)

        for slide in bar.track(slides, task_id=of_slides):
            target = out / f"{slide.stem}.h5"
            try:
                if target.exists() and not overwrite:
                    if not made(slide, target):
                        raise _made_otherwise(target)
                    kept += 1
                    continue
                patches += make(slide, target, follow)
                written += 1
            except MiueError as error:
                if not skip_bad:
                    raise
                failed.append(str(error))
    for reason in failed:
        say(f"left out: {reason}", err=True)
    if not written + kept:
        raise lacking("the slides", "at least one with tissue", "see the list above")
    already = f", {kept:,} were there already" if kept else ""
    say(f"{written:,} slides {done} {patches:,} patches{already}: {out}")


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
