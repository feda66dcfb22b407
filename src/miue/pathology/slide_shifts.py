"""Shifted copies of slides: the patches of a tiling read again, shifted, and encoded as the originals were."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from miue.common.errors import DataError, StorageError
from miue.common.files import atomic_file, open_file
from miue.common.seeds import derive_seed
from miue.pathology.patch_encoders import PLAIN, PatchEncoder, open_encoder
from miue.pathology.slides import open_slide
from miue.pathology.stain_shifts import StainShift
from miue.pathology.tile_files import Tiles, is_of_slide, read_attributes, read_tiles, states, write_features
from miue.pathology.tiling import Follow, Tiling, cut_tiles, encoded_patches, is_cut_so, report_corners

GAP = 4  # white pixels between the patches of a picture


@dataclass(frozen=True)
class SlideShift:
    """What is done to the patches of slides.

    Attributes:
        shift: kind and strength.
        seed: what is drawn for a slide depends on it and on the slide's name alone.
        encoder: what makes features of patches.
        tiles: a folder of files of patches whose coords are taken, or how slides are cut anew.
        pictures: patches that are also drawn, before and after, as a PNG of each slide, at most all; 0 for none.
    """

    shift: StainShift
    seed: int
    encoder: PatchEncoder
    tiles: Path | Tiling
    pictures: int = 0

    def attributes(self) -> dict[str, Any]:
        """Return what is kept beside the features."""
        record = {"encoder": self.encoder.name, **self.encoder.attributes}
        return {**record, "shift": self.shift.kind, "strength": self.shift.strength, **self.shift.parameters} | {
            "seed": self.seed
        }


def shift_slide(path: Path, out: Path, how: SlideShift, follow: Follow = iter) -> int:
    """Write the features of a slide's shifted patches to ``out``; return how many there are.

    Args:
        path: a slide that OpenSlide reads.
        out: the .h5 file; pictures go into ``pictures`` beside it.
        how: which shift, of which patches.
        follow: yields the corners it gets, and may show how far it is.

    Raises:
        StorageError: a slide or a tiling that cannot be read, or a file that cannot be written.
        DataError: a tiling of another slide or encoder; else as ``tile_slide`` does.
    """
    random = np.random.default_rng(derive_seed(how.seed, *path.stem.encode()))
    with open_slide(path) as slide:
        attributes = {**how.attributes(), "slide_bytes": path.stat().st_size}
        tiles = (
            cut_tiles(slide, path, how.tiles) if isinstance(how.tiles, Tiling) else _tiles_there(slide, path, how)
        )
        shift = how.shift.of_slide(random)
        shown = _Shown(_positions_shown(how.pictures, len(tiles.coords)))

        def change(patches: np.ndarray) -> np.ndarray:
            return shown.keep(patches, shift(patches))

        features, statistics = encoded_patches(slide, tiles, how.encoder, change, follow)
    if how.pictures:
        _write_picture(_picture_of(out), before_and_after(*shown.patches()))
    write_features(out, features, statistics, tiles, attributes)
    return len(features)


def shift_task(slide: str, out: str, shift: Mapping[str, Any], encoder: Mapping[str, Any]) -> int:
    """Write a shifted copy of a slide and return how many patches it has; ``shift`` as ``read_shift`` takes it."""
    return shift_slide(Path(slide), Path(out), read_shift(shift, encoder), report_corners)


def read_shift(shift: Mapping[str, Any], encoder: Mapping[str, Any]) -> SlideShift:
    """Return the shift that JSON values describe.

    Args:
        shift: kind, strength, drawn_per, seed, pictures, and tiles: a folder, or arguments of ``Tiling``.
        encoder: arguments of ``open_encoder``.
    """
    tiles = shift["tiles"]
    where = Path(tiles) if isinstance(tiles, str) else Tiling(**tiles)
    stains = StainShift(shift["kind"], shift["strength"], shift["drawn_per"])
    return SlideShift(stains, shift["seed"], open_encoder(**encoder), where, shift["pictures"])


def is_shifted_so(out: Path, slide: Path, how: SlideShift) -> bool:
    """Return whether ``out`` was written of this slide, with this shift and of these patches.

    Raises:
        StorageError: it, or the tiling, cannot be read; or the picture that is asked for was not drawn.
    """
    of_features, of_coords = read_attributes(out)
    if not (is_of_slide(of_features, slide) and states(of_features, how.attributes())):
        return False
    if isinstance(how.tiles, Tiling):
        is_cut = is_cut_so(of_coords, how.tiles)
    else:
        is_cut = _is_of_these_patches(out, _file_of(how.tiles, slide.stem))
    if is_cut and how.pictures:
        shown = _positions_shown(how.pictures, len(read_tiles(out).coords))
        _check_picture(_picture_of(out), len(shown), int(of_coords["patch_size"]))
    return is_cut


def before_and_after(
    before: UInt8[np.ndarray, "n side side 3"], after: UInt8[np.ndarray, "n side side 3"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Return a picture of patches in a row, and what became of each below it."""
    padding = ((0, 0), (0, GAP), (0, GAP), (0, 0))
    rows = [np.concatenate(list(np.pad(images, padding, constant_values=255)), 1) for images in (before, after)]
    return np.concatenate(rows, 0)


