"""``miue data tile``: slides cut into encoded patches."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

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
from miue.cli.slides import for_each_slide

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
        "Without it, 24 plain statistics (color-texture).",
    ),
]
Normalization = Annotated[
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
    normalization: Normalization = "imagenet",
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

    Writes .h5 files in TRIDENT's layout: features, coords in level-0 pixels, and image statistics, by which a
    model trained on the features can detect blur and other stains. Tissue is what is more saturated than Otsu's
    threshold. Without --patch-encoder, features are 24 plain statistics, not learned: good for trying things out,
    not for results. Slides already cut the same way are kept, so the same command continues an interrupted run.

    Example: miue data tile slides/*.svs --out features --patch-px 256 --magnification 20
    """
    from miue.pathology.patch_encoders import open_encoder
    from miue.pathology.tiling import Tiling, matches

    tiling = Tiling(patch_px, magnification, tissue, mpp)
    encoder = describe_encoder(patch_encoder, normalization, batch, device)
    chosen = open_encoder(**encoder)
    for_each_slide(
        slides,
        out,
        ("miue.pathology.tiling:tile_task", {"tiling": asdict(tiling), "encoder": encoder}),
        lambda slide, target: matches(target, slide, tiling, chosen),
        "cut into",
        executor=make_executor(executor, jobs, address),
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
        as_json=as_json,
    )


def describe_encoder(path: Path | None, normalization: str, batch: int, device: str) -> dict[str, Any]:
    """Return the encoder that the options name as JSON values, which ``open_encoder`` takes."""
    where = None if path is None else str(path.absolute())
    return {"path": where, "normalization": normalization, "batch": batch, "device": device}
