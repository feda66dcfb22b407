"""Slides as a page shows them: tiles of a pyramid and pictures of patches, of which a bounded number is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from miue.common.errors import StorageError, import_extra, not_readable
from miue.pathology.slides import CONVERT, microns_per_pixel, open_slide
from miue.view.mosaic import Mosaic

TILE, OVERLAP = 510, 1  # pixels of a tile without the margin that it shares with its neighbors
COARSEST = 8  # level of the pyramid with which it begins: one tile
MOST_READ = 1 << 22  # pixels of a slide that are read for one tile
OPEN, DECODED, KEPT = 4, 32 << 20, 32 << 20  # slides; bytes of their pixels; bytes of tiles as JPEG
QUALITY = 82
PATCH = 160  # pixels of the picture of a patch

Value = TypeVar("Value")
Source = Path | Mosaic
"""What is shown: the file of a slide, or the images of a bag."""


class Kept(Generic[Value]):
    """The values that were asked for last, up to a size.

    Args:
        most: size of all that is kept.
        size: of a value.
    """

    def __init__(self, most: int, size: Callable[[Value], int] = lambda value: 1) -> None:
        self._most, self._size, self._total = most, size, 0
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, which is made where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._total += self._size(value)
            while self._total > self._most and len(self._values) > 1:
                self._total -= self._size(self._values.popitem(last=False)[1])
        return value

    def forget(self, key: Hashable) -> None:
        """Leave a value out from now on."""
        with self._lock:
            if key in self._values:
                self._total -= self._size(self._values.pop(key))


@dataclass(frozen=True)
class Pyramid:
    """An opened slide.

    Attributes:
        slide: of OpenSlide.
        tiles: its tiles, of DeepZoom.
        first: coarsest level of which a tile does not need too many pixels of the slide.
    """

    slide: Any
    tiles: Any
    first: int

    def to_json(self) -> dict[str, Any]:
        """Return what the page asks tiles by."""
        width, height = self.slide.dimensions
        return {
            "width": width,
            "height": height,
            "micronsPerPixel": microns_per_pixel(self.slide),
            "tileSize": TILE,
            "overlap": OVERLAP,
            "minLevel": self.first,
            "maxLevel": self.tiles.level_count - 1,
        }


class SlideTiles:
    """Tiles of slides as JPEG, for several threads at once."""

    def __init__(self) -> None:
        self._openslide = import_extra("openslide", "reading slides", "slides")
        self._decoded = self._openslide.OpenSlideCache(DECODED)
        self._pyramids: Kept[Pyramid] = Kept(OPEN)
        self._tiles: Kept[bytes] = Kept(KEPT, len)
        self._opening = Lock()

    def pyramid(self, source: Source) -> Pyramid:
        """Return a slide, or the images of a bag, which stays open while it is in use.

        Raises:
            StorageError: a file that cannot be opened.
        """
        with self._opening:
            return self._pyramids.get(source, lambda: self._open(source))

    def tile(self, source: Source, level: int, column: int, row: int) -> bytes | None:
        """Return a tile, None where there is no such one.

        Raises:
            StorageError: a slide that cannot be read there.
        """
        pyramid = self.pyramid(source)
        if not pyramid.first <= level < pyramid.tiles.level_count:
            return None
        columns, rows = pyramid.tiles.level_tiles[level]
        if column >= columns or row >= rows:
            return None
        return self._tiles.get(
            (source, level, column, row),
            lambda: self._read(source, lambda: pyramid.tiles.get_tile(level, (column, row))),
        )

    def patch(self, source: Source, x: int, y: int, side: int) -> bytes:
        """Return a picture of a square of the slide, which may reach beyond it.

        Raises:
            StorageError: a slide that cannot be read there.
        """
        slide = self.pyramid(source).slide

        def read() -> Any:
            level = slide.get_best_level_for_downsample(max(1.0, side / PATCH))
            pixels = max(1, round(side / slide.level_downsamples[level]))
            if pixels**2 > MOST_READ:
                raise _too_large(source)
            region = slide.read_region((x, y), level, (pixels, pixels))
            region.thumbnail((PATCH, PATCH))
            return _on_white(region)

        return self._tiles.get((source, x, y, side), lambda: self._read(source, read))

    def _open(self, source: Source) -> Pyramid:
        from openslide.deepzoom import DeepZoomGenerator

        if isinstance(source, Mosaic):
            slide = self._openslide.ImageSlide(source.draw())
        else:
            with open_slide(source):  # which says what is wrong with one that cannot be shown
                pass
            slide = self._openslide.OpenSlide(str(source.resolve()))  # closed with the last who holds it
            slide.set_cache(self._decoded)
        tiles = DeepZoomGenerator(slide, TILE, OVERLAP, limit_bounds=False)
        for level in range(min(COARSEST, tiles.level_count - 1), tiles.level_count):
            width, height = tiles.get_tile_coordinates(level, (0, 0))[2]
            if width * height <= MOST_READ:
                return Pyramid(slide, tiles, level)
        raise _too_large(source)

    def _read(self, source: Source, read: Callable[[], Any]) -> bytes:
        """Return the picture that ``read`` returns as JPEG; a slide that fails once is opened again next time."""
        try:
            picture, written = read(), BytesIO()
            picture.save(written, "JPEG", quality=QUALITY)
        except (self._openslide.OpenSlideError, OSError) as error:
            self._pyramids.forget(source)
            fix = "copy it again: it is damaged or cut off"
            raise not_readable(f"slide {str(source)!r}", "a slide that is whole", error, fix) from error
        return written.getvalue()


def _on_white(region: Any) -> Any:
    from PIL import Image

    white = Image.new("RGB", region.size, "white")
    white.paste(region, mask=region.getchannel("A"))
    return white


def _too_large(source: Source) -> StorageError:
    wanted = f"levels of which at most {MOST_READ / 1e6:.0f} million pixels are read for a picture"
    return StorageError(item=f"slide {str(source)!r}", wanted=wanted, got="coarser ones are lacking", fix=CONVERT)
