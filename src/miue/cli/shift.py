"""``miue data shift``: shifted copies of slides, for detection of distribution shift."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli import tile


def data_shift(
    slides: tile.Slides,
    kind: Annotated[str, typer.Option(help="blur (Gaussian) or hed (stains stronger or weaker).")],
    strength: Annotated[str, typer.Option(help="lighter, light or strong.")],
    out: tile.Out,
    drawn_per: Annotated[
        str,
        typer.Option(
            help="Of hed: patch (each patch is stained by itself) or slide (all its patches alike, as another "
            "scanner or stainer would)."
        ),
    ] = "patch",
    tiles: Annotated[
        Path | None,
        typer.Option(help="Folder of the slides' patches (.h5 with coords), read at the same places."),
    ] = None,
    patch_px: tile.PatchPx = 256,
    magnification: tile.Magnification = 20.0,
    tissue: tile.Tissue = 0.25,
    encoder: tile.Encoder = None,
    normalisation: tile.Normalisation = "imagenet",
    batch: tile.Batch = 64,
    device: tile.Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn; with the slide's name it says all.")] = 0,
    pictures: Annotated[int, typer.Option(min=0, help="Patches to draw before and after, as a PNG.")] = 0,
    skip_bad: tile.SkipBad = False,
    overwrite: tile.Overwrite = False,
    quiet: tile.Quiet = False,
) -> None:
    """Shift the patches of slides and encode them, as .h5 in TRIDENT's layout: what a model should notice.

    blur: a Gaussian of 0.5, 1 or 2 pixels. hed: each stain scaled and raised by amounts within 0.02, 0.05 or 0.2,
    drawn for each patch, or with --drawn-per slide once for the slide. With --tiles, patches are read where they
    lie in those files, and --patch-px, --magnification and --tissue do not count; without it, slides are cut as
    data tile cuts them. Use the encoder of the originals.

    Example: miue data shift slides/*.svs --kind hed --strength strong --tiles features --out features-hed-strong
    """
    from miue.pathology.slide_shifts import SlideShift, is_shifted_so, shift_slide
    from miue.pathology.stain_shifts import StainShift
    from miue.pathology.tiling import Tiling

    where = tiles if tiles is not None else Tiling(patch_px, magnification, tissue)
    shift = StainShift(kind, strength, drawn_per)
    how = SlideShift(shift, seed, tile.encoder_of(encoder, normalisation, batch, device), where, pictures)
    tile.for_each_slide(
        slides,
        out,
        lambda slide, target, follow: shift_slide(slide, target, how, follow),
        lambda slide, target: is_shifted_so(target, slide.stem, how),
        f"shifted ({shift.name}),",
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
    )
