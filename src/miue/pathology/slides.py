"""Files named after slides, and whole slide images through OpenSlide (``pip install miue[slides]``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import UInt8

from miue.bags.names import strip_endings
from miue.common.errors import StorageError, first_few, import_extra, not_a_folder, not_readable, not_stated
from miue.common.files import open_file
from miue.common.text import shortened

SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".svslide", ".bif", ".vms", ".vmu", ".czi", ".dcm"),
)
"""What OpenSlide reads."""
CONVERT = "convert it: vips tiffsave IN OUT.tif --tile --pyramid --compression jpeg"
MOST_PIXELS = 1 << 28  # of the smallest level, which is read whole for a thumbnail
COARSEST = 20.0
"""Widest pixel of a slide in µm (8 at 1.25×). Wider ones are of print: 353 at 72 dpi, 1,000 of vips by default."""
OME_LENGTHS = {"nm": 1e-3, "µm": 1.0, "mm": 1e3, "cm": 1e4}
"""Units of OME-XML, in µm."""


Files = TypeVar("Files", bound="FilesByName")


@dataclass(frozen=True)
class FilesByName:
    """The files in a folder, by the names that a slide may have.

    Attributes:
        folder: that they are in.
        by_name: the files by their names, by these without a suffix, and by what ``strip_endings`` leaves of that.
    """

    folder: Path
    by_name: tuple[Mapping[str, Sequence[Path]], ...]

    @classmethod
    def index(cls: type[Files], folder: Path, files: Iterable[Path]) -> Files:
        """Return these files of a folder by their names; those of one name stay in their order."""
        by_name: tuple[dict[str, list[Path]], ...] = ({}, {}, {})
        for file in files:
            for named, name in zip(by_name, (file.name, file.stem, strip_endings(file.stem)), strict=True):
                named.setdefault(name, []).append(file)
        return cls(folder, by_name)

    def named(self, slide: str) -> Sequence[Path]:
        """Return the files of a slide: of its name, else of its name as bags are joined by names."""
        names = (slide, slide, strip_endings(slide))
        found = (files.get(name, ()) for files, name in zip(self.by_name, names, strict=True))
        return next(filter(None, found), ())


def files_with_endings(folder: Path, endings: Collection[str], wanted: str, fix: str) -> list[Path]:
    """Return the files of a folder with one of ``endings``, in lower case, whatever the case of theirs; sorted.

    Raises:
        StorageError: no such folder, or one that may not be read; ``wanted`` and ``fix`` are for its message.
    """
    try:
        if not folder.is_dir():
            raise not_a_folder(folder, wanted, fix)
        return sorted(file for file in folder.iterdir() if file.suffix.lower() in endings and file.is_file())
    except OSError as error:
        raise not_stated(error.filename or folder, error) from error


class SlideFiles(FilesByName):
    """The slides in a folder."""

    @classmethod
    def at(cls, folder: Path) -> SlideFiles:
        """Return the slides of a folder, which is looked through once for all of them.

        Raises:
            StorageError: no such folder, or one that may not be read.
        """
        return cls.index(folder, files_with_endings(folder, SUFFIXES, "a folder of slides", "check --slides"))

    def of_slide(self, slide: str) -> Path:
        """Return the file of ``slide``: of its name, else of its name as bags are joined by names.

        Raises:
            StorageError: there is none, or are several.
        """
        files = self.named(slide)
        if len(files) == 1:
            return files[0]
        raise StorageError(
            item=f"slide {slide!r}",
            wanted=f"a file {slide}.svs, .tif, .ndpi, .mrxs, … in {str(self.folder)!r}",
            got=f"{len(files)} such files: {first_few(file.name for file in files)}" if files else "no such file",
            fix="put all but one elsewhere" if files else "check --slides; the file's name is the bag's id",
        )


@contextmanager
def open_slide(path: Path) -> Iterator[Any]:
    """Yield the opened slide (an ``openslide.OpenSlide``); errors while reading it are ours as well.

    Raises:
        ConfigError: OpenSlide is not installed.
        StorageError: a file that OpenSlide cannot open or read, or an OME-TIFF whose channels are no colors.
    """
    openslide = import_extra("openslide", "reading slides", "slides")
    open_file(path, f"slide {str(path)!r}").close()
    is_open = False
    try:
        with _opened(openslide, path) as slide:
            is_open = True
            _check_colors(slide, path)
            yield slide
    except (openslide.OpenSlideError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # another file, in use beside the slide
            raise not_stated(error.filename, error) from error
        if is_open:
            fix = "copy it again: it is damaged or cut off"
            raise not_readable(f"slide {str(path)!r}", "a slide that is whole", error, fix) from error
        if (kind := image_format(path)) is None:
            fix = "check that the file is whole"
            raise not_readable(f"slide {str(path)!r}", "an image that OpenSlide reads", error, fix) from error
        raise StorageError(
            item=f"slide {str(path)!r}",
            wanted="an image that OpenSlide reads: tiled TIFF, SVS, NDPI, MRXS, SCN, BIF, VMS, DICOM",
            got=f"{kind} that it does not read ({shortened(str(error))})",
            fix=f"check that the file is whole; if it is, {CONVERT}, and pass --mpp if the pixel width is lost",
        ) from error


def _opened(openslide: Any, path: Path) -> Any:
    """Return a slide; where a link to it lacks the files beside the slide, the slide that it leads to."""
    try:
        return openslide.OpenSlide(str(path))
    except openslide.OpenSlideError:
        if not path.is_symlink():
            raise
        return openslide.OpenSlide(str(path.resolve()))


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


def _ome_pixels(slide: Any) -> Any | None:
    """Return the element of OME-XML that describes the pixels of an OME-TIFF, None for another slide."""
    text = slide.properties.get("tiff.ImageDescription", "")
    if "<OME" not in text:
        return None
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        return fromstring(text.encode(), forbid_dtd=True).find("{*}Image/{*}Pixels")
    except (ParseError, DefusedXmlException):
        return None


def _check_colors(slide: Any, path: Path) -> None:
    """Raise where an OME-TIFF has channels in planes of their own, of which OpenSlide reads the first as gray.

    OME-XML that describes no channel does not say so, and passes.

    Raises:
        StorageError: it has.
    """
    pixels = _ome_pixels(slide)
    channel = None if pixels is None else pixels.find("{*}Channel")
    if pixels is None or channel is None or pixels.get("SizeC", "3") == "3" == channel.get("SamplesPerPixel"):
        return
    raise StorageError(
        item=f"slide {str(path)!r}",
        wanted="an OME-TIFF of one color image (red, green and blue in each pixel)",
        got=f"{pixels.get('SizeC')} channels in planes of their own",
        fix="write its colors into one plane: bfconvert, or vips bandjoin, then tiffsave --tile --pyramid",
    )


def bounds_origin(slide: Any) -> tuple[int, int]:
    """Return the level-0 pixel at which the scanned region begins, (0, 0) where the slide states none."""
    return tuple(int(slide.properties.get(f"openslide.bounds-{axis}", 0)) for axis in "xy")  # type: ignore[return-value]


def microns_per_pixel(slide: Any) -> float | None:
    """Return the width of a level-0 pixel in µm, as OpenSlide or OME-XML states it; None where neither does.

    A width that no slide has is that of a printed picture, which programs write where they know none.
    """
    return next((width for width in stated_widths(slide) if width <= COARSEST), None)


def stated_widths(slide: Any) -> list[float]:
    """Return the widths of a level-0 pixel in µm that OpenSlide and OME-XML state, above 0."""
    pixels = _ome_pixels(slide)
    ome = {} if pixels is None else pixels.attrib
    unit = OME_LENGTHS.get(ome.get("PhysicalSizeXUnit", "µm"), 0.0)
    stated = ((slide.properties.get("openslide.mpp-x", ""), 1.0), (ome.get("PhysicalSizeX", ""), unit))
    widths = []
    for text, factor in stated:
        with suppress(ValueError):
            widths.append(float(text) * factor)
    return [width for width in widths if width > 0]


def thumbnail(slide: Any, longest: int) -> UInt8[np.ndarray, "height width 3"]:
    """Return the whole slide, its longer side at most ``longest`` pixels.

    Raises:
        StorageError: even its smallest level is too large to be read whole.
    """
    width, height = slide.level_dimensions[-1]
    if width * height > MOST_PIXELS:
        raise StorageError(
            item="the slide",
            wanted=f"a smaller level, of at most {MOST_PIXELS / 1e6:.0f} million pixels",
            got=f"{width} × {height} as the smallest that OpenSlide reads (it reads one level of an OME-TIFF)",
            fix=CONVERT,
        )
    return np.asarray(slide.get_thumbnail((longest, longest)).convert("RGB"))
