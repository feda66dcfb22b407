"""``miue data patch-labels``: outlines of tumour become labels of patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from miue.common.terminal import say

UNANNOTATED = ("refuse", "negative", "skip")


def data_patch_labels(
    features: Annotated[Path, typer.Argument(help="Folder of .h5 files with coords, one per slide.")],
    annotations: Annotated[
        Path, typer.Option(help="Folder of <slide>.xml (ASAP, CAMELYON16) or <slide>.geojson (QuPath).")
    ],
    out: Annotated[Path, typer.Option(help="CSV file to write: bag_id, instance, instance_label.")],
    least: Annotated[
        float, typer.Option(help="Share of a patch that is tumour, from which it is positive.")
    ] = 0.2,
    positive: Annotated[
        list[str] | None, typer.Option(help="Group or class that is tumour; else Tumor, _0, _1. May be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Group cut out of it; else Exclusion, Normal, _2. May be repeated.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Group or class that is neither, such as Tissue. May be repeated.")
    ] = None,
    unannotated: Annotated[
        str, typer.Option(help="Slides without annotation: refuse, negative (all patches are 0), or skip.")
    ] = "refuse",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Label patches by outlines of tumour: 1 where at least a fifth of a patch is tumour, else 0.

    Both outlines and coords count level-0 pixels. In CAMELYON16 slides without an annotation have no tumour: say
    so with --unannotated negative, and make sure that no annotation is missing.

    Example: miue data patch-labels features --annotations xml --unannotated negative --out patch-labels.csv
    """
    from miue.common.errors import ConfigError, unknown_name
    from miue.pathology.annotations import Groups
    from miue.pathology.patch_labels import Labelling, write_patch_labels

    if unannotated not in UNANNOTATED:
        raise unknown_name("treatment of slides without annotation", unannotated, UNANNOTATED)
    if not 0 < least <= 1:
        raise ConfigError(item="--least", wanted="a share above 0 up to 1", got=str(least), fix="write 0.2, say")
    usual = Groups()
    groups = Groups(
        tuple(positive or usual.positive), tuple(exclude or usual.excluded), tuple(ignore or usual.ignored)
    )
    how = Labelling(annotations, least, groups, unannotated == "negative")
    files, without = files_of(features, annotations, skip=unannotated == "skip")
    counts = Counter[str]()
    write_patch_labels(out, labelled(files, how, counts, quiet))
    left_out = f"; {without:,} slides without annotation: {unannotated}" if without else ""
    tumour = f"{counts['tumour']:,} of {counts['patches']:,} patches"
    say(f"{tumour} of {len(files):,} slides are tumour{left_out}: {out}")


def files_of(features: Path, annotations: Path, *, skip: bool) -> tuple[list[Path], int]:
    """Return the files to label, and how many slides have no annotation; ``skip`` leaves these out.

    Raises:
        StorageError: no files, or no folder of annotations.
    """
    from miue.common.errors import StorageError
    from miue.pathology.annotations import find_annotation

    files = sorted(features.glob("*.h5"))
    if not files:
        raise StorageError(
            item=f"{str(features)!r}", wanted="a folder of .h5 files", got="none in it", fix="check the folder"
        )
    annotated = [file for file in files if find_annotation(annotations, file.stem) is not None]
    return annotated if skip else files, len(files) - len(annotated)


def labelled(files: list[Path], how: Any, counts: Counter[str], quiet: bool) -> Iterator[tuple[str, Any]]:
    """Yield each slide with the labels of its patches, and count them."""
    from rich.progress import track

    from miue.pathology.patch_labels import patch_labels

    for file in track(files, "Slides", console=Console(stderr=True), disable=quiet):
        labels = patch_labels(file, how)
        counts.update(patches=len(labels), tumour=int(labels.sum()))
        yield file.stem, labels
