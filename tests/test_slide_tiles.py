"""Slides cut into patches: tissue, size and place as asked for, on a real slide and on made ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import openslide
import pytest
import torch
from PIL import Image
from skimage.color import rgb2hsv
from test_unwritable import denied, full_disk
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset, concatenate, image_statistics
from miue.cli.app import app
from miue.common.errors import ConfigError, DataError, StorageError
from miue.io import describe_bags, find_bags_again, load_bags, pack, read_store
from miue.pathology.patch_encoders import PLAIN, PatchEncoder, color_texture, plain_encoder
from miue.pathology.slides import _check_colors, microns_per_pixel, open_slide, thumbnail
from miue.pathology.tile_files import Tiles, write_features
from miue.pathology.tiling import (
    Tiling,
    cut_tiles,
    level0_magnification,
    matches,
    read_patch,
    saturations,
    tile_slide,
    tissue_grid,
    tissue_mask,
)


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["data", "tile", *map(str, words), "--quiet"])


@pytest.fixture
def slide(shared_data: Path) -> Path:
    return shared_data / "CMU-1-Small-Region.svs"


@pytest.fixture
def glass(tmp_path: Path) -> Path:
    """A slide without tissue: noise that is hardly colored, in a tiled TIFF that states 20×'s pixel width."""
    random = np.random.default_rng(0)
    pixels = (238 + random.integers(0, 5, (512, 512, 3))).astype(np.uint8)
    import tifffile

    path = tmp_path / "glass.tif"
    tifffile.imwrite(
        path, pixels, tile=(256, 256), photometric="rgb", resolution=(20000, 20000), resolutionunit="CENTIMETER"
    )
    return path


@pytest.mark.long
def test_a_real_slide_is_cut_as_asked_and_laid_out_as_trident_does(slide: Path, tmp_path: Path) -> None:
    result = run(slide, "--out", tmp_path, "--patch-px", 128, "--magnification", 10)
    assert result.exit_code == 0, result.output
    with h5py.File(tmp_path / "CMU-1-Small-Region.h5") as file:
        features, coords = file["features"][:], file["coords"][:]
        attributes = dict(file["coords"].attrs)
        assert file["features"].attrs["encoder"] == PLAIN
    assert attributes["patch_size"] == 128
    assert attributes["patch_size_level0"] == 256  # the slide is scanned at 20×
    assert attributes["level0_magnification"] == 20
    assert (attributes["level0_width"], attributes["level0_height"]) == (2220, 2967)
    assert features.shape == (len(coords), 24)
    assert (features.dtype, coords.dtype) == (np.float32, np.int64)
    assert np.isfinite(features).all()
    assert (coords % 256 == 0).all()
    assert (coords + 256 <= (2220, 2967)).all()
    assert 20 < len(coords) < 8 * 11
    with openslide.OpenSlide(str(slide)) as opened:
        x, y = map(int, coords[7])
        region = opened.read_region((x, y), 0, (256, 256)).convert("RGB")
        by_hand = np.asarray(region.resize((128, 128), Image.Resampling.BOX))
    assert features[7] == pytest.approx(color_texture(by_hand))


@pytest.mark.long
def test_image_statistics_are_stored_read_packed_and_concatenated(slide: Path, tmp_path: Path) -> None:
    result = run(slide, "--out", tmp_path / "tiles", "--patch-px", 128)
    assert result.exit_code == 0, result.output
    with (
        h5py.File(tmp_path / "tiles" / "CMU-1-Small-Region.h5") as file,
        openslide.OpenSlide(str(slide)) as opened,
    ):
        coords, stored = file["coords"][:], file["image_statistics"][:]
        patch = read_patch(opened, int(coords[7, 0]), int(coords[7, 1]), 128, 128)
    expected = image_statistics(torch.from_numpy(patch[None].copy())).numpy()
    np.testing.assert_allclose(stored[7], expected[0], rtol=1e-5, atol=1e-5)
    bags = load_bags(tmp_path / "tiles").bags
    pack(bags, tmp_path / "store")
    packed = read_store(tmp_path / "store")
    whole = concatenate([packed, replace(packed, ids=("b",))])
    for one in (bags, packed, whole):
        statistics = one.batch([0], statistics=True).statistics
        assert statistics is not None
        np.testing.assert_array_equal(statistics, stored)
    assert bags.batch([0]).statistics is None
    again = find_bags_again(describe_bags(bags, tmp_path / "copy.npy"))
    np.testing.assert_array_equal(again.batch([0], statistics=True).statistics, stored)


