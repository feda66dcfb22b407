"""Shifted copies of slides: the same patches, shifted as asked, in files that say what was done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import openslide
import pytest
import tifffile
from PIL import Image
from test_patch_encoders import Means, scripted
from typer.testing import CliRunner

from miue.cli.app import app
from miue.common.errors import DataError, StorageError
from miue.pathology.patch_encoders import color_texture, plain_encoder
from miue.pathology.slide_shifts import GAP, SlideShift, is_shifted_so
from miue.pathology.stain_shifts import StainShift, blurred
from miue.pathology.tile_files import Tiles, read_tiles, write_features


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["data", *map(str, words), "--quiet"])


def shift(slide: Path, out: Path, *words: object) -> Any:
    return run("shift", slide, "--kind", "hed", "--strength", "strong", "--out", out, *words)


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    """A made slide at 20×, 512 × 384 pixels: pink and violet tissue on the left, glass on the right."""
    random = np.random.default_rng(0)
    pixels = np.full((384, 512, 3), 240, np.uint8)
    tissue = np.where(random.random((384, 320, 1)) < 0.5, (190, 90, 150), (120, 60, 160))
    pixels[:, :320] = tissue + random.integers(-20, 20, tissue.shape)
    path = tmp_path / "made.tif"
    tifffile.imwrite(
        path, pixels, tile=(128, 128), photometric="rgb", resolution=(20000, 20000), resolutionunit="CENTIMETER"
    )
    return path


@pytest.fixture
def tiles(slide: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "tiles"
    result = run("tile", slide, "--out", folder, "--patch-px", 64)
    assert result.exit_code == 0, result.output
    return folder


def content(folder: Path, name: str = "made") -> tuple[np.ndarray, np.ndarray, dict[str, Any], dict[str, Any]]:
    with h5py.File(folder / f"{name}.h5") as file:
        features, coords = file["features"], file["coords"]
        return features[:], coords[:], dict(features.attrs), dict(coords.attrs)


def test_patches_of_a_tiling_are_read_shifted_and_encoded_in_its_order(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("--kind", "blur", "--strength", "light", "--tiles", tiles, "--out", out, "--pictures", 2)
    result = run("shift", slide, *words)
    assert result.exit_code == 0, result.output
    features, coords, about, sides = content(out)
    before, coords_before, _, _ = content(tiles)
    assert np.array_equal(coords, coords_before)
    assert len(coords) == 5 * 6  # 320 × 384 pixels of tissue
    with openslide.OpenSlide(str(slide)) as opened:
        corners = [(int(x), int(y)) for x, y in coords]
        patches = np.stack([np.asarray(opened.read_region(c, 0, (64, 64)).convert("RGB")) for c in corners])
    wanted = np.stack([color_texture(patch) for patch in blurred(patches, 1.0)])
    assert features == pytest.approx(wanted, abs=1e-6)
    assert not np.allclose(features, before)
    said = {name: about[name] for name in ("encoder", "shift", "strength", "sigma_px", "seed")}
    assert said == {"encoder": "color-texture", "shift": "blur", "strength": "light", "sigma_px": 1.0, "seed": 0}
    assert (sides["patch_size"], sides["patch_size_level0"], sides["target_magnification"]) == (64, 64, 20)
    picture = np.asarray(Image.open(out / "pictures" / "made.png"))
    assert picture.shape == (2 * (64 + GAP), 2 * (64 + GAP), 3)
    assert np.array_equal(picture[:64, :64], patches[0])
    assert np.array_equal(picture[64 + GAP : -GAP, 64 + GAP : -GAP], blurred(patches[-1:], 1.0)[0])


def test_without_a_tiling_the_slide_is_cut_as_tile_cuts_it(slide: Path, tiles: Path, tmp_path: Path) -> None:
    assert shift(slide, tmp_path / "a", "--tiles", tiles).exit_code == 0
    assert shift(slide, tmp_path / "b", "--patch-px", 64).exit_code == 0
    one, two = content(tmp_path / "a"), content(tmp_path / "b")
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])
    said = {name: one[2][name] for name in ("shift", "hed_range", "drawn_per")}
    assert said == {"shift": "hed", "hed_range": 0.2, "drawn_per": "patch"}


def test_a_shift_drawn_per_slide_is_one_for_all_batches_of_its_patches(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    """The network sees the mean of each patch; four batches of eight."""
    network = ("--patch-encoder", scripted(Means(), tmp_path / "net.pt"), "--batch", 8, "--device", "cpu")
    plain = ("--patch-px", 64, *network, "--normalization", "none")
    assert run("tile", slide, "--out", tmp_path / "before", *plain).exit_code == 0
    before = content(tmp_path / "before")[0][:, :3]
    spread = {}
    for drawn_per in ("patch", "slide"):
        out = tmp_path / drawn_per
        result = shift(slide, out, *plain, "--drawn-per", drawn_per)
        assert result.exit_code == 0, result.output
        features, _, about, _ = content(out)
        assert about["drawn_per"] == drawn_per
        spread[drawn_per] = (features[:, :3] - before).std(0).max()
    assert spread["slide"] < 0.2 * spread["patch"]
    assert isinstance(shift(slide, tmp_path / "patch", *plain, "--drawn-per", "slide").exception, StorageError)
    assert "1 already there" in shift(slide, tmp_path / "slide", *plain, "--drawn-per", "slide").output
    other = slide.with_name("other.tif")
    shutil.copy(slide, other)
    assert shift(other, tmp_path / "slide", *plain, "--drawn-per", "slide").exit_code == 0
    both = [content(tmp_path / "slide", name)[0] for name in ("made", "other")]
    assert np.abs(both[0].mean(0) - both[1].mean(0)).max() > 0.01


def test_what_is_drawn_depends_on_seed_and_slide_and_not_on_its_company(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    shutil.copy(slide, slide.with_name("other.tif"))
    shutil.copy(tiles / "made.h5", tiles / "other.h5")
    both = run(
        *("shift", slide.with_name("other.tif"), slide, "--kind", "hed", "--strength", "strong"),
        *("--tiles", tiles, "--out", tmp_path / "both"),
    )
    assert both.exit_code == 0, both.output
    assert shift(slide, tmp_path / "alone", "--tiles", tiles).exit_code == 0
    assert shift(slide, tmp_path / "seeded", "--tiles", tiles, "--seed", 1).exit_code == 0
    alone = content(tmp_path / "alone")[0]
    assert np.array_equal(alone, content(tmp_path / "both")[0])
    assert not np.allclose(alone, content(tmp_path / "both", "other")[0])
    assert not np.allclose(alone, content(tmp_path / "seeded")[0])


def test_the_coords_of_trident_are_found_by_their_name(slide: Path, tiles: Path, tmp_path: Path) -> None:
    """TRIDENT keeps the coords of a slide in ``patches/<slide>_patches.h5``, without features."""
    assert shift(slide, tmp_path / "a", "--tiles", tiles).exit_code == 0
    (tmp_path / "patches").mkdir()
    with (
        h5py.File(tiles / "made.h5") as ours,
        h5py.File(tmp_path / "patches" / "made_patches.h5", "w") as theirs,
    ):
        coords = theirs.create_dataset("coords", data=ours["coords"][()])
        coords.attrs.update({name: ours["coords"].attrs[name] for name in ("patch_size", "patch_size_level0")})
    result = shift(slide, tmp_path / "b", "--tiles", tmp_path / "patches")
    assert result.exit_code == 0, result.exception
    for ours, theirs in zip(content(tmp_path / "a")[:2], content(tmp_path / "b")[:2], strict=True):
        assert np.array_equal(ours, theirs)


def test_what_is_there_stays_unless_it_was_made_otherwise(slide: Path, tiles: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert shift(slide, out, "--tiles", tiles).exit_code == 0
    assert "1 already there" in shift(slide, out, "--tiles", tiles).output
    for words in (("--seed", 1), ("--strength", "light"), ("--kind", "blur")):
        assert isinstance(shift(slide, out, "--tiles", tiles, *words).exception, StorageError)
    assert isinstance(shift(slide, out, "--patch-px", 128).exception, StorageError)
    assert "1 already there" in shift(slide, out, "--patch-px", 64).output
    assert run("tile", slide, "--out", tiles, "--patch-px", 128, "--overwrite").exit_code == 0
    assert isinstance(shift(slide, out, "--tiles", tiles).exception, StorageError)
    assert shift(slide, out, "--tiles", tiles, "--overwrite").exit_code == 0
    assert len(content(out)[0]) == 3 * 3  # half of the third column is tissue


def test_pictures_that_are_asked_for_later_are_not_taken_for_drawn(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert shift(slide, out, "--tiles", tiles).exit_code == 0
    error = shift(slide, out, "--tiles", tiles, "--pictures", 2).exception
    assert isinstance(error, StorageError)
    assert "made.png': expected a picture of 2 patches" in str(error) and "--overwrite" in str(error)
    assert shift(slide, out, "--tiles", tiles, "--pictures", 2, "--overwrite").exit_code == 0
    assert "1 already there" in shift(slide, out, "--tiles", tiles, "--pictures", 2).output
    assert "1 already there" in shift(slide, out, "--tiles", tiles).output
    assert isinstance(shift(slide, out, "--tiles", tiles, "--pictures", 3).exception, StorageError)


def test_each_patch_is_drawn_once_where_more_pictures_are_asked_for(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    out, words = tmp_path / "out", ("--tiles", tiles, "--pictures", 1000)
    assert shift(slide, out, *words).exit_code == 0
    with Image.open(out / "pictures" / "made.png") as picture:
        assert picture.size == (len(content(out)[0]) * (64 + GAP), 2 * (64 + GAP))
    assert "1 already there" in shift(slide, out, *words).output


def test_a_shifted_copy_of_another_slide_of_the_same_name_is_not_kept(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    out, copy = tmp_path / "out", tmp_path / "second_hospital" / slide.name
    copy.parent.mkdir()
    copy.write_bytes(slide.read_bytes() + bytes(1))
    for words in (("--tiles", tiles), ("--patch-px", 64)):
        assert shift(slide, out, *words, "--overwrite").exit_code == 0
        assert isinstance(shift(copy, out, *words).exception, StorageError)


def test_the_patches_of_another_slide_of_the_same_name_are_not_shifted(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "second_hospital" / slide.name
    copy.parent.mkdir()
    copy.write_bytes(slide.read_bytes() + bytes(1))
    error = shift(copy, tmp_path / "out", "--tiles", tiles).exception
    assert isinstance(error, DataError)
    assert "got those of another slide of this name; check --tiles" in str(error)
    for side, passes in (("None", True), (512, True), (1024, False)):  # TRIDENT's, where it knows none as a text
        with h5py.File(tiles / "made.h5", "a") as file:
            file["features"].attrs.pop("slide_bytes", None)
            file["coords"].attrs["level0_width"] = side
        result = shift(copy, tmp_path / str(side), "--tiles", tiles)
        assert (result.exit_code == 0) == passes, result.exception
    assert "of another slide of this name, of 1024 × 384" in str(result.exception)


def test_shifted_patches_of_another_pixel_width_or_picture_are_not_kept(
    slide: Path, tiles: Path, tmp_path: Path
) -> None:
    unstated = tmp_path / "unstated.tif"
    tifffile.imwrite(unstated, tifffile.imread(slide), tile=(128, 128), photometric="rgb")
    words = ("--patch-px", 64, "--magnification", 10)
    assert shift(unstated, tmp_path / "cut", *words, "--mpp", 0.5).exit_code == 0
    assert "1 already there" in shift(unstated, tmp_path / "cut", *words, "--mpp", 0.5).output
    assert isinstance(shift(unstated, tmp_path / "cut", *words, "--mpp", 0.25).exception, StorageError)
    out = tmp_path / "out"
    assert shift(slide, out, "--tiles", tiles).exit_code == 0
    coarse = ("--patch-px", 32, "--magnification", 10)  # at the same places
    assert run("tile", slide, "--out", tiles, *coarse, "--overwrite").exit_code == 0
    assert isinstance(shift(slide, out, "--tiles", tiles).exception, StorageError)


def test_a_network_encodes_both_and_another_one_is_refused(slide: Path, tmp_path: Path) -> None:
    network = ("--patch-encoder", scripted(Means(), tmp_path / "net.pt"), "--batch", 8, "--device", "cpu")
    words = ("--patch-px", 64, *network)
    result = run("tile", slide, "--out", tmp_path / "tiles", *words, "--normalization", "none")
    assert result.exit_code == 0, result.output
    features, _, about, _ = content(tmp_path / "tiles")
    assert features.shape == (30, 6)  # the width is the network's
    assert about["encoder"] == "net.pt"
    assert len(about["encoder_sha256"]) == 64
    assert isinstance(run("tile", slide, "--out", tmp_path / "tiles", *words).exception, StorageError)
    error = shift(slide, tmp_path / "out", "--tiles", tmp_path / "tiles").exception
    assert isinstance(error, DataError)
    assert "got 'net.pt'" in str(error)
    given = ("--tiles", tmp_path / "tiles", *network)
    assert isinstance(shift(slide, tmp_path / "out", *given).exception, DataError)  # normalized otherwise
    same = ("--normalization", "none", "--pictures", 2)
    assert shift(slide, tmp_path / "out", *given, *same).exit_code == 0
    picture = np.asarray(Image.open(tmp_path / "out" / "pictures" / "made.png"))
    with openslide.OpenSlide(str(slide)) as opened:  # the last patch, of the last of four batches
        last = np.asarray(opened.read_region((256, 320), 0, (64, 64)).convert("RGB"))
    assert np.array_equal(picture[:64, 64 + GAP : -GAP], last)
    assert content(tmp_path / "out")[2]["encoder_sha256"] == about["encoder_sha256"]


def test_a_tiling_of_another_slide_or_of_another_kind_is_named(slide: Path, tiles: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    file = tiles / "made.h5"
    with h5py.File(file, "a") as opened:
        opened["coords"][0] = (512 - 63, 0)
    error = shift(slide, out, "--tiles", tiles).exception
    assert isinstance(error, DataError)
    assert "within the slide's 512 × 384 pixels" in str(error)
    for coords in (np.zeros((0, 2), int), np.zeros((3, 3), int), np.zeros((3, 2)), np.array([[-1, 0]])):
        with h5py.File(file, "w") as opened:
            opened["coords"] = coords
            opened["coords"].attrs.update(patch_size=64, patch_size_level0=64)
        assert isinstance(shift(slide, out, "--tiles", tiles).exception, DataError)
    with h5py.File(file, "w") as opened:  # coords alone, as CLAM writes them: read at twice the size
        opened["coords"] = np.array([[0, 0], [128, 0]], np.int32)
        opened["coords"].attrs.update(patch_size=64, downsample=np.array([2.0, 2.0]))
    assert shift(slide, out, "--tiles", tiles).exit_code == 0
    assert content(out)[3]["patch_size_level0"] == 128
    file.unlink()
    error = shift(slide, tmp_path / "new", "--tiles", tiles).exception
    assert isinstance(error, StorageError)
    assert "--tiles" in str(error)


def test_features_of_clam_without_sizes_say_that_its_patches_have_them(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["coords"] = np.zeros((2, 2), np.int32)
        file["features"] = np.zeros((2, 4), np.float32)
    with pytest.raises(DataError, match="of CLAM pass the folder patches"):
        read_tiles(tmp_path / "a.h5")


def test_features_of_other_patches_of_the_slide_are_not_taken_for_done(tmp_path: Path) -> None:
    how = SlideShift(StainShift("blur", "light"), 42, plain_encoder(), tmp_path)
    corners, values = np.array([[0, 0], [256, 0]]), np.zeros((2, 24), np.float32)
    slide, out = tmp_path / "s.tif", tmp_path / "shifted.h5"
    for coords, is_done in ((corners, True), (corners + np.array([0, 256]), False), (corners[::-1], False)):
        write_features(out, values, values, Tiles(coords, 256, 128, {}), how.attributes())
        write_features(tmp_path / "s.h5", values, values, Tiles(corners, 256, 128, {}), {})
        assert is_shifted_so(out, slide, how) == is_done
