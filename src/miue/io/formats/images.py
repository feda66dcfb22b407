"""A folder of images of one size: its images are the instances of a bag."""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from miue.common.errors import DataError
from miue.common.files import open_file
from miue.io.formats.base import OpenFile, bag_error, refuse_bytes, refusing

ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".tif", ".tiff", ".bmp", ".webp", ".gif")
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF")  # the decoders that a file may ask for
GRAY, WITH_ALPHA = ("1", "L", "LA"), ("LA", "PA", "RGBA", "La", "RGBa")
EIGHT_BITS = (*GRAY, *WITH_ALPHA, "P", "RGB", "CMYK", "YCbCr")
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, Image.DecompressionBombError)
SIDEWAYS = (5, 6, 7, 8)  # orientations of EXIF in which width and height change places
REMEMBERED = 1024  # folders of which sizes are not looked up again


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder in the order of their names, numbers by value."""
    files = [path for path in folder.iterdir() if _is_image(path)]
    return sorted(files, key=lambda path: (_by_value(path.name), path.name))


def has_images(folder: Path) -> bool:
    """Return whether there is an image in a folder."""
    return any(_is_image(path) for path in folder.iterdir())


@contextmanager
def open_images(folder: Path) -> Iterator[OpenFile]:
    """Open the images of a folder, each of which is read where it is needed.

    Gray images have one channel, in a folder with a colored one three; transparent pixels are on white. An image
    that its EXIF data turns is read as it is shown.

    Raises:
        DataError: an image that is damaged, of more than 8 bits, or of another size than the first.
    """
    images = Images(folder)
    notes = (f"files of other kinds were not read: {', '.join(images.others)}",) if images.others else ()
    yield OpenFile(format="images", features=images, notes=notes)


class Images:
    """The images of a folder as one array of bytes (n, H, W) or (n, H, W, 3).

    Args:
        folder: with at least one image.

    Raises:
        DataError: none, one of another size, or one that is no image of 8 bits.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, folder: Path) -> None:
        self.paths, self.shape, self.others = _headers(folder, _folder_state(folder))

    def __getitem__(self, span: Any) -> UInt8[np.ndarray, "n ..."]:
        found = [self._read(path) for path in self.paths[span]]
        return np.stack(found) if found else np.zeros((0, *self.shape[1:]), np.uint8)

    def _read(self, path: Path) -> UInt8[np.ndarray, "..."]:
        with _opened(path) as image:
            if _orientation(image) > 1:
                image = ImageOps.exif_transpose(image)
            if image.mode in WITH_ALPHA or "transparency" in image.info:
                over = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
            pixels = np.asarray(image.convert("L" if len(self.shape) == 3 else "RGB"))
        if pixels.shape != self.shape[1:]:
            raise _other_size(path, self.shape[2:0:-1], pixels.shape[1::-1])
        return pixels


@lru_cache(maxsize=REMEMBERED)
def _headers(folder: Path, _state: bytes) -> tuple[tuple[Path, ...], tuple[int, ...], tuple[str, ...]]:
    """Return the images of a folder, the shape of all together, and the endings of other files.

    The header of each image is looked at, once while the state of the folder stays the same.
    """
    paths, sizes, is_gray = tuple(image_files(folder)), [], True
    for path in paths:
        with _opened(path) as image:
            if image.mode not in EIGHT_BITS or _has_16_bits(image):
                got = "16 bits a channel" if image.mode in EIGHT_BITS else f"mode {image.mode}"
                raise bag_error(path, "an image of 8 bits", got, "save it with 8 bits a channel")
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                fix = "save each in a file of its own; slides are to be tiled"
                raise bag_error(path, "one image", f"{frames}", fix)
            refuse_bytes(path, 3 * image.width * image.height)
            sizes.append(image.size[::-1] if _orientation(image) in SIDEWAYS else image.size)
            is_gray = is_gray and image.mode in GRAY
        if sizes[-1] != sizes[0]:
            raise _other_size(path, sizes[0], sizes[-1])
    if not paths:
        raise bag_error(folder, f"images ({', '.join(ENDINGS)})", "none", "check the path")
    width, height = sizes[0]
    others = (path for path in folder.iterdir() if not path.name.startswith(".") and not _is_image(path))
    endings = {path.suffix.lower() or path.name for path in others}
    shape = (len(paths), height, width) if is_gray else (len(paths), height, width, 3)
    return paths, shape, tuple(sorted(endings))


def _folder_state(folder: Path) -> bytes:
    """Return a digest that changes with each file of a folder, whose own time stays when one is written over."""
    digest = hashlib.blake2b(digest_size=16)
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                found = entry.stat()
                times = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
            except OSError:  # a link to nothing
                times = ""
            digest.update(os.fsencode(entry.name) + f"/{times}/".encode())
    return digest.digest()


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    fix = "save this image again, or leave its folder out (skip_bad=True)"
    with refusing(path, "an image that can be read", *UNREADABLE, fix=fix), open_file(path) as file:
        try:  # by its path, Pillow 13 maps a gray TIFF into memory with width and height exchanged, if sideways
            image = Image.open(file, formats=FORMATS)
        except UnidentifiedImageError as error:
            raise ValueError(f"no {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from error
        with image:
            yield image


def _has_16_bits(image: Image.Image) -> bool:
    """Return whether the file has 16 bits a channel; of those in color, Pillow silently reads the upper 8."""
    if isinstance(image, TiffImageFile):
        return max(image.tag_v2.get(BITSPERSAMPLE, (1,))) > 8
    return isinstance(image, PngImageFile) and ";16" in str(image.tile[0].args)


def _orientation(image: Image.Image) -> int:
    """Return how EXIF data turn an image, 1 where not, or where they are damaged; Pillow itself turns a TIFF."""
    if image.format == "TIFF":
        return 1
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (*UNREADABLE, struct.error):
        return 1


def _other_size(path: Path, wanted: tuple[int, ...], got: tuple[int, ...]) -> DataError:
    return bag_error(
        path,
        f"{wanted[0]} × {wanted[1]} pixels as in the first image of its folder",
        f"{got[0]} × {got[1]}",
        "crop or resize all images to one size, or leave the folder out (skip_bad=True)",
    )


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".") and not path.is_dir()


def _by_value(name: str) -> list[tuple[int, int, str]]:
    """Return a key in which numbers count by value, before text.

    >>> sorted(["10.png", "9.png", "a2", "a10", "a", "²"], key=_by_value)
    ['9.png', '10.png', 'a', 'a2', 'a10', '²']
    """
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
