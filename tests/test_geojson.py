"""Overlays for QuPath, read back and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import shapely
from made_slides import STEP, export, one_slide, write_glass

from miue.common.errors import ConfigError
from miue.pathology.export.geojson import Selection, regions, squares, write_geojson
from miue.pathology.export.patches import patch_sizes, patches_by_slide
from miue.pathology.slides import bounds_origin
from miue.predictions import Predictions


def everything(names: list[str] | None = None) -> Selection:
    names = names or ["normal", "tumour"]
    return Selection(names, list(range(len(names))))


def test_squares_are_read_back_with_their_places_and_values(saved_slides: Path, two_slides: Predictions) -> None:
    result = export("geojson", saved_slides, "--out", saved_slides.parent / "out", "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((saved_slides.parent / "out" / "b.geojson").read_text("utf-8"))
    assert content["type"] == "FeatureCollection"
    assert content["miue"]["patch_size_level0"] == 2 * STEP
    assert content["miue"]["patch_size_from"] == "step of the grid of coords"
    assert two_slides.instances is not None
    assert two_slides.instances.coords is not None
    uncertainties = two_slides.instances.uncertainties()
    assert len(content["features"]) == 4
    for row, feature in enumerate(content["features"], 15):
        polygon = shapely.geometry.shape(feature["geometry"])
        x, y = two_slides.instances.coords.values[row]
        assert polygon.equals(shapely.box(x, y, x + 2 * STEP, y + 2 * STEP))
        assert polygon.exterior.is_ccw
        properties = feature["properties"]
        assert properties["objectType"] == "detection"
        predicted = int(two_slides.instances.predicted[row])
        assert properties["classification"]["name"] == ["normal", "tumour"][predicted]
        assert len(properties["classification"]["color"]) == 3
        measurements = properties["measurements"]
        assert measurements["probability tumour"] == pytest.approx(two_slides.instances.probabilities[row, 1])
        for name, values in uncertainties.items():
            assert measurements["score_knn" if name == "knn" else name] == pytest.approx(values[row], rel=1e-5)


def test_a_threshold_keeps_the_patches_whose_chosen_class_reaches_it(two_slides: Predictions) -> None:
    (patches, _) = patches_by_slide(two_slides)
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


def test_merged_regions_cover_the_same_area_and_hold_every_patch_once(two_slides: Predictions) -> None:
    (patches, _) = patches_by_slide(two_slides)
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


def test_a_region_has_the_mean_of_its_patches_and_a_hole_where_there_is_one() -> None:
    ring = [[x, y] for x in range(3) for y in range(3) if (x, y) != (1, 1)]
    given = one_slide([*ring, [1, 1], [3, 3]], [0.9] * 4 + [0.7] * 4 + [0.1, 0.6])
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


def test_a_region_has_its_own_uncertainty_and_lies_where_the_viewer_has_it() -> None:
    given = one_slide([[512, 0], [513, 0], [515, 7]], [0.9, 0.8, 0.6])
    (patches,) = patches_by_slide(given, patch_sizes(given, 1))
    single, pair = sorted(
        regions(patches, Selection(["normal", "tumour"], [1]), origin=(500, -20)),
        key=lambda feature: feature["properties"]["measurements"]["patches"],
    )
    entropy = patches.uncertainties["entropy"]
    assert pair["properties"]["measurements"]["mean entropy"] == pytest.approx(entropy[:2].mean(), rel=1e-6)
    assert single["properties"]["measurements"]["mean entropy"] == pytest.approx(entropy[2], rel=1e-6)
    assert shapely.geometry.shape(pair["geometry"]).equals(shapely.box(12, 20, 14, 21))
    assert shapely.geometry.shape(single["geometry"]).equals(shapely.box(15, 27, 16, 28))


def test_patches_of_several_regions_may_be_in_any_order() -> None:
    given = one_slide([[0, 0], [7, 0], [1, 0], [8, 0], [2, 0]], [0.9, 0.6, 0.8, 0.7, 1.0])
    (patches,) = patches_by_slide(given, patch_sizes(given, 1))
    values = [one["properties"]["measurements"] for one in regions(patches, Selection(["normal", "tumour"], [1]))]
    means = {one["patches"]: one["mean probability tumour"] for one in values}
    assert means == {2: pytest.approx(0.65), 3: pytest.approx(0.9)}


def test_the_area_of_a_region_is_exact() -> None:
    size, count = 4099, 7
    given = one_slide([[size * x, 0] for x in range(count)], [0.7] * count)
    (patches,) = patches_by_slide(given, patch_sizes(given, size))
    (region,) = regions(patches, Selection(["normal", "tumour"], [1]))
    assert region["properties"]["measurements"]["area px²"] == count * size**2 == 117612607


def test_bounds_are_subtracted_and_stated(saved_slides: Path) -> None:
    result = export("geojson", saved_slides, "--out", saved_slides.parent / "out", "--bounds", "7,1000", "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((saved_slides.parent / "out" / "b.geojson").read_text("utf-8"))
    assert content["features"][0]["geometry"]["coordinates"][0][0] == [70, 1]
    assert content["miue"]["bounds_subtracted"] == [7, 1000]
    assert content["miue"]["probabilities"] == "of each patch, not calibrated"
    for wrong in ("7", "a,b", "1,2,3"):
        assert isinstance(export("geojson", saved_slides, "--out", "x", "--bounds", wrong).exception, ConfigError)


def test_the_bounds_of_a_slide_are_read_where_it_states_them() -> None:
    class Mirax:
        properties = {"openslide.bounds-x": "120", "openslide.bounds-y": "4000"}  # noqa: RUF012

    class Plain:
        properties: dict[str, str] = {}  # noqa: RUF012

    assert bounds_origin(Mirax()) == (120, 4000)
    assert bounds_origin(Plain()) == (0, 0)


def test_the_bounds_of_a_slide_are_subtracted(saved_slides: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slides = saved_slides.parent / "slides"
    for name in ("007.tif", "b.tif"):
        write_glass(slides / name, 3300, 1100)
    monkeypatch.setattr("miue.pathology.export.kinds.bounds_origin", lambda slide: (7, 1000))
    result = export("geojson", saved_slides, "--out", saved_slides.parent / "out", "--slides", slides, "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((saved_slides.parent / "out" / "b.geojson").read_text("utf-8"))
    assert content["features"][0]["geometry"]["coordinates"][0][0] == [70, 1]
    assert content["miue"]["bounds_subtracted"] == [7, 1000]
    assert content["miue"]["probabilities"] == "of each patch, not calibrated"


def test_a_failed_export_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield {"type": "Feature"}
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_geojson(tmp_path / "a.geojson", failing(), {})
    assert list(tmp_path.iterdir()) == []
