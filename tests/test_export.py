"""What pathologists get out: overlays and heatmaps, read back and compared."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import shapely
import torch
from made_slides import GRID, STEP, alpha_of
from made_slides import prediction_table as table
from matplotlib.image import imread
from typer.testing import CliRunner

from miue.bags import Labels
from miue.cli.app import app
from miue.coords import Coords
from miue.distributions import Categorical, Dirichlet, Draws
from miue.errors import ConfigError, DataError, StorageError
from miue.export.geojson import Selection, regions, squares, write_geojson
from miue.export.heatmap import Slide, heatmap_figure, layers_of, painted
from miue.export.patches import class_names, file_names, grid_step, patches_by_slide
from miue.prediction_table import PredictionTable
from miue.predictions import Predictions, read_predictions
from miue.slides import bounds_origin, find_slide, open_slide


@pytest.fixture
def predictions() -> Predictions:
    """Two slides, the second on a coarser grid that does not begin at 0."""
    coords = np.concatenate([GRID, 2 * GRID[:4] + [77, 1001]])
    ids = ["007"] * 15 + ["b"] * 4
    distances = np.linspace(0.1, 2, 19)
    instances = table(alpha_of(19), ids, coords, knn=distances)
    bags = table(alpha_of(2, 1), ["007", "b"], knn_mean=np.array([0.5, 1.0]))
    return Predictions(bags, instances, {"classes": ["normal", "tumour"]})


@pytest.fixture
def saved(predictions: Predictions, tmp_path: Path) -> Path:
    predictions.save(tmp_path / "predictions")
    return tmp_path / "predictions"


def everything(names: list[str] | None = None) -> Selection:
    names = names or ["normal", "tumour"]
    return Selection(names, list(range(len(names))))


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_the_grid_step_is_the_common_one_even_where_pieces_of_tissue_have_grids_of_their_own() -> None:
    pieces = np.concatenate([GRID, GRID[:3] + np.array([STEP * 4 + 13, 0])])
    assert grid_step(pieces) == STEP
    assert grid_step(GRID[::-1]) == STEP
    assert grid_step(np.array([[0, 0], [STEP, STEP]])) is None


def test_squares_are_read_back_with_their_places_and_values(saved: Path, predictions: Predictions) -> None:
    result = run("geojson", saved, "--out", saved.parent / "out", "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((saved.parent / "out" / "b.geojson").read_text("utf-8"))
    assert content["type"] == "FeatureCollection"
    assert content["miue"]["patch_size_level0"] == 2 * STEP
    assert content["miue"]["patch_size_from"] == "step of the grid of coords"
    assert predictions.instances is not None
    assert predictions.instances.coords is not None
    uncertainties = predictions.instances.uncertainties()
    assert len(content["features"]) == 4
    for row, feature in enumerate(content["features"], 15):
        polygon = shapely.geometry.shape(feature["geometry"])
        x, y = predictions.instances.coords.values[row]
        assert polygon.equals(shapely.box(x, y, x + 2 * STEP, y + 2 * STEP))
        assert polygon.exterior.is_ccw
        properties = feature["properties"]
        assert properties["objectType"] == "detection"
        predicted = int(predictions.instances.predicted[row])
        assert properties["classification"]["name"] == ["normal", "tumour"][predicted]
        assert len(properties["classification"]["color"]) == 3
        measurements = properties["measurements"]
        assert measurements["probability tumour"] == pytest.approx(predictions.instances.probabilities[row, 1])
        for name, values in uncertainties.items():
            assert measurements["score_knn" if name == "knn" else name] == pytest.approx(values[row], rel=1e-5)


def test_a_threshold_keeps_the_patches_whose_chosen_class_reaches_it(predictions: Predictions) -> None:
    (patches, _) = patches_by_slide(predictions)
    p = patches.probabilities[:, 1]
    for threshold in (0.2, 0.5, 0.7):
        kept = list(squares(patches, Selection(["normal", "tumour"], [1], threshold)))
        assert 0 < len(kept) == (p >= threshold).sum() < len(p)
        assert {f["properties"]["classification"]["name"] for f in kept} == {"tumour"}
    assert len(list(squares(patches, everything()))) == len(p)
    assert (
        len(list(squares(patches, Selection(["normal", "tumour"], [1]))))
        == (patches.probabilities.argmax(1) == 1).sum()
    )


def test_merged_regions_cover_the_same_area_and_hold_every_patch_once(predictions: Predictions) -> None:
    (patches, _) = patches_by_slide(predictions)
    for threshold in (None, 0.6):
        selection = replace(everything(), threshold=threshold)
        single, merged = list(squares(patches, selection)), list(regions(patches, selection))
        assert len(merged) < len(single)
        assert sum(f["properties"]["measurements"]["patches"] for f in merged) == len(single)
        for name in ("normal", "tumour"):
            of_single, of_merged = (
                shapely.union_all(
                    [
                        shapely.geometry.shape(f["geometry"])
                        for f in found
                        if f["properties"]["classification"]["name"] == name
                    ]
                )
                for found in (single, merged)
            )
            assert of_merged.equals(of_single)


def made(coords: list[list[int]], tumour: list[float]) -> Predictions:
    p = torch.tensor([[1 - t, t] for t in tumour], dtype=torch.float64)
    return Predictions(table(Categorical(p[:1]), ["s"]), table(Categorical(p), ["s"] * len(p), np.array(coords)))


def test_a_region_has_the_mean_of_its_patches_and_a_hole_where_there_is_one() -> None:
    ring = [[x, y] for x in range(3) for y in range(3) if (x, y) != (1, 1)]
    given = made([*ring, [1, 1], [3, 3]], [0.9] * 4 + [0.7] * 4 + [0.1, 0.6])
    (patches,) = patches_by_slide(given)
    found = list(regions(patches, Selection(["normal", "tumour"], [1])))
    around, corner = sorted(found, key=lambda f: -f["properties"]["measurements"]["patches"])
    assert len(around["geometry"]["coordinates"]) == 2  # an outer ring and a hole
    assert len(around["geometry"]["coordinates"][0]) == 5  # no point in the middle of an edge
    values = around["properties"]["measurements"]
    assert values["mean probability tumour"] == pytest.approx(0.8)
    assert values["highest probability tumour"] == pytest.approx(0.9)
    assert values["area px²"] == 8
    assert corner["properties"]["measurements"]["patches"] == 1  # touches at a corner alone


def test_the_area_of_a_region_is_exact() -> None:
    size, count = 4099, 7
    given = made([[size * x, 0] for x in range(count)], [0.7] * count)
    (patches,) = patches_by_slide(given, patch_size=size)
    (region,) = regions(patches, Selection(["normal", "tumour"], [1]))
    assert region["properties"]["measurements"]["area px²"] == count * size**2 == 117612607


def test_bounds_are_subtracted_and_stated(saved: Path) -> None:
    result = run("geojson", saved, "--out", saved.parent / "out", "--bounds", "7,1000", "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((saved.parent / "out" / "b.geojson").read_text("utf-8"))
    assert content["features"][0]["geometry"]["coordinates"][0][0] == [70, 1]
    assert content["miue"]["bounds_subtracted"] == [7, 1000]
    for wrong in ("7", "a,b", "1,2,3"):
        assert isinstance(run("geojson", saved, "--out", "x", "--bounds", wrong).exception, ConfigError)


def test_the_bounds_of_a_slide_are_read_where_it_states_them() -> None:
    class Mirax:
        properties = {"openslide.bounds-x": "120", "openslide.bounds-y": "4000"}  # noqa: RUF012

    class Plain:
        properties: dict[str, str] = {}  # noqa: RUF012

    assert bounds_origin(Mirax()) == (120, 4000)
    assert bounds_origin(Plain()) == (0, 0)


def test_the_bounds_of_a_slide_are_subtracted(
    saved: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slides = saved.parent / "slides"
    slides.mkdir()
    for name in ("007.svs", "b.svs"):
        (slides / name).symlink_to(shared_data / "CMU-1-Small-Region.svs")
    monkeypatch.setattr("miue.export.folders.bounds_origin", lambda slide: (7, 1000))
    result = run("geojson", saved, "--out", saved.parent / "out", "--slides", slides, "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((saved.parent / "out" / "b.geojson").read_text("utf-8"))
    assert content["features"][0]["geometry"]["coordinates"][0][0] == [70, 1]
    assert content["miue"]["bounds_subtracted"] == [7, 1000]


def test_a_failed_export_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield {"type": "Feature"}
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_geojson(tmp_path / "a.geojson", failing(), {})
    assert list(tmp_path.iterdir()) == []


def test_painted_values_lie_where_the_patches_lie_and_keep_their_values(predictions: Predictions) -> None:
    (patches, _) = patches_by_slide(predictions)
    values = np.arange(15.0)
    picture = painted(patches, values, (0, 0, 6 * STEP, 3 * STEP), longest=60)
    assert picture.shape == (30, 60)
    assert np.array_equal(picture[5::10, 5::10][:, :5].ravel(), values)
    assert np.isnan(picture[:, 50:]).all()
    assert not np.isnan(picture[:, :50]).any()


def test_overlapping_patches_are_averaged() -> None:
    (patches,) = patches_by_slide(made([[0, 0], [2, 0]], [0.1, 0.9]), 4)
    picture = painted(patches, patches.probabilities[:, 1], (0, 0, 6, 4))
    assert picture[0].tolist() == pytest.approx([0.1, 0.1, 0.5, 0.5, 0.9, 0.9])


def test_a_heatmaps_ranges_are_fixed_by_the_method_alone() -> None:
    dirichlet = layers_of(alpha_of(3, classes=3), "tumour")
    flat = Dirichlet(torch.ones(1, 3, dtype=torch.float64))
    assert [layer.highest for layer in dirichlet] == pytest.approx(
        [1, math.log(3), float(flat.mutual_information())], rel=1e-5
    )
    p = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
    draws = layers_of(Draws(p, torch.tensor([0.3], dtype=torch.float64)), "tumour")
    assert [layer.highest for layer in draws] == pytest.approx([1, math.log(2), math.log(2)])
    assert [layer.column for layer in layers_of(Categorical(p), "tumour")] == ["probability", "entropy"]


def test_a_heatmap_shows_raw_values_units_and_ranges(predictions: Predictions) -> None:
    (patches, _) = patches_by_slide(predictions)
    layers = layers_of(alpha_of(1), "tumour")
    slide = Slide(np.full((3, 5, 3), 200, np.uint8), (5 * STEP, 3 * STEP), 0.5)
    for under in (None, slide):
        figure = heatmap_figure(patches, layers, 1, under)
        panels = [axis for axis in figure.axes if axis.images and axis.get_title(loc="left") != "Slide"]
        assert len(panels) == 3
        for panel, layer in zip(panels, layers, strict=True):
            image = panel.images[-1]
            assert image.get_clim() == (0, layer.highest)
            shown: np.ndarray = np.unique(np.ma.asarray(image.get_array()).compressed())
            expected = (
                patches.probabilities[:, 1]
                if layer.column == "probability"
                else patches.uncertainties[layer.column]
            )
            assert shown == pytest.approx(np.unique(expected))
        labels = [axis.get_xlabel() for axis in figure.axes]
        assert sum("nats" in label for label in labels) == 2


def test_the_heatmap_command_writes_a_picture_per_slide(saved: Path) -> None:
    result = run("heatmap", saved, "--out", saved.parent / "out", "--quiet")
    assert result.exit_code == 0, result.output
    files = sorted((saved.parent / "out").iterdir())
    assert [file.name for file in files] == ["007.png", "b.png"]
    picture = imread(files[0])
    assert picture.shape[1] > 1500
    assert picture.std() > 0.05


def test_a_heatmap_is_drawn_over_the_real_slide(shared_data: Path, tmp_path: Path) -> None:
    coords = GRID[:4] // 2
    ids = ["CMU-1-Small-Region"]
    Predictions(table(alpha_of(1), ids), table(alpha_of(4), ids * 4, coords)).save(tmp_path / "p")
    result = run("heatmap", tmp_path / "p", "--slides", shared_data, "--out", tmp_path / "out", "--quiet")
    assert result.exit_code == 0, result.output
    assert imread(tmp_path / "out" / "CMU-1-Small-Region.png").shape[1] > 2000  # four panels
    result = run("geojson", tmp_path / "p", "--slides", shared_data, "--out", tmp_path / "json", "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "json" / "CMU-1-Small-Region.geojson").read_text("utf-8"))
    assert content["miue"]["bounds_subtracted"] == [0, 0]


def test_predictions_without_coords_are_refused(predictions: Predictions, tmp_path: Path) -> None:
    assert predictions.instances is not None
    replace(predictions, instances=replace(predictions.instances, coords=None)).save(tmp_path / "p")
    for command in ("geojson", "heatmap"):
        error = run(command, tmp_path / "p", "--out", tmp_path / "out", "--quiet").exception
        assert isinstance(error, DataError)
        assert "x and y" in str(error)
    assert not (tmp_path / "out").exists()


def test_a_slide_without_coords_is_named_or_left_out_of_what_is_drawn(
    predictions: Predictions, tmp_path: Path
) -> None:
    assert predictions.instances is not None and predictions.instances.coords is not None
    there = predictions.instances.bag_ids.astype(str) != "b"
    coords = Coords(predictions.instances.coords.values, there)
    replace(predictions, instances=replace(predictions.instances, coords=coords)).save(tmp_path / "p")
    back = read_predictions(tmp_path / "p").instances
    assert back is not None and back.coords is not None
    assert np.array_equal(back.coords.known, there)
    assert np.array_equal(back.coords.values[there], coords.values[there])
    error = run("geojson", tmp_path / "p", "--out", tmp_path / "out", "--quiet").exception
    reason = "slide 'b': expected a position of every patch, got 4 of 4 patches without"
    assert isinstance(error, DataError) and reason in str(error)
    assert not (tmp_path / "out").exists()
    result = run("geojson", tmp_path / "p", "--out", tmp_path / "out", "--quiet", "--skip-bad")
    assert result.exit_code == 0 and reason in result.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["007.geojson"]
    error = run("arrays", tmp_path / "p", "--out", tmp_path / "h5", "--quiet", "--patch-size", "64").exception
    assert isinstance(error, DataError) and reason in str(error)


def test_a_slide_of_one_patch_needs_its_size_or_is_left_out_and_named(
    saved: Path, predictions: Predictions
) -> None:
    assert predictions.instances is not None
    assert predictions.instances.coords is not None
    keep = np.arange(16)
    one = PredictionTable(
        alpha_of(16),
        predictions.instances.bag_ids[keep],
        Labels.unknown(16),
        np.zeros(16, bool),
        np.array([""] * 16, object),
        keep,
        {},
        predictions.instances.coords[keep],
    )
    given = replace(predictions, instances=one)
    given.save(saved, overwrite=True)
    out = saved.parent / "out"
    error = run("geojson", saved, "--out", out, "--quiet").exception
    assert isinstance(error, DataError)
    assert "slide 'b'" in str(error)
    assert "--patch-size" in str(error)
    result = run("geojson", saved, "--out", out, "--skip-bad", "--quiet")
    assert result.exit_code == 0
    assert "left out: slide 'b'" in result.output
    assert [file.name for file in out.iterdir()] == ["007.geojson"]
    assert run("geojson", saved, "--out", out, "--patch-size", 256, "--overwrite", "--quiet").exit_code == 0
    content = json.loads((out / "b.geojson").read_text("utf-8"))
    assert (content["miue"]["patch_size_level0"], content["miue"]["patch_size_from"]) == (256, "given")


def test_a_missing_or_broken_slide_is_named_and_can_be_left_out(saved: Path, shared_data: Path) -> None:
    slides, out = saved.parent / "slides", saved.parent / "out"
    slides.mkdir()
    error = run("heatmap", saved, "--slides", slides, "--out", out, "--quiet").exception
    assert isinstance(error, StorageError)
    assert "slide '007'" in str(error)
    (slides / "007.svs").write_bytes((shared_data / "CMU-1-Small-Region.svs").read_bytes()[:5000])
    error = run("heatmap", saved, "--slides", slides, "--out", out, "--quiet").exception
    assert isinstance(error, StorageError)
    assert "OpenSlide" in str(error)
    assert not out.exists()
    (slides / "b.svs").symlink_to(shared_data / "CMU-1-Small-Region.svs")
    result = run("heatmap", saved, "--slides", slides, "--out", out, "--skip-bad", "--quiet")
    assert result.exit_code == 0, result.output
    assert "left out" in result.output
    assert [file.name for file in out.iterdir()] == ["b.png"]
    (slides / "b.svs").unlink()
    nothing = run("heatmap", saved, "--slides", slides, "--out", saved.parent / "none", "--skip-bad", "--quiet")
    assert isinstance(nothing.exception, DataError)
    assert not (saved.parent / "none").exists()


def test_a_slide_is_found_by_id_with_or_without_its_suffix(tmp_path: Path) -> None:
    for name in ("a.svs", "a.csv", "b.1.ndpi"):
        (tmp_path / name).touch()
    assert find_slide(tmp_path, "a").name == find_slide(tmp_path, "a.svs").name == "a.svs"
    assert find_slide(tmp_path, "b.1").name == "b.1.ndpi"
    with pytest.raises(StorageError, match="no such file"):
        find_slide(tmp_path, "b")
    with pytest.raises(StorageError, match="no such folder"):
        find_slide(tmp_path / "none", "b")


def test_ids_never_lead_out_of_the_folder_and_never_share_a_file() -> None:
    assert file_names(["../../etc/x", ".."], ".png") == {"../../etc/x": "_.._etc_x.png", "..": "_.png"}
    with pytest.raises(DataError, match="'a/b' and 'a:b'"):
        file_names(["a/b", "a:b"], ".png")


def test_classes_without_names_are_numbered(predictions: Predictions, saved: Path) -> None:
    assert class_names(replace(predictions, about={})) == ["class 0", "class 1"]
    assert class_names(read_predictions(saved)) == ["normal", "tumour"]
    error = run("geojson", saved, "--out", saved.parent / "out", "--class", "tumor").exception
    assert isinstance(error, ConfigError)
    assert "did you mean 'tumour'" in str(error)


def test_an_opened_slide_reads_as_openslide_does(shared_data: Path) -> None:
    with open_slide(shared_data / "CMU-1-Small-Region.svs") as slide:
        assert slide.dimensions == (2220, 2967)


def test_arrays_are_read_back_with_their_places_and_values(saved: Path, predictions: Predictions) -> None:
    result = run("arrays", saved, "--out", saved.parent / "out", "--quiet")
    assert result.exit_code == 0, result.output
    table = predictions.instances
    assert table is not None
    assert table.coords is not None
    files = sorted(path.name for path in (saved.parent / "out").iterdir())
    assert files == ["007.h5", "b.h5"]
    for slide in ("007", "b"):
        rows = np.flatnonzero(table.bag_ids.astype(str) == slide)
        with h5py.File(saved.parent / "out" / f"{slide}.h5", "r") as file:
            assert np.array_equal(file["coords"][:], table.coords.values[rows])
            assert file["coords"].attrs["patch_size_level0"] == (STEP if slide == "007" else 2 * STEP)
            assert json.loads(file["probabilities"].attrs["classes"]) == class_names(predictions)
            np.testing.assert_allclose(file["probabilities"][:], table.probabilities[rows], rtol=1e-6)
            for name, values in table.uncertainties().items():
                column = name if name in file else f"score_{name}"
                np.testing.assert_allclose(file[column][:], values[rows], rtol=1e-6)
            assert len(file) == 2 + len(table.uncertainties())
