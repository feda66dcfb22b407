"""Outlines of tumor: which files are read, which refused, and which patches they make positive."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from shapely import box
from typer.testing import CliRunner

from miue.cli.app import app
from miue.common.errors import ConfigError, DataError, StorageError
from miue.pathology.annotations import AnnotationFiles, Groups, is_tumor, read_tumor, tumor_share
from miue.pathology.tile_files import read_attributes, read_tiles

HEAD = '<?xml version="1.0"?>'
Outline = list[tuple[float, float]]


def square(x: float, y: float, side: float) -> Outline:
    return [(x, y), (x + side, y), (x + side, y + side), (x, y + side)]


def asap(path: Path, *drawn: tuple[str, Outline], kind: str = "Polygon") -> Path:
    """Corners are written in reverse: their Order attribute counts, not their place."""
    parts = []
    for number, (group, outline) in enumerate(drawn):
        corners = [f'<Coordinate Order="{i}" X="{x}" Y="{y}" />' for i, (x, y) in enumerate(outline)]
        parts.append(
            f'<Annotation Name="a{number}" Type="{kind}" PartOfGroup="{group}" Color="#F4FA58">'
            f"<Coordinates>{''.join(reversed(corners))}</Coordinates></Annotation>"
        )
    groups = '<AnnotationGroups><Group Name="Tumor" PartOfGroup="None" /></AnnotationGroups>'
    body = f"<ASAP_Annotations><Annotations>{''.join(parts)}</Annotations>{groups}</ASAP_Annotations>"
    path.write_text(HEAD + body)
    return path


def feature(name: str | None, *rings: Outline, kind: str = "annotation") -> dict[str, Any]:
    properties: dict[str, Any] = {"objectType": kind}
    if name is not None:
        properties["classification"] = {"name": name, "color": [200, 0, 0]}
    closed = [[*ring, ring[0]] for ring in rings]
    return {"type": "Feature", "properties": properties, "geometry": {"type": "Polygon", "coordinates": closed}}


def qupath(path: Path, *features: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return path


@pytest.mark.parametrize(
    ("groups", "area"),
    [
        (Groups(), 200),
        (Groups(positive=("Tumor: Positive",), ignored=("tumor",)), 100),
        (Groups(excluded=("tumor: positive",)), 100),
    ],
)
def test_a_derived_class_of_qupath_means_what_its_base_does_unless_it_is_named(
    groups: Groups, area: float, tmp_path: Path
) -> None:
    drawn = [feature("", square(x, 0, 10)) for x in (0, 10)]
    for one, word in zip(drawn, ("Positive", "Negative"), strict=True):
        one["properties"]["classification"] = {"names": ["Tumor", word]}
    assert read_tumor(qupath(tmp_path / "a.geojson", *drawn), groups).area == pytest.approx(area)


def test_outlines_of_tumor_are_united_and_what_is_excluded_is_cut_out(tmp_path: Path) -> None:
    first, second, hole = square(0, 0, 10), square(5, 0, 10), square(2, 2, 4)
    path = asap(tmp_path / "a.xml", ("_0", first), ("_1", second), ("_2", hole))
    assert read_tumor(path).area == pytest.approx(150 - 16)
    named = asap(tmp_path / "b.xml", ("Tumor", first), ("Exclusion", hole))
    assert read_tumor(named).area == pytest.approx(100 - 16)
    drawn = qupath(tmp_path / "c.geojson", feature("Tumor", first, hole), feature("Tumor", second))
    assert read_tumor(drawn).area == pytest.approx(150 - 16 + 4)  # the second covers part of the hole


def test_a_star_is_read_by_the_order_of_its_corners_and_outlines_that_cross_themselves_are_mended(
    tmp_path: Path,
) -> None:
    bow = [(0.0, 0.0), (10.0, 10.0), (10.0, 0.0), (0.0, 10.0)]
    assert read_tumor(asap(tmp_path / "a.xml", ("Tumor", bow))).area == pytest.approx(50)
    assert read_tumor(qupath(tmp_path / "b.json", feature("tumor", bow))).area == pytest.approx(50)


def test_corners_are_in_the_order_of_their_numbers_and_not_of_digits(tmp_path: Path) -> None:
    stairs = [(float(x), float(y)) for n in range(6) for x, y in ((n, n), (n + 1, n))] + [(6.0, 6.0), (0.0, 6.0)]
    assert read_tumor(asap(tmp_path / "a.xml", ("Tumor", stairs))).area == pytest.approx(21)


def test_dots_detections_and_ignored_groups_are_passed_over_and_unknown_groups_are_not(tmp_path: Path) -> None:
    tumor = ("Tumor", square(0, 0, 10))
    dot = asap(tmp_path / "dot.xml", tumor)
    text = dot.read_text().replace(
        "</Annotations>",
        '<Annotation Name="d" Type="Dot" PartOfGroup="other"><Coordinates><Coordinate Order="0" X="1" Y="1"/>'
        "</Coordinates></Annotation></Annotations>",
    )
    dot.write_text(text)
    assert read_tumor(dot).area == pytest.approx(100)
    cells = feature("Immune", square(0, 0, 2), kind="detection")
    assert read_tumor(qupath(tmp_path / "c.geojson", feature("Tumor", tumor[1]), cells)).area == 100
    tissue = qupath(tmp_path / "t.geojson", feature("Tumor", tumor[1]), feature("Tissue", square(0, 0, 90)))
    with pytest.raises(DataError, match="got 'Tissue'; .* --ignore"):
        read_tumor(tissue)
    assert read_tumor(tissue, Groups(ignored=("tissue",))).area == 100
    counts = Counter[str]()
    region = qupath(tmp_path / "n.geojson", feature("Tumor", tumor[1]), feature(None, square(0, 0, 90)))
    assert read_tumor(region, counts=counts).area == 100 and counts["unclassified"] == 1
    with pytest.raises(DataError, match="a polygon of tumor, got none"):
        read_tumor(asap(tmp_path / "e.xml", ("_2", square(0, 0, 3))))


def test_a_hole_that_shares_an_edge_and_parts_that_overlap_keep_their_area(tmp_path: Path) -> None:
    at_corner = qupath(tmp_path / "a.geojson", feature("Tumor", square(0, 0, 10), square(0, 0, 5)))
    assert read_tumor(at_corner).area == pytest.approx(75)
    drawn = feature("Tumor", square(0, 0, 10))
    parts = [feature(None, square(x, 0, 10))["geometry"]["coordinates"] for x in (0, 5)]
    drawn["geometry"] = {"type": "MultiPolygon", "coordinates": parts}
    assert read_tumor(qupath(tmp_path / "b.geojson", drawn)).area == pytest.approx(150)


def test_a_real_file_of_asap_is_read(shared_data: Path) -> None:
    path = shared_data / "real_files" / "tumor_009.xml"
    if not path.exists():
        pytest.skip("needs real_files/tumor_009.xml in ../shared/data")
    root = ElementTree.parse(path).getroot()
    rings = [
        np.array([[float(corner.attrib[axis]) for axis in "XY"] for corner in drawn.iter("Coordinate")])
        for drawn in root.iter("Annotation")
    ]
    tumor, corners = read_tumor(path), np.concatenate(rings)
    assert len(rings) == 6 and tumor.bounds == pytest.approx([*corners.min(0), *corners.max(0)])
    following = [np.roll(ring, -1, 0) for ring in rings]
    areas = [abs((a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]).sum()) / 2 for a, b in zip(rings, following, strict=True)]
    assert tumor.area == pytest.approx(sum(areas), rel=1e-3)  # outlines drawn by hand cross themselves a little


def test_detections_of_older_qupath_are_passed_over(tmp_path: Path) -> None:
    drawn, cell = feature("Tumor", square(0, 0, 10)), feature("Tumor", square(50, 50, 10))
    for one, name in ((drawn, "PathAnnotationObject"), (cell, "PathDetectionObject")):
        one["id"] = name  # up to 0.3 there is no objectType
        del one["properties"]["objectType"]
    assert read_tumor(qupath(tmp_path / "a.geojson", drawn, cell)).area == 100


def test_areas_of_a_collection_count_and_its_points_and_lines_do_not(tmp_path: Path) -> None:
    parts = [feature(None, square(x, 0, 10))["geometry"] for x in (0, 20)]
    two_triangles = [[40, 0], [50, 10], [50, 0], [40, 10], [40, 0]]
    crossing = {"type": "Polygon", "coordinates": [two_triangles]}
    line = {"type": "LineString", "coordinates": [[0, 0], [90, 90]]}
    drawn = feature("Tumor", square(0, 0, 1))
    drawn["geometry"] = {"type": "GeometryCollection", "geometries": [*parts, crossing, line]}
    assert read_tumor(qupath(tmp_path / "a.geojson", drawn)).area == pytest.approx(250)
    drawn["geometry"]["geometries"] = [line]
    with pytest.raises(DataError, match="a polygon of tumor, got none"):
        read_tumor(qupath(tmp_path / "a.geojson", drawn))


@pytest.mark.parametrize(
    "attack",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>',
        '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/hostname">]><x>&f;</x>',
        '<!DOCTYPE x SYSTEM "http://localhost:9/x.dtd"><x/>',
    ],
)
def test_xml_that_declares_entities_or_a_document_type_is_refused(attack: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(HEAD + attack)
    with pytest.raises(StorageError, match=r"without entities or document type, got (DTD|Entities)Forbidden"):
        read_tumor(path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.xml", "<ASAP_Annotations><Annotations>", "no element found"),
        (
            "a.xml",
            '<ASAP_Annotations><Annotation Type="Polygon" PartOfGroup="_0"/></ASAP_Annotations>',
            "an outline of 0 corners",
        ),
        (
            "a.xml",
            '<ASAP_Annotations><Annotation><Coordinate X="1" Y="2"/></Annotation></ASAP_Annotations>',
            "Order",
        ),
        ("a.geojson", "{", "Expecting"),
        ("a.geojson", "[1]", "'int'"),
        ("a.geojson", "[" * 100_000, "recursion"),
        ("a.geojson", "7" * 5000, "Exceeds the limit"),
        ("a.geojson", '{"geometry": {"type": "Point", "coordinates": [1' + "0" * 400 + ", 1]}}", "large"),
        ("a.geojson", '{"features": [{"geometry": {"type": "Polygon", "coordinates": [[1]]}}]}', "."),
    ],
)
def test_damaged_annotations_are_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(StorageError, match=rf"annotation '.*{name}': .*{said}"):
        read_tumor(path)


@pytest.mark.parametrize("far", ["1e18", "nan", "-inf"])
def test_a_corner_beyond_every_slide_is_named(far: str, tmp_path: Path) -> None:
    path = asap(tmp_path / "a.xml", ("Tumor", square(0, 0, 10)))
    path.write_text(path.read_text().replace('X="10"', f'X="{far}"', 1))
    assert far in path.read_text()
    with pytest.raises(StorageError, match="a corner that is not finite, or beyond 9,007,199,254,740,992 pixels"):
        read_tumor(path)


LINE = [(0.0, 0.0), (9.0, 9.0), (0.0, 0.0)]


@pytest.mark.parametrize("outline", [LINE, [(1.0, 1.0)] * 3, [(0.0, 0.0), (5.0, 0.0), (9.0, 0.0)]])
@pytest.mark.parametrize("group", ["Tumor", "Exclusion"])
def test_an_outline_of_area_zero_is_named_whatever_it_means(
    group: str, outline: list[tuple[float, float]], tmp_path: Path
) -> None:
    tumor = ("Tumor", square(0, 0, 10))
    with pytest.raises(DataError, match=rf"a.xml', outline 2 \({group}\): expected an outline around an area"):
        read_tumor(asap(tmp_path / "a.xml", tumor, (group, outline)))
    with pytest.raises(DataError, match=rf"b.json', outline 2 \({group}\): expected an outline around an area"):
        read_tumor(qupath(tmp_path / "b.json", feature(*tumor), feature(group, outline)))
    assert read_tumor(asap(tmp_path / "i.xml", tumor, ("No", outline)), Groups(ignored=("no",))).area == 100


@pytest.mark.parametrize("coordinates", ["[]", "[[]]", "[[[0, 0], [1, 1]]]"])
def test_a_polygon_without_a_ring_is_named(coordinates: str, tmp_path: Path) -> None:
    geometry = f'{{"type": "Polygon", "coordinates": {coordinates}}}'
    named = '{"classification": {"name": "Tumor"}}'
    (tmp_path / "a.json").write_text(f'{{"type": "Feature", "geometry": {geometry}, "properties": {named}}}')
    with pytest.raises((DataError, StorageError), match=r"annotation '.*a.json'"):
        read_tumor(tmp_path / "a.json")


def test_a_tumor_that_is_cut_out_as_a_whole_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="got none: all of it is cut out"):
        read_tumor(asap(tmp_path / "a.xml", ("Tumor", square(2, 2, 3)), ("Exclusion", square(0, 0, 9))))


def test_a_corner_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not finite"):
        read_tumor(asap(tmp_path / "a.xml", ("Tumor", [(0, 0), (float("nan"), 1), (2, 2)])))
    with pytest.raises(StorageError, match="or beyond"):
        read_tumor(qupath(tmp_path / "b.json", feature("Tumor", [(0, 0), (1e308, 1), (2, 2e300)])))


def test_shares_are_those_of_pixels_counted_one_by_one() -> None:
    random = np.random.default_rng(0)
    tumor = box(3, 4, 29, 17).union(box(31, 20, 36, 40)).difference(box(10, 6, 13, 12))
    pixels = np.array([[tumor.contains(box(x, y, x + 1, y + 1)) for x in range(45)] for y in range(45)])
    coords = random.integers(0, 45 - 7, (60, 2)).astype(np.int64)
    counted = [pixels[y : y + 7, x : x + 7].mean() for x, y in coords]
    assert tumor_share(tumor, coords, 7) == pytest.approx(counted, abs=1e-12)
    assert max(counted) == 1
    assert 0 < np.median(counted) < 1


def test_a_patch_is_positive_from_a_fifth_of_its_area_on() -> None:
    coords = np.array([[0, 0], [100, 0], [200, 0]], np.int64)
    exactly, less = box(0, 0, 10, 2), box(100, 0, 110, 1.99)
    share = tumor_share(exactly.union(less), coords, 10)
    assert is_tumor(share).tolist() == [True, False, False]
    assert is_tumor(np.array([3 * 0.1 - 0.1])).tolist() == [True]  # 0.2 but for rounding


@pytest.fixture
def tiled(tmp_path: Path) -> Path:
    """Two slides of four patches of 256 pixels, read at half the size; "010" keeps its zero."""
    folder = tmp_path / "features"
    folder.mkdir()
    for name in ("010", "normal_1"):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["features"] = np.zeros((4, 2), np.float32)
            file["coords"] = np.array([[0, 0], [256, 0], [0, 256], [256, 256]])
            file["coords"].attrs.update(patch_size=128, patch_size_level0=256)
    (tmp_path / "xml").mkdir()
    asap(tmp_path / "xml" / "010.xml", ("Tumor", square(200, 0, 160)))
    return tmp_path


def label(tiled: Path, *words: object) -> Any:
    given = [tiled / "features", "--annotations", tiled / "xml", "--out", tiled / "labels.csv", "--quiet", *words]
    return CliRunner().invoke(app, ["data", "patch-labels", *map(str, given)])


def rows(tiled: Path) -> list[tuple[str, ...]]:
    with (tiled / "labels.csv").open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def test_patches_are_labeled_in_their_order_and_ids_stay_text(tiled: Path) -> None:
    result = label(tiled, "--unannotated", "negative")
    assert result.exit_code == 0, result.output
    # 56 × 160 of 65,536 pixels are 14 %, 104 × 160 are 25 %
    first = [("010", str(i), value) for i, value in enumerate("0100")]
    second = [("normal_1", str(i), "0") for i in range(4)]
    assert rows(tiled) == [("bag_id", "instance", "instance_label"), *first, *second]
    assert "1 of 8 patches of 2 slides is tumor; 1 slide without annotation: negative" in result.output
    assert label(tiled, "--unannotated", "skip", "--least", "0.1", "--overwrite").exit_code == 0
    assert rows(tiled)[1:] == [("010", str(i), value) for i, value in enumerate("1100")]


def test_patches_are_labeled_by_their_side_on_level_0_alone(tiled: Path) -> None:
    """What size their pictures were read at is of no use, and not all files say it."""
    assert label(tiled, "--unannotated", "negative").exit_code == 0
    whole = rows(tiled)
    for name in ("010", "normal_1"):
        with h5py.File(tiled / "features" / f"{name}.h5", "a") as file:
            del file["coords"].attrs["patch_size"]
    result = label(tiled, "--unannotated", "negative", "--overwrite")
    assert result.exit_code == 0, result.exception
    assert rows(tiled) == whole
    with pytest.raises(DataError, match="attribute patch_size, .* got patch_size_level0; cut .* anew"):
        read_tiles(tiled / "features" / "010.h5")
    with h5py.File(tiled / "features" / "010.h5", "a") as file:
        del file["coords"].attrs["patch_size_level0"]
    said = str(label(tiled, "--unannotated", "negative", "--overwrite").exception)
    assert "expected the attribute patch_size_level0 (or CLAM's patch_size and downsample), got none" in said
    assert "write the attribute patch_size_level0 to the coords" in said and "--tiles" not in said


def test_a_slide_without_annotation_is_negative_only_if_asked_for(tiled: Path) -> None:
    error = label(tiled).exception
    assert isinstance(error, DataError)
    assert "normal_1" in str(error)
    assert "--unannotated negative" in str(error)
    assert not (tiled / "labels.csv").exists()
    assert isinstance(label(tiled, "--unannotated", "positive").exception, ConfigError)
    assert isinstance(label(tiled, "--least", "0").exception, ConfigError)


def test_endings_of_any_case_are_those_of_annotations_and_of_features(tiled: Path) -> None:
    """Where they were passed over, with --unannotated negative the tumor was negative, or its slide not there."""
    assert label(tiled, "--unannotated", "negative").exit_code == 0
    whole = rows(tiled)
    (tiled / "xml" / "010.xml").rename(tiled / "xml" / "010.XML")
    (tiled / "features" / "010.h5").rename(tiled / "features" / "010.H5")
    assert label(tiled, "--unannotated", "negative", "--overwrite").exit_code == 0
    assert rows(tiled) == whole


def test_geojson_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = qupath(tmp_path / "a.geojson", feature("Tumor", square(0, 0, 10)))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_tumor(path).area == 100


def test_annotations_are_joined_as_bags_are_by_their_names(tiled: Path) -> None:
    """QuPath adds ".geojson" to the file of the slide; slides of TCGA are known by their barcodes as well."""
    assert label(tiled, "--unannotated", "negative").exit_code == 0
    whole = [row[1:] for row in rows(tiled)]
    barcode, unique = "TCGA-3C-AALI-01Z-00-DX1", "f6e9a5df-d8cd-45cf-b460-c8b9690b9544"
    (tiled / "xml" / "010.xml").rename(tiled / "xml" / f"{barcode}.xml")
    (tiled / "features" / "010.h5").rename(tiled / "features" / f"{barcode}.{unique}.h5")
    assert "not read" not in label(tiled, "--unannotated", "negative", "--overwrite").output
    assert sorted(row[1:] for row in rows(tiled)) == sorted(whole)
    qupath(tiled / "xml" / "011.svs.geojson", feature("Tumor", square(0, 0, 99)))
    files = AnnotationFiles.at(tiled / "xml")
    found = files.of_slide("011")
    assert found is not None and found.name == "011.svs.geojson"
    assert files.of_slide("011.svs") == found and files.of_slide("11") is None
    assert files.of_others([f"{barcode}.{unique}"]) == ["011.svs.geojson"]
    (tiled / "xml" / "011.xml").touch()
    files = AnnotationFiles.at(tiled / "xml")
    found = files.of_slide("011")
    assert found is not None and found.name == "011.xml"
    assert files.of_others(["011", barcode]) == ["011.svs.geojson"]


def test_annotations_of_no_slide_are_named(tiled: Path) -> None:
    (tiled / "xml" / "010.xml").unlink()
    qupath(tiled / "xml" / "10.geojson", feature("Tumor", square(0, 0, 99)))
    (tiled / "xml" / "notes.txt").touch()
    result = label(tiled, "--unannotated", "negative")
    assert "1 annotation not read, named as none of the slides: 10.geojson" in result.output
    assert "2 slides without annotation" in result.output
    error = label(tiled, "--unannotated", "skip", "--overwrite").exception
    assert isinstance(error, DataError)
    assert "name each annotation as its slide: 010.xml, say" in str(error)
    assert len(rows(tiled)) == 9


def test_what_cannot_be_labeled_is_named(tiled: Path) -> None:
    qupath(tiled / "xml" / "010.geojson", feature("Tumor", square(0, 0, 9)))
    error = label(tiled, "--unannotated", "skip").exception
    assert isinstance(error, DataError)
    assert "010.xml, 010.geojson" in str(error)
    (tiled / "xml" / "010.xml").unlink()
    with h5py.File(tiled / "features" / "010.h5", "a") as file:
        del file["coords"].attrs["patch_size_level0"]
    error = label(tiled, "--unannotated", "skip").exception
    assert isinstance(error, DataError)
    assert "patch_size_level0" in str(error)
    with h5py.File(tiled / "features" / "010.h5", "a") as file:  # CLAM's way to say it
        file["coords"].attrs["downsample"] = (2.0, 2.0)
    assert label(tiled, "--unannotated", "skip").exit_code == 0
    with pytest.raises(StorageError, match="--annotations"):
        AnnotationFiles.at(tiled / "none")


@pytest.mark.parametrize("rows", [3, 5])
def test_coords_of_another_number_than_the_features_are_refused(rows: int, tiled: Path) -> None:
    """Labels were written for as many patches as there are coords, of which the bag then has fewer or more."""
    path = tiled / "features" / "010.h5"
    with h5py.File(path, "a") as file:
        attributes = dict(file["coords"].attrs)
        coords = np.resize(file["coords"][:], (rows, 2))
        del file["coords"]
        file["coords"] = coords
        file["coords"].attrs.update(attributes)
    error = label(tiled, "--unannotated", "negative").exception
    assert isinstance(error, DataError)
    assert f"010.h5': expected as many coords as features, got {rows} coords, 4 features" in str(error)
    assert not (tiled / "labels.csv").exists()
    for read in (read_tiles, read_attributes):  # of --tiles, and of slides that were tiled before
        with pytest.raises(DataError, match=f"{rows} coords, 4 features"):
            read(path)


@pytest.mark.parametrize("unannotated", ["negative", "skip"])
def test_an_annotation_in_another_case_than_its_slide_is_no_slide_without_tumor(
    unannotated: str, tiled: Path
) -> None:
    (tiled / "features" / "010.h5").rename(tiled / "features" / "Slide.h5")
    (tiled / "xml" / "010.xml").rename(tiled / "xml" / "SLIDE.xml")
    qupath(tiled / "xml" / "011.geojson", feature("Tumor", square(0, 0, 99)))
    result = label(tiled, "--unannotated", unannotated)
    assert isinstance(result.exception, DataError)
    assert "slide 'Slide': expected an annotation of the same name, got 'SLIDE.xml'" in str(result.exception)
