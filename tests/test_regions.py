"""Outlines of Aperio ImageScope and HALO: layers of regions, of which negative ones are cut out."""

from __future__ import annotations

from math import pi
from pathlib import Path

import pytest
from shapely import box

from miue.common.errors import DataError, StorageError
from miue.pathology.annotations import AnnotationFiles, Groups, read_tumor

HEAD = '<?xml version="1.0"?>'
Corners = list[tuple[float, float]]


def square(x: float, y: float, side: float) -> Corners:
    return [(x, y), (x + side, y), (x + side, y + side), (x, y + side), (x, y)]


def region(kind: str, corners: Corners, negative: bool = False, more: str = "") -> str:
    tag = "Vertex" if kind.isdigit() else "V"
    written = "".join(f'<{tag} X="{x}" Y="{y}"/>' for x, y in corners)
    return f'<Region Type="{kind}" NegativeROA="{int(negative)}"{more}><Vertices>{written}</Vertices></Region>'


def layer(attributes: str, *regions: str, description: str = "") -> str:
    said = f'<Attributes><Attribute Name="Description" Id="0" Value="{description}"/></Attributes>'
    return f"<Annotation {attributes}>{said}<Regions>{''.join(regions)}</Regions></Annotation>"


def written(path: Path, *layers: str) -> Path:
    path.write_text(f"{HEAD}<Annotations>{''.join(layers)}</Annotations>")
    return path


POLYGON = {"a.xml": "0", "a.annotations": "Polygon"}
RECTANGLE = {"a.xml": "1", "a.annotations": "Rectangle"}
ELLIPSE = {"a.xml": "2", "a.annotations": "Ellipse"}
NO_AREA = {"a.xml": ("3", "4"), "a.annotations": ("Ruler", "Pin", "Arrow")}


@pytest.mark.parametrize("name", POLYGON)
def test_negative_regions_are_cut_out_of_the_regions_of_their_layer(name: str, tmp_path: Path) -> None:
    kind = POLYGON[name]
    tumor = layer(
        'Id="1" Name="Tumor"',
        region(kind, square(0, 0, 10)),
        region(kind, square(20, 0, 10)),
        region(kind, square(2, 2, 4), negative=True),
        region(kind, square(19, 0, 12), negative=True),  # covers a region whole
    )
    other = layer('Id="2" Name="Exclusion"', region(kind, square(9, 9, 10)))
    written(tmp_path / name, tumor, other)
    file = AnnotationFiles.at(tmp_path).of_slide("a")
    assert file is not None
    expected = box(0, 0, 10, 10).difference(box(2, 2, 6, 6)).difference(box(9, 9, 19, 19))
    assert read_tumor(file).symmetric_difference(expected).area == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", POLYGON)
def test_two_corners_make_a_rectangle_or_an_ellipse_and_lines_have_no_area(name: str, tmp_path: Path) -> None:
    def area_of(*regions: str) -> float:
        return float(read_tumor(written(tmp_path / name, layer('Name="Tumor"', *regions))).area)

    corners = [(30.0, 40.0), (10.0, 0.0)]
    assert area_of(region(RECTANGLE[name], corners)) == 20 * 40
    assert area_of(region(ELLIPSE[name], corners)) == pytest.approx(pi * 10 * 20, rel=1e-3)
    assert area_of(region(RECTANGLE[name], square(0, 0, 5))) == 25
    lines = [region(kind, [(0.0, 0.0), (90.0, 90.0)]) for kind in NO_AREA[name]]
    assert area_of(region(POLYGON[name], square(0, 0, 10)), *lines) == 100


def test_a_layer_without_a_name_is_called_by_its_description_or_number(tmp_path: Path) -> None:
    drawn = region("0", square(0, 0, 10))
    assert read_tumor(written(tmp_path / "a.xml", layer('Id="1"', drawn, description="Tumor"))).area == 100
    nameless = written(tmp_path / "b.xml", layer('Id="1" Name=""', drawn), layer('Id="2"', drawn))
    with pytest.raises(
        DataError, match="expected polygons of a group among tumor, .*, got 'layer 1'; pass its name"
    ):
        read_tumor(nameless)
    assert read_tumor(nameless, Groups(positive=("Layer 2",), ignored=("layer 1",))).area == 100


def test_an_open_polygon_of_halo_is_a_line_and_one_of_imagescope_is_closed(tmp_path: Path) -> None:
    corners = square(0, 0, 10)[:-1]
    assert read_tumor(written(tmp_path / "a.xml", layer('Name="Tumor"', region("0", corners)))).area == 100
    line = layer('Name="Tumor"', region("Polygon", corners))
    with pytest.raises(
        DataError, match=r"outline 1 \(Tumor\): expected an outline around an area, got one of area 0"
    ):
        read_tumor(written(tmp_path / "a.annotations", line))
    pen = region("Polygon", corners, more=' HasEndcaps="1"')
    drawn = layer('Name="Tumor"', region("Polygon", square(0, 0, 3)), pen)
    assert read_tumor(written(tmp_path / "b.annotations", drawn)).area == 9


@pytest.mark.parametrize(
    ("corners", "said"),
    [
        ([(0.0, 0.0), (1.0, 1.0)], "a region of 2 corners"),
        ([(0.0, 0.0), (float("nan"), 1.0), (2.0, 0.0)], "a corner that is not finite"),
        ([(0.0, 0.0), (1e300, 1.0), (2.0, 0.0)], "a corner that is not finite, or beyond"),
    ],
)
def test_a_region_that_outlines_nothing_is_named(corners: Corners, said: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=rf"expected XML of ImageScope or HALO, got .*{said}"):
        read_tumor(written(tmp_path / "a.xml", layer('Name="Tumor"', region("0", corners))))


def test_xml_of_another_kind_is_not_taken_for_no_tumor(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(f"{HEAD}<annotation><object><bndbox/></object></annotation>")
    with pytest.raises(
        StorageError, match="expected XML of ASAP or ImageScope or HALO, got an element 'annotation'"
    ):
        read_tumor(tmp_path / "a.xml")
    (tmp_path / "b.annotations").write_text(
        f'{HEAD}<!DOCTYPE a [<!ENTITY x "y">]><Annotations><Annotation Name="&x;"/></Annotations>'
    )
    with pytest.raises(StorageError, match="without entities or document type"):
        read_tumor(tmp_path / "b.annotations")
