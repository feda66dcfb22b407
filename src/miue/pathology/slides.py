"""Whole slide images through OpenSlide: found by id, opened with care (``pip install miue[slides]``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from miue.common.errors import StorageError, no_such_file, not_readable
from miue.common.escapes import shortened
from miue.common.extras import import_extra

SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".svslide", ".bif", ".vms", ".vmu", ".czi", ".dcm"),
)
"""What OpenSlide reads."""


def find_slide(folder: Path, slide: str) -> Path:
    """Return the file of ``slide`` in ``folder``: the id, with or without a suffix that OpenSlide reads.

    Raises:
        StorageError: no folder, or no such file in it.
    """
    if folder.is_dir():
        for file in sorted(folder.iterdir()):
            same = file.name == slide or file.stem == slide
            if same and file.suffix.lower() in SUFFIXES and file.is_file():
                return file
    raise StorageError(
        item=f"slide {slide!r}",
        wanted=f"a file {slide}.svs, .tif, .ndpi, .mrxs, … in {str(folder)!r}",
        got="no such file" if folder.is_dir() else "no such folder",
        fix="check --slides; the file's name is the bag's id",
    )


@contextmanager
def open_slide(path: Path) -> Iterator[Any]:
    """Yield the opened slide (an ``openslide.OpenSlide``); errors while reading it are ours as well.

    Raises:
        ConfigError: OpenSlide is not installed.
        StorageError: a file that OpenSlide cannot open or read.
    """
    openslide = import_extra("openslide", "reading slides", "slides")
    if not path.is_file():
        raise no_such_file(f"slide {str(path)!r}")
    try:
        with openslide.OpenSlide(str(path)) as slide:
            yield slide
    except (openslide.OpenSlideError, OSError) as error:
        if (kind := image_format(path)) is None:
            fix = "check that the file is whole"
            raise not_readable(f"slide {str(path)!r}", "an image that OpenSlide reads", error, fix) from error
        raise StorageError(
            item=f"slide {str(path)!r}",
            wanted="an image that OpenSlide reads: tiled TIFF, SVS, NDPI, MRXS, SCN, BIF, VMS, DICOM",
            got=f"{kind} that it does not read ({shortened(str(error))})",
            fix="convert it: vips tiffsave IN OUT.tif --tile --pyramid --compression jpeg, and pass --mpp if the "
            "pixel width is lost",
        ) from error


def image_format(path: Path) -> str | None:
    """Return the format that the first bytes of a file show, None for another."""
    with path.open("rb") as file:
        first = file.read(1 << 16)
    if first[128:132] == b"DICM":
        return "DICOM"
    if first[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        is_ome = ".ome." in path.name.lower() or b"<OME" in first
        return "OME-TIFF" if is_ome else "TIFF"
    starts = {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"BM": "BMP", b"ZISRAWFILE": "CZI"}
    return next((name for start, name in starts.items() if first.startswith(start)), None)


def bounds_origin(slide: Any) -> tuple[int, int]:
    """Return the level-0 pixel at which the scanned region begins, (0, 0) where the slide states none."""
    return tuple(int(slide.properties.get(f"openslide.bounds-{axis}", 0)) for axis in "xy")  # type: ignore[return-value]


def microns_per_pixel(slide: Any) -> float | None:
    """Return the width of a level-0 pixel in µm; None where the slide does not state it."""
    try:
        value = float(slide.properties["openslide.mpp-x"])
    except (KeyError, ValueError):
        return None
    return value if value > 0 else None


def thumbnail(slide: Any, longest: int) -> UInt8[np.ndarray, "height width 3"]:
    """Return the whole slide, its longer side at most ``longest`` pixels."""
    return np.asarray(slide.get_thumbnail((longest, longest)).convert("RGB"))