def test_image_statistics_are_read_whatever_else_the_file_states(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).normal(size=(7, 27)).astype(np.float32)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["features"], file["image_statistics"] = np.ones((7, 3), np.float32), stored
    statistics = load_bags(tmp_path).bags.batch([0], statistics=True).statistics
    assert statistics is not None
    np.testing.assert_array_equal(statistics, stored)


@pytest.mark.long
def test_a_model_of_tiles_reads_statistics_and_names_their_absence(slide: Path, tmp_path: Path) -> None:
    tile_slide(slide, tmp_path / "a.h5", Tiling(patch_px=64), plain_encoder())
    with h5py.File(tmp_path / "a.h5") as file:
        features, statistics = file["features"][:], file["image_statistics"][:]
    halves = [slice(start, start + 50) for start in range(0, 500, 50)]
    bags = BagDataset.from_arrays([features[half] for half in halves], [0, 1] * 5)
    beside = replace(bags, statistics=statistics[:500])
    model = miue.train(
        beside, settings={"max_epochs": 1, "seed": 0, "distances": ("combined",), "device": "cpu"}, progress=False
    )
    assert list(model.distances) == ["knn", "statistics", "combined"]
    usual = model.predict(beside).bags.scores
    blurrier = model.predict(replace(beside, statistics=statistics[:500] - np.float32(3.0))).bags.scores
    assert blurrier["combined_mean"].min() > usual["combined_mean"].max()
    with pytest.raises(DataError, match="'statistics': expected images of bytes, or features with"):
        model.predict(bags)


@pytest.mark.parametrize("shape", [(3, 27), (7,), (7, 27, 1)])
def test_statistics_that_do_not_fit_their_features_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = np.zeros((7, 5), np.float32)
        file["image_statistics"] = np.zeros(shape, np.float32)
    with pytest.raises(DataError, match="'image_statistics' with a row of numbers for each of 7 instances"):
        load_bags(tmp_path)


def test_saturations_are_those_of_hsv(slide: Path) -> None:
    with open_slide(slide) as opened:
        picture = np.array(thumbnail(opened, 256))
    picture[0] = 0
    picture[1, :, 1:] = 0
    np.testing.assert_allclose(saturations(picture), rgb2hsv(picture)[..., 1], atol=1e-15)


@pytest.mark.long
def test_patches_are_tissue_and_what_is_left_out_is_glass(slide: Path, tmp_path: Path) -> None:
    tile_slide(
        slide,
        tmp_path / "a.h5",
        Tiling(patch_px=128),
        PatchEncoder("saturation", lambda p: p.std(3).mean((1, 2)).astype(np.float32)[:, None], batch=7),
    )
    with h5py.File(tmp_path / "a.h5") as file, openslide.OpenSlide(str(slide)) as opened:
        kept = {
            tuple(map(int, c)): float(v) for c, v in zip(file["coords"][:], file["features"][:, 0], strict=True)
        }
        left_out = [
            float(np.asarray(opened.read_region((x, y), 0, (128, 128)).convert("RGB")).std(2).mean())
            for y in range(0, 2967 - 127, 128)
            for x in range(0, 2220 - 127, 128)
            if (x, y) not in kept
        ]
    assert np.median(list(kept.values())) > 5 * np.median(left_out)
    assert min(kept.values()) > np.median(left_out)


def test_a_grid_keeps_the_patches_that_are_tissue_enough() -> None:
    mask = np.zeros((10, 20), bool)
    mask[0:2, 0:5] = True  # in level-0 pixels 8 × 20
    assert tissue_grid(mask, (80, 40), 8, 1.0).tolist() == [[0, 0], [8, 0]]
    assert tissue_grid(mask, (80, 40), 8, 0.5).tolist() == [[0, 0], [8, 0], [16, 0]]
    assert tissue_grid(mask, (80, 40), 80, 0.01).tolist() == []  # no whole patch


def test_patches_smaller_than_half_a_pixel_of_the_mask_are_kept_up_to_the_margin() -> None:
    mask = np.array([[False, True]] * 2)
    kept = tissue_grid(mask, (100, 100), 10, 0.5)
    assert kept.tolist() == [[x, y] for y in range(0, 100, 10) for x in range(50, 100, 10)]


@pytest.mark.parametrize("step", [7, 16, 23])
def test_the_share_of_tissue_is_that_of_its_pixels(step: int) -> None:
    mask = np.random.default_rng(0).random((61, 83)) < 0.5
    wanted = [
        [x, y]
        for y in range(0, 61 - step + 1, step)
        for x in range(0, 83 - step + 1, step)
        if mask[y : y + step, x : x + step].mean() >= 0.5
    ]
    assert tissue_grid(mask, (83, 61), step, 0.5).tolist() == wanted


def test_tissue_is_what_is_colored_and_glass_is_not() -> None:
    picture = np.full((40, 40, 3), 240, np.uint8)
    assert not tissue_mask(picture).any()
    noise = np.random.default_rng(0).integers(-5, 6, picture.shape)
    assert not tissue_mask((picture + noise).astype(np.uint8)).any()
    picture[10:30, 10:30] = (180, 60, 140)
    mask = tissue_mask(picture)
    assert mask[12:28, 12:28].all()
    assert not mask[:8].any()


class Pyramid:
    """A slide of two levels, transparent where nothing was scanned."""

    level_downsamples = (1.0, 4.0)

    def __init__(self) -> None:
        self.levels: list[int] = []

    def get_best_level_for_downsample(self, downsample: float) -> int:
        return int(downsample >= 4)

    def read_region(self, _: tuple[int, int], level: int, size: tuple[int, int]) -> Image.Image:
        self.levels.append(level)
        return Image.new("RGBA", size, (10, 20, 30, 0))


def test_patches_are_read_from_the_nearest_level_and_unscanned_parts_are_white() -> None:
    slide = Pyramid()
    assert read_patch(slide, 0, 0, 1024, 256).shape == (256, 256, 3)
    assert read_patch(slide, 0, 0, 512, 256).shape == (256, 256, 3)
    assert slide.levels == [1, 0]
    assert (read_patch(slide, 0, 0, 64, 64) == 255).all()


def test_the_magnification_is_the_stated_one_else_that_of_the_pixel_width() -> None:
    class Made:
        def __init__(self, **properties: str) -> None:
            self.properties = {f"openslide.{k.replace('_', '-')}": v for k, v in properties.items()}

    assert level0_magnification(Made(objective_power="40", mpp_x="0.5"), Path("a")) == 40
    assert level0_magnification(Made(mpp_x="0.25"), Path("a")) == 40
    with pytest.raises(DataError, match="neither"):
        level0_magnification(Made(), Path("a"))


@pytest.mark.parametrize(("unit", "resolution", "width"), [("INCH", 72, "352.8"), ("CENTIMETER", 10, "1000")])
def test_the_resolution_of_a_printed_picture_is_no_pixel_width_of_a_slide(
    tmp_path: Path, unit: str, resolution: int, width: str
) -> None:
    import tifffile

    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    path = tmp_path / "converted.tif"
    stated: dict[str, Any] = {"resolution": (resolution,) * 2, "resolutionunit": unit}
    tifffile.imwrite(path, noise, tile=(128, 128), photometric="rgb", **stated)
    words = (path, "--out", tmp_path / "out", "--patch-px", 64, "--quiet")
    assert f"{width} µm, that of a printed picture; pass --mpp" in str(run(*words).exception)
    result = run(*words, "--mpp", 0.25)
    assert result.exit_code == 0, result.output
    with h5py.File(tmp_path / "out" / "converted.h5") as file:
        assert file["coords"].attrs["patch_size_level0"] == 128
    with open_slide(path) as opened:
        assert microns_per_pixel(opened) is None  # heatmaps draw no scale bar


@pytest.mark.long
def test_an_ome_tiff_is_cut_like_the_slide_it_was_made_of_and_states_its_pixel_width(
    slide: Path, tmp_path: Path
) -> None:
    import tifffile

    with openslide.OpenSlide(str(slide)) as opened:
        pixels = np.asarray(opened.read_region((0, 0), 0, opened.dimensions).convert("RGB"))
    options: dict[str, Any] = {"tile": (256, 256), "photometric": "rgb"}
    width = {"axes": "YXS", "PhysicalSizeX": 499.0, "PhysicalSizeXUnit": "nm"}
    with tifffile.TiffWriter(tmp_path / "slide.ome.tif") as file:
        file.write(pixels, subifds=1, metadata=width, **options)
        file.write(pixels[::2, ::2], subfiletype=1, **options)
    tifffile.imwrite(tmp_path / "unstated.tif", pixels, **options)
    with open_slide(tmp_path / "slide.ome.tif") as opened:
        assert microns_per_pixel(opened) == pytest.approx(0.499)
    as_asked = ("--patch-px", 128, "--magnification", 10)
    for path, more in ((slide, ()), (tmp_path / "slide.ome.tif", ()), (tmp_path / "unstated.tif", ("--mpp", 0.5))):
        result = run(path, "--out", tmp_path / "out", *as_asked, *more)
        assert result.exit_code == 0, result.output
    with pytest.raises(DataError, match=r"a stated magnification or pixel width, got neither; pass --mpp"):
        tile_slide(tmp_path / "unstated.tif", tmp_path / "x.h5", Tiling(128, 10.0), plain_encoder())
    features, steps = [], []
    for name in (slide.stem, "unstated", "slide.ome"):
        with h5py.File(tmp_path / "out" / f"{name}.h5") as file:
            features.append(file["features"][:])
            steps.append(file["coords"].attrs["patch_size_level0"])
    assert np.array_equal(features[0], features[1])
    assert steps == [256, 256, 257]  # 20×, 20× and 10 / 0.499
    assert features[2].mean(0) == pytest.approx(features[0].mean(0), abs=0.05)


def test_an_ome_tiff_with_channels_in_planes_and_a_huge_slide_without_levels_are_refused(tmp_path: Path) -> None:
    import tifffile

    channels = np.zeros((4, 512, 512), np.uint8)
    path = tmp_path / "stained.ome.tif"
    tifffile.imwrite(path, channels, tile=(256, 256), photometric="minisblack", metadata={"axes": "CYX"})
    with pytest.raises(StorageError, match=r"got 4 channels in planes of their own; write its colors into one"):
        tile_slide(path, tmp_path / "x.h5", Tiling(mpp=0.5), plain_encoder())
    stated = 'xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
    bare = f'<OME {stated}><Image ID="Image:0"><Pixels SizeC="3" PhysicalSizeX="0.5"/></Image></OME>'
    slide = SimpleNamespace(properties={"tiff.ImageDescription": bare})
    _check_colors(slide, path)  # of its channels it says nothing
    assert microns_per_pixel(slide) == 0.5
    with pytest.raises(StorageError, match=r"got 60000 × 40000 as the smallest .* vips tiffsave"):
        thumbnail(SimpleNamespace(level_dimensions=((60_000, 40_000),)), 2048)


def test_the_encoder_is_deterministic_and_tells_color_and_texture_apart() -> None:
    random = np.random.default_rng(0)
    flat = np.full((32, 32, 3), 120, np.uint8)
    rough = random.integers(60, 180, (32, 32, 3)).astype(np.uint8)
    assert np.array_equal(color_texture(rough), color_texture(rough.copy()))
    assert color_texture(rough)[:3] == pytest.approx(rough.reshape(-1, 3).mean(0) / 255, rel=1e-5)
    assert color_texture(rough)[3:6] == pytest.approx(rough.reshape(-1, 3).std(0) / 255, rel=1e-5)
    assert color_texture(rough)[12] > 10 * color_texture(flat)[12] + 0.01  # edges
    assert color_texture(rough)[14:].sum() == pytest.approx(1)  # a histogram


