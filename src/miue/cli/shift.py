"""``miue data shift``: shifted copies of slides, for detection of distribution shift."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from miue.cli import tile
from miue.cli.options import Address, AsJson, Device, ExecutorKind, Jobs, Quiet, SkipBad, make_executor
from miue.cli.slides import for_each_slide
from miue.common.errors import ConfigError


def data_shift(
    slides: tile.Slides,
    kind: Annotated[
        str,
        typer.Option(
            metavar="blur|hed|jpeg|noise",
            help="Shift: Gaussian blur, stains stronger or weaker, JPEG compression, or noise.",
        ),
    ],
    strength: Annotated[str, typer.Option(metavar="lighter|light|strong", help="Strength of the shift.")],
    out: tile.Out,
    drawn_per: Annotated[
        str,
        typer.Option(
            metavar="patch|slide",
            help="Stain of hed: drawn for each patch, or once per slide, as another scanner or lab would.",
        ),
    ] = "patch",
    tiles: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of .h5 files with coords: shift the same patches."),
    ] = None,
    patch_px: tile.PatchPx = 256,
    magnification: tile.Magnification = 20.0,
    tissue: tile.Tissue = 0.25,
    mpp: tile.Mpp = None,
    patch_encoder: tile.PatchEncoder = None,
    normalization: tile.Normalization = "imagenet",
    batch: tile.Batch = 64,
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the stains, with the slide's name.")] = 0,
    pictures: Annotated[
        int, typer.Option(min=0, help="Patches per slide to draw before and after, as a PNG; at most all.")
    ] = 0,
    executor: ExecutorKind = None,
    jobs: Jobs = None,
    address: Address = None,
    skip_bad: SkipBad = False,
    overwrite: tile.Overwrite = False,
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
    from miue.pathology.tiling import Tiling

    if tiles is not None and tiles.resolve() == out.resolve():
        raise ConfigError(
            item=f"--out {str(out)!r}",
            wanted="another folder than that of --tiles, whose files stay as they are",
            got="the same",
            fix="choose another --out",
        )
    cut = asdict(Tiling(patch_px, magnification, tissue, mpp)) if tiles is None else str(tiles.resolve())
    drawn = {"kind": kind, "strength": strength, "drawn_per": drawn_per, "seed": seed, "pictures": pictures}
    shift = {**drawn, "tiles": cut}
    encoder = tile.describe_encoder(patch_encoder, normalization, batch, device)
    how = read_shift(shift, encoder)
    for_each_slide(
        slides,
        out,
        ("miue.pathology.slide_shifts:shift_task", {"shift": shift, "encoder": encoder}),
        lambda slide, target: is_shifted_so(target, slide, how),
        f"shifted ({how.shift.name}),",
        executor=make_executor(executor, jobs, address),
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )
