"""GeoParquet tables and OME-TIFF maps, as the tools that they are for read them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely
import tifffile
from made_slides import GRID, STEP, alpha_of, export, one_slide, prediction_table, write_glass

import miue
from miue.common.errors import ConfigError, DataError, StorageError
from miue.pathology.export.ome_tiff import SlideSize, write_ome_tiff
from miue.pathology.export.patches import Patches, class_names, patches_by_slide
from miue.predictions import Predictions, Provenance


def flagged(predictions: Predictions) -> Predictions:
    assert predictions.instances is not None
    flags = np.arange(len(predictions.instances)) % 3 == 0
    return replace(predictions, instances=replace(predictions.instances, flagged=flags))


def of_slide(predictions: Predictions, slide: str) -> Patches:
    return next(patches for patches in patches_by_slide(predictions) if patches.slide == slide)


@pytest.mark.parametrize("with_flags", [False, True])
def test_a_table_has_the_square_and_all_values_of_each_patch(
    two_slides: Predictions, tmp_path: Path, with_flags: bool
) -> None:
    predictions = flagged(two_slides) if with_flags else two_slides
    miue.export(predictions, tmp_path / "out", "geoparquet")
    for slide in ("007", "b"):
        patches = of_slide(predictions, slide)
        table = pq.read_table(tmp_path / "out" / f"{slide}.parquet")
        column = {name: table[name].to_numpy() for name in table.column_names}
        assert column["bag_id"].tolist() == [slide] * len(patches)
        assert np.array_equal(column["instance"], patches.instance)
        assert np.array_equal(np.stack([column["x"], column["y"]], 1), patches.coords)
        squares = shapely.from_wkb(column["geometry"])
        assert np.array_equal(
            shapely.bounds(squares), np.concatenate([patches.coords, patches.coords + patches.size], 1)
        )
        assert shapely.area(squares).tolist() == [patches.size**2] * len(patches)
        names = class_names(predictions)
        assert column["class"].tolist() == [names[number] for number in patches.probabilities.argmax(1)]
        for number in range(2):
            assert np.array_equal(column[f"p_{number}"], patches.probabilities[:, number].astype(np.float32))
        for name, values in patches.uncertainties.items():
            assert np.array_equal(column[name], values.astype(np.float32))
        assert ("flagged" in column) == with_flags
        if with_flags:
            assert patches.flagged is not None and np.array_equal(column["flagged"], patches.flagged)
        geo = json.loads(table.schema.metadata[b"geo"])
        assert geo["version"] == "1.1.0" and geo["primary_column"] == "geometry"
        assert geo["columns"]["geometry"] == {
            "encoding": "WKB",
            "geometry_types": ["Polygon"],
            "crs": None,
            "bbox": shapely.total_bounds(squares).tolist(),
        }
        said = json.loads(table.schema.metadata[b"miue"])
        assert said["classes"] == names and said["patch_size_level0"] == patches.size


def channels(path: Path) -> dict[str, np.ndarray]:
    with tifffile.TiffFile(path) as file:
        assert file.is_ome and file.ome_metadata is not None
        root = ElementTree.fromstring(file.ome_metadata)
        names = [channel.attrib["Name"] for channel in root.iter() if channel.tag.endswith("}Channel")]
        maps = file.series[0].asarray()
    assert maps.dtype == np.float32
    return dict(zip(names, maps.reshape(len(names), *maps.shape[-2:]), strict=True))


def pixels_of(path: Path) -> dict[str, str]:
    with tifffile.TiffFile(path) as file:
        root = ElementTree.fromstring(str(file.ome_metadata))
    return next(one.attrib for one in root.iter() if one.tag.endswith("}Pixels"))


def test_a_map_has_each_value_where_its_patch_lies(two_slides: Predictions, tmp_path: Path) -> None:
    predictions = flagged(two_slides)
    miue.export(predictions, tmp_path / "out", "ome-tiff")
    for slide in ("007", "b"):
        patches = of_slide(predictions, slide)
        found = channels(tmp_path / "out" / f"{slide}.ome.tiff")
        fine = 8 / patches.size
        wanted = {
            "probability of normal": patches.probabilities[:, 0],
            "probability of tumour": patches.probabilities[:, 1],
            **patches.uncertainties,
            "flagged": patches.flagged,
        }
        assert list(found) == list(wanted)
        for name, values in wanted.items():
            assert values is not None
            map_of = found[name]
            middle = np.floor((patches.coords + patches.size / 2) * fine).astype(int)
            assert np.array_equal(map_of[middle[:, 1], middle[:, 0]], values.astype(np.float32)), name
            assert np.isfinite(map_of).sum() == len(patches) * 64
        ends = (patches.coords.max(0) + patches.size) * fine
        assert map_of.shape == tuple(np.floor(ends[::-1] + 0.5).astype(int))
        assert "PhysicalSizeX" not in pixels_of(tmp_path / "out" / f"{slide}.ome.tiff")


@pytest.mark.long
def test_a_map_of_a_slide_is_as_large_as_it(tmp_path: Path) -> None:
    """A patch of 512 has 8 × 8 pixels, each of 64 level-0 pixels, with a width in µm."""
    predictions = one_grid(40)
    patches = of_slide(predictions, "s")
    slide = SlideSize((100_000, 60_000), 0.25)
    write_ome_tiff(tmp_path / "s.ome.tiff", patches, ["normal", "tumour"], slide)
    first = channels(tmp_path / "s.ome.tiff")["probability of tumour"]
    assert first.shape == (938, 1562)
    assert np.isfinite(first).sum() == 40 * 40 * 64
    stated = pixels_of(tmp_path / "s.ome.tiff")
    assert float(stated["PhysicalSizeX"]) == pytest.approx(0.25 * 64)
    assert stated["PhysicalSizeXUnit"] == "µm"


def one_grid(side: int) -> Predictions:
    steps = np.arange(side) * STEP
    coords = np.stack(np.meshgrid(steps, steps), -1).reshape(-1, 2)
    instances = prediction_table(alpha_of(len(coords)), ["s"] * len(coords), coords)
    return Predictions(prediction_table(alpha_of(1), ["s"]), instances, Provenance(classes=("normal", "tumour")))


@pytest.mark.long
def test_a_pyramid_has_the_means_of_what_lies_below(tmp_path: Path) -> None:
    patches = of_slide(one_grid(150), "s")
    write_ome_tiff(tmp_path / "s.ome.tiff", patches, ["normal", "tumour"])
    with tifffile.TiffFile(tmp_path / "s.ome.tiff") as file:
        levels = [level.asarray() for level in file.series[0].levels]
    assert [level.shape[-1] for level in levels] == [1200, 600, 300]
    for larger, smaller in pairwise(levels):
        blocks = larger.reshape(len(larger), smaller.shape[1], 2, smaller.shape[2], 2)
        np.testing.assert_allclose(smaller, blocks.mean((2, 4)), rtol=1e-6)


def test_a_pixel_of_a_pyramid_over_two_patches_has_their_mean(tmp_path: Path) -> None:
    coords = np.array([[STEP // 8 + STEP * number, 0] for number in range(100)])  # one pixel beside the blocks
    instances = prediction_table(alpha_of(100), ["s"] * 100, coords)
    patches = of_slide(Predictions(prediction_table(alpha_of(1), ["s"]), instances), "s")
    write_ome_tiff(tmp_path / "s.ome.tiff", patches, ["a", "b"])
    with tifffile.TiffFile(tmp_path / "s.ome.tiff") as file:
        smaller = file.series[0].levels[1].asarray()[1, 0]
    values = patches.probabilities[:, 1]
    np.testing.assert_allclose(smaller[:400:4], [values[0], *(values[:-1] + values[1:]) / 2], rtol=1e-6)
    np.testing.assert_allclose(smaller[1:401:4], values, rtol=1e-6)


def test_gaps_stay_gaps_in_a_pyramid_of_odd_size(tmp_path: Path) -> None:
    """Patches far apart: at the edge of a gap the mean is that of the pixels that have a value."""
    coords = np.array([[0, 0], [STEP, 0], [100 * STEP, 77 * STEP]])
    instances = prediction_table(alpha_of(3), ["s"] * 3, coords)
    predictions = Predictions(prediction_table(alpha_of(1), ["s"]), instances)
    write_ome_tiff(tmp_path / "s.ome.tiff", of_slide(predictions, "s"), ["a", "b"])
    with tifffile.TiffFile(tmp_path / "s.ome.tiff") as file:
        levels = [level.asarray()[0] for level in file.series[0].levels]
    assert len(levels) == 2
    values = set(np.unique(levels[0][np.isfinite(levels[0])]).tolist())
    assert len(values) == 3
    assert set(np.unique(levels[1][np.isfinite(levels[1])]).tolist()) == values


@pytest.mark.long
def test_positions_beyond_any_slide_make_no_map_beyond_memory(tmp_path: Path) -> None:
    coords = np.array([[0, 0], [1 << 50, 512]])
    instances = prediction_table(alpha_of(2), ["s"] * 2, coords)
    predictions = Predictions(prediction_table(alpha_of(1), ["s"]), instances)
    miue.export(predictions, tmp_path / "out", "ome-tiff", patch_size=64)
    assert channels(tmp_path / "out" / "s.ome.tiff")["probability of class 1"].shape == (1, 16_384)


@pytest.mark.long
@pytest.mark.parametrize("far", [10_000_000, 1 << 45])
def test_a_patch_far_from_all_others_makes_no_map_of_gigabytes(far: int, tmp_path: Path) -> None:
    """A single coordinate that was damaged in both directions took 22 GB, and the system ended the command."""
    miue.export(one_slide([[0, 0], [256, 0], [far, far]], [0.1, 0.2, 0.9]), tmp_path / "out", "ome-tiff")
    with tifffile.TiffFile(tmp_path / "out" / "s.ome.tiff") as file:
        assert file.series[0].shape[1:] == (2048, 2048)
    probability = channels(tmp_path / "out" / "s.ome.tiff")["probability of class 1"]
    assert np.nanmax(probability) == np.float32(0.9)


def test_names_of_any_script_and_markup_are_kept(tmp_path: Path) -> None:
    classes = ("<b>&\"'", "Gewebe ä 腫瘍")
    instances = prediction_table(alpha_of(15), ["<s> & ü"] * 15, GRID)
    predictions = Predictions(prediction_table(alpha_of(1), ["<s> & ü"]), instances, Provenance(classes=classes))
    miue.export(predictions, tmp_path / "maps", "ome-tiff")
    miue.export(predictions, tmp_path / "tables", "geoparquet")
    (map_of,) = (tmp_path / "maps").glob("*.tiff")
    assert list(channels(map_of))[:2] == [f"probability of {name}" for name in classes]
    (table,) = (tmp_path / "tables").glob("*.parquet")
    assert set(pq.read_table(table)["bag_id"].to_pylist()) == {"<s> & ü"}


def test_maps_take_the_size_of_the_slides(saved_slides: Path, tmp_path: Path) -> None:
    for name in ("007", "b"):
        write_glass(tmp_path / "slides" / f"{name}.tif", 3300, 1100)
    words = ("--slides", str(tmp_path / "slides"), "--quiet")
    result = export("ome-tiff", saved_slides, "--out", tmp_path / "maps", *words)
    assert result.exit_code == 0 and "maps of 2 slides" in result.output
    for name, side in (("007", STEP), ("b", 2 * STEP)):
        stated = pixels_of(tmp_path / "maps" / f"{name}.ome.tiff")
        assert float(stated["PhysicalSizeX"]) == pytest.approx(0.499 * side / 8)
        assert (int(stated["SizeX"]), int(stated["SizeY"])) == (round(3300 * 8 / side), round(1100 * 8 / side))
    (tmp_path / "slides" / "b.tif").unlink()
    error = export("ome-tiff", saved_slides, "--out", tmp_path / "none", *words).exception
    assert isinstance(error, StorageError) and "'b'" in str(error)
    result = export("ome-tiff", saved_slides, "--out", tmp_path / "some", *words, "--skip-bad")
    assert result.exit_code == 0 and "left out: slide 'b'" in result.output


def test_a_patch_that_begins_where_the_slide_ends_is_beside_it(saved_slides: Path, tmp_path: Path) -> None:
    for name in ("007", "b"):  # the last patch of b begins at 3149
        write_glass(tmp_path / "slides" / f"{name}.tif", 3149, 1100)
    words = ("geojson", saved_slides, "--slides", tmp_path / "slides", "--quiet", "--out")
    assert "1 of 4 patches beside it" in str(export(*words, tmp_path / "none").exception)
    write_glass(tmp_path / "slides" / "b.tif", 3150, 1100)
    assert export(*words, tmp_path / "all").exit_code == 0


@pytest.mark.parametrize("kind", ["geojson", pytest.param("heatmap", marks=pytest.mark.long), "ome-tiff"])
def test_a_slide_that_its_patches_do_not_lie_on_is_not_drawn_under_them(
    saved_slides: Path, tmp_path: Path, kind: str
) -> None:
    for name in ("007", "b"):  # the last patches of 007 only end beyond it, as padded ones do
        write_glass(tmp_path / "slides" / f"{name}.tif", 2220, 1100)
    words = (kind, saved_slides, "--slides", tmp_path / "slides", "--quiet", "--out")
    error = export(*words, tmp_path / "none").exception
    assert isinstance(error, DataError) and "slide 'b'" in str(error) and "1 of 4 patches beside it" in str(error)
    result = export(*words, tmp_path / "some", "--skip-bad")
    assert result.exit_code == 0 and "left out: slide 'b'" in result.output
    assert list(json.loads((tmp_path / "some" / "export.json").read_text("utf-8"))["slides"]) == ["007"]


def test_without_the_package_it_says_what_to_install(
    two_slides: Predictions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules: Any = sys.modules
    monkeypatch.setitem(modules, "tifffile", None)
    with pytest.raises(ConfigError, match=r"pip install 'miue\[slides\]'"):
        miue.export(two_slides, tmp_path / "out", "ome-tiff")
    assert not (tmp_path / "out").exists()