class _Shown:
    """Keeps some patches, by their position among all, as they pass by batch after batch."""

    def __init__(self, positions: np.ndarray) -> None:
        self.positions = positions
        self.passed = 0
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []

    def keep(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Keep those of this batch that are wanted, and return ``after``."""
        here = self.positions[(self.positions >= self.passed) & (self.positions < self.passed + len(before))]
        self.kept += [(before[position], after[position]) for position in here - self.passed]
        self.passed += len(before)
        return after

    def patches(self) -> tuple[np.ndarray, np.ndarray]:
        """Return those kept, before and after."""
        before, after = zip(*self.kept, strict=True)
        return np.stack(before), np.stack(after)


def _positions_shown(pictures: int, patches: int) -> Int64[np.ndarray, "k"]:
    """Return which patches of a slide are drawn, evenly spread over all: each once, where more are asked for."""
    return np.linspace(0, patches - 1, min(pictures, patches)).round().astype(np.int64)


def _tiles_there(slide: Any, path: Path, how: SlideShift) -> Tiles:
    assert isinstance(how.tiles, Path)
    file = _file_of(how.tiles, path.stem)
    tiles = read_tiles(file)
    width, height = slide.dimensions
    try:
        of_features: Mapping[str, Any] = read_attributes(file)[0]
    except StorageError:  # coords alone, without features
        of_features = {}
    _refuse_other_slide(file, tiles, of_features, path, (width, height))
    if (tiles.coords + tiles.step > (width, height)).any():
        raise DataError(
            item=f"coords of {str(file)!r}",
            wanted=f"patches within the slide's {width} × {height} pixels",
            got=f"one that ends at {tuple((tiles.coords + tiles.step).max(0).tolist())}",
            fix="check that the tiling is of this slide",
        )
    _refuse_other_encoder(file, of_features, how.encoder)
    return tiles


def _refuse_other_slide(
    file: Path, tiles: Tiles, of_features: Mapping[str, Any], path: Path, size: tuple[int, int]
) -> None:
    """Raise where a tiling states a slide of other pixels, or features of another file of this name."""
    sides = tuple(tiles.attributes.get(name) for name in ("level0_width", "level0_height"))
    is_stated = all(isinstance(side, int | np.integer) for side in sides)  # TRIDENT writes 'None' where it is not
    is_other = is_stated and sides != size
    if is_other or not is_of_slide(of_features, path):
        raise DataError(
            item=f"coords of {str(file)!r}",
            wanted=f"patches of {str(path)!r}, a slide of {size[0]} × {size[1]} pixels",
            got="those of another slide of this name" + (f", of {sides[0]} × {sides[1]}" if is_other else ""),
            fix="check --tiles, or leave it out to cut the slide anew",
        )


def _refuse_other_encoder(file: Path, there: Mapping[str, Any], encoder: PatchEncoder) -> None:
    """Raise where the tiling's features are of ours and of another encoder: the two could not be compared."""
    ours = "encoder_sha256" in there or states(there, {"encoder": PLAIN})
    if ours and not states(there, {"encoder": encoder.name, **encoder.attributes}):
        raise DataError(
            item=f"features of {str(file)!r}",
            wanted=f"those of the encoder {encoder.name!r}, so that shifted ones can be compared with them",
            got=f"{there.get('encoder')!r}, or another version or normalization of it",
            fix="pass the --patch-encoder and --normalization that made them",
        )


def _is_of_these_patches(out: Path, tiles: Path) -> bool:
    """Return whether a file has the patches of a tiling, of the same size."""
    here, there = read_tiles(out), read_tiles(tiles)
    same_sides = (here.step, here.patch_px) == (there.step, there.patch_px)
    return np.array_equal(here.coords, there.coords) and same_sides


def _picture_of(out: Path) -> Path:
    """Return the picture of the patches of a file of features."""
    return out.parent / "pictures" / f"{out.stem}.png"


def _check_picture(path: Path, count: int, side: int) -> None:
    """Raise where a picture of ``count`` patches is asked for and the one that is there is none or of others."""
    from PIL import Image

    width = 0
    with suppress(StorageError, OSError), open_file(path) as file, Image.open(file) as picture:
        width = picture.width
    if width != count * (side + GAP):
        raise StorageError(
            item=f"{str(path)!r}",
            wanted=f"a picture of {count} patches",
            got="one of others" if width else "none, beside features that are there",
            fix="pass --overwrite to shift and draw them again, or leave out --pictures",
        )


def _file_of(folder: Path, name: str) -> Path:
    """Return the file of a slide's patches; TRIDENT calls that of the coords alone ``<slide>_patches.h5``."""
    names = (f"{name}.h5", f"{name}_patches.h5")
    found = next((file for file in map(folder.joinpath, names) if file.is_file()), None)
    if found is None:
        raise StorageError(
            item=f"slide {name!r}",
            wanted=f"its patches in {str(folder)!r}, in {names[0]} or {names[1]}",
            got="no such file",
            fix="check --tiles, or leave it out to cut the slide anew",
        )
    return found


def _write_picture(path: Path, picture: np.ndarray) -> None:
    from PIL import Image

    with atomic_file(path) as temporary:
        Image.fromarray(picture).save(temporary, "PNG")