@pytest.mark.long
def test_slides_without_tissue_or_that_cannot_be_opened_are_listed_and_not_fatal(
    slide: Path, glass: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.svs"
    broken.write_bytes(slide.read_bytes()[:9000])
    out = tmp_path / "out"
    error = run(glass, "--out", out).exception
    assert isinstance(error, DataError)
    assert "tissue" in str(error)
    assert isinstance(run(broken, "--out", out).exception, StorageError)
    result = run(glass, broken, slide, "--out", out, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert result.output.count("left out") == 2
    assert [file.name for file in out.iterdir()] == ["CMU-1-Small-Region.h5"]
    assert isinstance(run(glass, "--out", tmp_path / "none", "--skip-bad").exception, DataError)


def test_a_slide_that_may_not_be_read_is_left_out_and_not_called_damaged(
    slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private.svs"
    private.write_bytes(slide.read_bytes())
    denied(monkeypatch, private)
    words = (private, slide, "--out", tmp_path / "out", "--magnification", 5, "--executor", "local")
    error = run(*words).exception
    assert isinstance(error, StorageError) and "got Permission denied; see who may read it" in str(error)
    result = run(*words, "--skip-bad")
    assert result.exit_code == 0 and "left out: slide" in result.output and "see who may read it" in result.output
    with pytest.raises(StorageError) as caught, open_slide(slide):
        raise PermissionError(13, "Permission denied", "tiles.h5")
    assert caught.value.item == "'tiles.h5'"


def test_of_a_slide_that_is_cut_off_or_damaged_the_message_does_not_ask_for_a_conversion_alone(
    slide: Path, tmp_path: Path
) -> None:
    content = bytearray(slide.read_bytes())
    (tmp_path / "cut.svs").write_bytes(content[:900_000])
    with (
        pytest.raises(StorageError, match="check that the file is whole; if it is, convert it: vips"),
        open_slide(tmp_path / "cut.svs"),
    ):
        pass
    content[300_000:1_200_000:997] = bytes(len(content[300_000:1_200_000:997]))
    (tmp_path / "damaged.svs").write_bytes(content)
    with (
        pytest.raises(StorageError, match="copy it again: it is damaged"),
        open_slide(tmp_path / "damaged.svs") as opened,
    ):
        opened.read_region((0, 0), 0, opened.dimensions)


@pytest.mark.long
def test_slides_cut_before_are_left_as_they_are_unless_cut_otherwise(slide: Path, tmp_path: Path) -> None:
    words = (slide, "--out", tmp_path, "--magnification", 5)
    assert run(*words).exit_code == 0
    target = tmp_path / "CMU-1-Small-Region.h5"
    before = target.stat().st_mtime_ns
    left = tmp_path / ".CMU-1-Small-Region.h5.lock"  # of a process that was killed once the file was there
    left.touch()
    result = run(*words)
    assert "1 already there" in result.output
    assert target.stat().st_mtime_ns == before and not left.exists()
    assert isinstance(run(*words, "--patch-px", 128).exception, StorageError)
    assert run(*words, "--patch-px", 128, "--overwrite").exit_code == 0
    target.write_bytes(b"not a file of features")
    error = run(*words).exception
    assert isinstance(error, StorageError)
    assert "move it away" in str(error)
    assert isinstance(run(*words, "--overwrite").exception, StorageError)  # of whom it is, is not known
    assert target.read_bytes() == b"not a file of features"


@pytest.mark.parametrize(
    ("dataset", "name"), [("features", "slide_bytes"), ("features", "encoder"), ("coords", "mpp_option")]
)
def test_an_attribute_of_several_numbers_is_none_that_was_written(dataset: str, name: str, glass: Path) -> None:
    """Compared with the one number that was asked for, it ended in a traceback."""
    path, encoder, how = glass.with_suffix(".h5"), plain_encoder(), Tiling()
    attributes = {"encoder": encoder.name, **encoder.attributes, "slide_bytes": glass.stat().st_size}
    of_coords = {"target_magnification": how.magnification, "tissue": how.tissue}
    tiles = Tiles(np.zeros((2, 2), np.int64), 256, how.patch_px, of_coords)
    write_features(path, np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32), tiles, attributes)
    assert matches(path, glass, how, encoder)
    with h5py.File(path, "a") as file:
        file[dataset].attrs[name] = [1, 2]
    assert not matches(path, glass, how, encoder)


@pytest.mark.long
def test_features_of_another_slide_of_the_same_name_are_not_kept(slide: Path, tmp_path: Path) -> None:
    out, copy = tmp_path / "out", tmp_path / "second_hospital" / slide.name
    words = ("--out", out, "--magnification", 5)
    assert run(slide, *words).exit_code == 0
    copy.parent.mkdir()
    copy.write_bytes(slide.read_bytes() + bytes(1))
    error = run(copy, *words).exception
    assert isinstance(error, StorageError)
    assert "or of another slide of this name" in str(error)
    with h5py.File(out / f"{slide.stem}.h5", "a") as file:
        assert file["features"].attrs.pop("slide_bytes") == slide.stat().st_size
    assert "1 already there" in run(copy, *words).output  # of whose slide nothing is known


@pytest.mark.long
def test_a_slide_that_a_link_leads_to_has_the_name_of_the_link(slide: Path, tmp_path: Path) -> None:
    blob, link = tmp_path / "0123abcd", tmp_path / "slides" / "slide_1.svs"
    blob.write_bytes(slide.read_bytes())
    link.parent.mkdir()
    link.symlink_to(blob)
    result = run(link, "--out", tmp_path / "tiles", "--magnification", 5)
    assert result.exit_code == 0, result.output
    with h5py.File(tmp_path / "tiles" / "slide_1.h5") as file:
        assert file["coords"].attrs["name"] == "slide_1"
    words = ("--kind", "hed", "--strength", "light", "--tiles", tmp_path / "tiles", "--out", tmp_path / "hed")
    shifted = CliRunner().invoke(app, ["data", "shift", *map(str, (link, *words)), "--quiet"])
    assert shifted.exit_code == 0, shifted.output


def test_a_link_to_a_slide_of_several_files_is_enough(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    scanned, link = tmp_path / "scanned", tmp_path / "v.vms"
    scanned.mkdir()
    for name, side in (("v.jpg", 256), ("map.jpg", 64)):
        picture = Image.fromarray(noise).resize((side, side))
        picture.save(scanned / name, subsampling=0, restart_marker_blocks=8)
    sizes = ("NoLayers=1", "NoJpegColumns=1", "NoJpegRows=1", "SourceLens=20")
    (scanned / "v.vms").write_text(
        "\n".join(("[Virtual Microscope Specimen]", *sizes, "ImageFile=v.jpg", "MapFile=map.jpg"))
    )
    link.symlink_to(scanned / "v.vms")
    with open_slide(link) as opened:
        assert opened.dimensions == (256, 256)
    assert "1 slide cut into 16 patches" in run(link, "--out", tmp_path / "out", "--patch-px", 64).output


def test_two_slides_of_one_name_are_named_with_their_folders(slide: Path, tmp_path: Path) -> None:
    copy = tmp_path / "again" / f"{slide.stem}.tif"
    copy.parent.mkdir()
    copy.touch()
    error = str(run(slide, copy.parent, "--out", tmp_path / "out").exception)
    assert f"'{slide}' and '{copy}'" in error and "different folders" in error


@pytest.mark.long
def test_a_full_disk_ends_the_command_that_skips_bad_slides(slide: Path, tmp_path: Path) -> None:
    copies = [tmp_path / f"{name}.svs" for name in "abc"]
    for copy in copies:
        copy.symlink_to(slide)
    with full_disk(5000):
        result = run(*copies, "--out", tmp_path / "out", "--magnification", 5, "--skip-bad")
    assert isinstance(result.exception, StorageError)
    assert "a.h5': expected to write it whole" in str(result.exception)
    assert "left out" not in result.output


@pytest.mark.long
def test_a_cutting_that_is_interrupted_keeps_the_slides_that_are_cut(
    slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [tmp_path / f"{name}.svs" for name in "abc"]
    for copy in copies:
        copy.symlink_to(slide)
    out = tmp_path / "out"
    words = ("--out", out, "--magnification", 5)
    assert run(copies[0], *words).exit_code == 0

    def stop_at_third(path: Path, *arguments: Any, **options: Any) -> None:
        if path.stem == "c":
            raise KeyboardInterrupt
        write_features(path, *arguments, **options)

    monkeypatch.setattr("miue.pathology.tiling.write_features", stop_at_third)
    for more in ((), ("--overwrite",)):
        said = str(run(*copies, *words, *more).exception)
        assert said == "what is finished is kept, and nothing half-written; give the same command again"
        assert sorted(file.name for file in out.glob("*.h5")) == ["a.h5", "b.h5"]


@pytest.mark.long
def test_a_pixel_width_counts_for_slides_that_state_none_alone(slide: Path, tmp_path: Path) -> None:
    import tifffile

    with openslide.OpenSlide(str(slide)) as opened:
        pixels = np.asarray(opened.read_region((0, 0), 0, (1024, 1024)).convert("RGB"))
    unstated, out = tmp_path / "unstated.tif", tmp_path / "out"
    tifffile.imwrite(unstated, pixels, tile=(256, 256), photometric="rgb")
    words = (slide, unstated, "--out", out, "--patch-px", 64, "--magnification", 5)
    assert "neither; pass --mpp" in str(run(*words, "--jobs", 1).exception)
    result = run(*words, "--mpp", 0.5)  # as the message says; the first slide was cut without
    assert result.exit_code == 0, result.output
    assert "1 slide cut" in result.output and "1 already there" in result.output
    assert "2 already there" in run(*words, "--mpp", 0.5).output
    for more in (("--mpp", 0.25), ()):
        assert "unstated.h5" in str(run(*words, *more).exception)


def test_what_cannot_be_asked_for_is_refused(slide: Path, tmp_path: Path) -> None:
    error = run(slide, "--out", tmp_path, "--magnification", 40).exception
    assert isinstance(error, DataError)
    assert "20×" in str(error)
    error = run(slide, slide, "--out", tmp_path).exception
    assert isinstance(error, DataError) and error.fix == "name it once"
    error = run(
        slide, "--out", tmp_path, "--normalization", "imgnet"
    ).exception  # that plain statistics do not use
    assert isinstance(error, ConfigError) and "one of imagenet, none" in str(error)
    with pytest.raises(ConfigError, match="^patch_px: .* got 7"):
        Tiling(patch_px=7)
    for value in (0.0, -1.0, float("nan"), 2.0):
        with pytest.raises(ConfigError, match=f"^tissue: .* got {value}"):
            Tiling(tissue=value)
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=f"^magnification: .*finite and above 0, got {value}"):
            Tiling(magnification=value)
        with pytest.raises(ConfigError, match=f"^mpp: .*finite and above 0, got {value}"):
            Tiling(mpp=value)


def test_a_slide_that_is_too_small_or_gray_says_so(tmp_path: Path) -> None:
    import tifffile

    kept: dict[str, Any] = {"tile": (64, 64), "resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(tmp_path / "dot.tif", np.full((1, 3, 3), (200, 60, 120), np.uint8), photometric="rgb", **kept)
    gray = np.random.default_rng(0).integers(0, 256, (512, 512), np.uint8)
    tifffile.imwrite(tmp_path / "gray.tif", gray, photometric="minisblack", **kept)
    dot, no_color = (run(tmp_path / name, "--out", tmp_path / "out").exception for name in ("dot.tif", "gray.tif"))
    assert isinstance(
        dot, DataError
    ) and "256 × 256 level-0 pixels, got a slide of 3 × 1; lower --patch-px" in str(dot)
    assert isinstance(no_color, DataError) and "no pixel has a color" in str(no_color)


@pytest.mark.slow
def test_slides_cut_in_two_processes_are_the_same_files(slide: Path, glass: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.svs"
    copy.write_bytes(slide.read_bytes())
    words = (slide, glass, copy, "--skip-bad", "--patch-px", 256, "--magnification", 5, "--out")
    single, double = run(*words, tmp_path / "one"), run(*words, tmp_path / "two", "--jobs", 2)
    assert double.output.replace("/two", "/one") == single.output
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["CMU-1-Small-Region.h5", "copy.h5"] == sorted(p.name for p in (tmp_path / "two").iterdir())
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_slide_scanned_at_less_than_is_asked_for_is_refused() -> None:
    slide = SimpleNamespace(properties={"openslide.objective-power": "20"})
    with pytest.raises(DataError, match="expected a slide scanned at 40× or more, got 20×"):
        cut_tiles(slide, Path("slide.svs"), Tiling(magnification=40.0))
