"""What is exported slide by slide: which patches, which slides, which files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from made_slides import GRID, STEP, alpha_of, export, prediction_table, write_glass
from typer.main import get_command

import miue
from miue.bags import Coords
from miue.cli import app
from miue.common.errors import ConfigError, DataError, StorageError
from miue.io.formats import grid_step
from miue.pathology.export.kinds import KINDS
from miue.pathology.export.patches import class_names, file_names
from miue.pathology.slides import SlideFiles, open_slide
from miue.predictions import UNKNOWN, Predictions, read_predictions


def test_the_grid_step_is_the_common_one_even_where_pieces_of_tissue_have_grids_of_their_own() -> None:
    pieces = np.concatenate([GRID, GRID[:3] + np.array([STEP * 4 + 13, 0])])
    assert grid_step(pieces) == STEP
    assert grid_step(GRID[::-1]) == STEP
    assert grid_step(np.array([[0, 0], [0, STEP], [0, 3 * STEP]])) == STEP  # of one column
    assert grid_step(np.array([[0, 0], [STEP, 0], [3 * STEP, 0]])) == STEP  # of one row
    assert grid_step(np.array([[0, 0], [STEP, STEP]])) is None


SCATTERED = [[0, 0], [211, 0], [640, 0], [97, 301], [400, 301], [51, 530], [120, 530], [613, 530], [700, 777]]
"""Patches as CLAM places them where there are many small pieces of tissue, each with a grid of its own."""


def test_patches_that_lie_anywhere_have_no_grid_step(tmp_path: Path) -> None:
    assert grid_step(np.array(SCATTERED)) is None
    rounded = np.round(np.arange(20)[:, None] * [511.7, 0]).astype(np.int64)  # that were in µm
    assert grid_step(rounded) == 512
    sparse = np.array([[0, 0], [1536, 0], [2048, 0], [4096, 0], [6656, 0], [7168, 0]])
    assert grid_step(sparse) == 512
    slides_at(a=GRID.tolist(), b=SCATTERED).save(tmp_path / "p")
    assert export("geojson", tmp_path / "p", "--out", tmp_path / "out", "--quiet").exit_code == 0
    assert sizes_written(tmp_path / "out")["b"] == (STEP, "the one step of all other slides' grids")
    slides_at(b=SCATTERED).save(tmp_path / "alone")
    error = export("geojson", tmp_path / "alone", "--out", tmp_path / "none", "--quiet").exception
    assert "got 9 patches on no grid; pass --patch-size" in str(error)


def test_predictions_without_coords_are_refused(two_slides: Predictions, tmp_path: Path) -> None:
    assert two_slides.instances is not None
    replace(two_slides, instances=replace(two_slides.instances, coords=None)).save(tmp_path / "p")
    for command in ("geojson", "heatmap", "geoparquet", "ome-tiff"):
        error = export(command, tmp_path / "p", "--out", tmp_path / "out", "--quiet").exception
        assert isinstance(error, DataError)
        assert "x and y" in str(error) and "'miue predict --format csv' writes all values" in str(error)
    assert not (tmp_path / "out").exists()


def test_predictions_without_coords_are_refused_before_anything_is_drawn(
    two_slides: Predictions, tmp_path: Path
) -> None:
    assert two_slides.instances is not None
    replace(two_slides, instances=replace(two_slides.instances, coords=None)).save(tmp_path / "p")
    for command in ("arrays", "geojson", "heatmap", "geoparquet", "ome-tiff"):
        result = export(command, tmp_path / "p", "--out", tmp_path / "out")
        assert isinstance(result.exception, DataError)
        assert not result.output


def test_a_slide_without_coords_is_named_or_left_out_of_what_is_drawn(
    two_slides: Predictions, tmp_path: Path
) -> None:
    assert two_slides.instances is not None and two_slides.instances.coords is not None
    there = two_slides.instances.bag_ids.astype(str) != "b"
    coords = Coords(two_slides.instances.coords.values, there)
    replace(two_slides, instances=replace(two_slides.instances, coords=coords)).save(tmp_path / "p")
    back = read_predictions(tmp_path / "p").instances
    assert back is not None and back.coords is not None
    assert np.array_equal(back.coords.known, there)
    assert np.array_equal(back.coords.values[there], coords.values[there])
    error = export("geojson", tmp_path / "p", "--out", tmp_path / "out", "--quiet").exception
    reason = "slide 'b': expected a position of every patch, got 4 of 4 patches without"
    assert isinstance(error, DataError) and reason in str(error)
    assert not (tmp_path / "out").exists()
    result = export("geojson", tmp_path / "p", "--out", tmp_path / "out", "--quiet", "--skip-bad")
    assert result.exit_code == 0 and reason in result.output
    assert [path.name for path in (tmp_path / "out").glob("*.geojson")] == ["007.geojson"]
    assert json.loads((tmp_path / "out" / "export.json").read_text())["slides"] == {"007": "007.geojson"}
    error = export("arrays", tmp_path / "p", "--out", tmp_path / "h5", "--quiet", "--patch-size", "64").exception
    assert isinstance(error, DataError) and reason in str(error)


def slides_at(**places: list[list[int]]) -> Predictions:
    """Predictions of slides with patches at some places."""
    ids = [slide for slide, where in places.items() for _ in where]
    coords = np.concatenate([np.array(where, np.int64) for where in places.values()])
    instances = prediction_table(alpha_of(len(ids)), ids, coords)
    return Predictions(prediction_table(alpha_of(len(places), 1), list(places)), instances)


def sizes_written(out: Path) -> dict[str, tuple[int, str]]:
    """Patch size of each overlay, and where it is from."""
    about = {file.stem: json.loads(file.read_text("utf-8"))["miue"] for file in out.glob("*.geojson")}
    return {slide: (of["patch_size_level0"], of["patch_size_from"]) for slide, of in about.items()}


ROW, WIDE, LONE = [[0, 0], [512, 0], [1024, 0]], [[0, 0], [256, 0]], [[77, 1001]]


@pytest.mark.long
def test_a_slide_of_one_patch_has_the_patch_size_of_all_other_slides_where_these_agree(tmp_path: Path) -> None:
    slides_at(a=ROW, lone=LONE, c=ROW).save(tmp_path / "p")
    for command in ("geojson", "arrays", "heatmap", "geoparquet", "ome-tiff"):
        result = export(command, tmp_path / "p", "--out", tmp_path / command, "--quiet")
        assert result.exit_code == 0 and "left out" not in result.output
    grid, others = "step of the grid of coords", "the one step of all other slides' grids"
    assert sizes_written(tmp_path / "geojson") == {"a": (512, grid), "lone": (512, others), "c": (512, grid)}


@pytest.mark.long
def test_a_slide_whose_patch_size_is_unknown_is_listed_and_stops_no_overlay(tmp_path: Path) -> None:
    slides_at(a=ROW, lone=LONE, c=WIDE).save(tmp_path / "p")
    for command, suffix in (
        ("geojson", "geojson"),
        ("arrays", "h5"),
        ("heatmap", "png"),
        ("geoparquet", "parquet"),
        ("ome-tiff", "ome.tiff"),
    ):
        result = export(command, tmp_path / "p", "--out", tmp_path / command, "--quiet")
        assert result.exit_code == 0
        assert (
            "left out: slide 'lone'" in result.output and "beside slides with patches of 256, 512" in result.output
        )
        assert sorted(file.name for file in (tmp_path / command).glob(f"*.{suffix}")) == [
            f"a.{suffix}",
            f"c.{suffix}",
        ]
        (said,) = json.loads((tmp_path / command / "export.json").read_text())["left_out"]
        assert said.startswith("slide 'lone'")
    again = ("--out", tmp_path / "geojson", "--patch-size", 256, "--overwrite", "--quiet")
    assert export("geojson", tmp_path / "p", *again).exit_code == 0
    assert sizes_written(tmp_path / "geojson")["lone"] == (256, "specified")


def test_a_lone_slide_of_one_patch_needs_its_size(tmp_path: Path) -> None:
    slides_at(lone=LONE).save(tmp_path / "p")
    error = export("geojson", tmp_path / "p", "--out", tmp_path / "out", "--quiet").exception
    assert isinstance(error, DataError) and not (tmp_path / "out").exists()
    assert "slide 'lone'" in str(error) and "pass --patch-size" in str(error)


@pytest.mark.long
def test_a_missing_or_broken_slide_is_named_and_can_be_left_out(saved_slides: Path, shared_data: Path) -> None:
    slides, out = saved_slides.parent / "slides", saved_slides.parent / "out"
    slides.mkdir()
    error = export("heatmap", saved_slides, "--slides", slides, "--out", out, "--quiet").exception
    assert isinstance(error, StorageError)
    assert "slide '007'" in str(error)
    (slides / "007.svs").write_bytes((shared_data / "CMU-1-Small-Region.svs").read_bytes()[:5000])
    error = export("heatmap", saved_slides, "--slides", slides, "--out", out, "--quiet").exception
    assert isinstance(error, StorageError)
    assert "OpenSlide" in str(error)
    assert not out.exists()
    write_glass(slides / "b.tif", 3300, 1100)
    result = export("heatmap", saved_slides, "--slides", slides, "--out", out, "--skip-bad", "--quiet")
    assert result.exit_code == 0, result.output
    assert "left out" in result.output and "1 heatmap written" in result.output
    assert sorted(file.name for file in out.iterdir()) == ["b.png", "export.json"]
    (slides / "b.tif").unlink()
    nothing = export(
        "heatmap", saved_slides, "--slides", slides, "--out", saved_slides.parent / "none", "--skip-bad", "--quiet"
    )
    assert isinstance(nothing.exception, DataError)
    assert not (saved_slides.parent / "none").exists()


def test_a_slide_is_found_by_id_with_or_without_its_suffix(tmp_path: Path) -> None:
    for name in ("a.svs", "a.csv", "b.1.ndpi"):
        (tmp_path / name).touch()
    slides = SlideFiles.at(tmp_path)
    assert slides.of_slide("a").name == slides.of_slide("a.svs").name == "a.svs"
    assert slides.of_slide("b.1").name == "b.1.ndpi"
    with pytest.raises(StorageError, match="no such file"):
        slides.of_slide("b")
    with pytest.raises(StorageError, match="no such folder"):
        SlideFiles.at(tmp_path / "none")


def test_a_slide_is_found_as_bags_are_by_their_names(tmp_path: Path) -> None:
    barcode, unique = "TCGA-3C-AALI-01Z-00-DX1", "f6e9a5df-d8cd-45cf-b460-c8b9690b9544"
    for name in (f"{barcode}.{unique}.svs", "u\u0308.svs", "b.svs", "b.TIF", "c.svs", "c.svs.tif"):
        (tmp_path / name).touch()
    slides = SlideFiles.at(tmp_path)
    for name in (barcode, f"{barcode}.{unique}", f"{barcode}.svs"):
        assert slides.of_slide(name).name == f"{barcode}.{unique}.svs"
    assert slides.of_slide("\u00fc").name == "u\u0308.svs"
    assert slides.of_slide("c.svs").name == "c.svs"
    assert slides.of_slide("b.svs").name == "b.svs"
    with pytest.raises(StorageError, match=r"slide 'b': .* got 2 such files: b.TIF, b.svs; put all but one"):
        slides.of_slide("b")
    (tmp_path / f"{barcode}.0{unique[1:]}.svs").touch()
    with pytest.raises(StorageError, match="got 2 such files"):
        SlideFiles.at(tmp_path).of_slide(barcode)


def test_ids_never_lead_out_of_the_folder_and_never_share_a_file() -> None:
    assert file_names(["../../etc/x", ".."], ".png") == {"../../etc/x": "_.._etc_x.png", "..": "_.png"}
    alike = ["a/b", "a_b", "A_B", "c"]
    alike.append(file_names(alike, "")["a/b"])  # an id as the file of another
    names = file_names(alike, ".png")
    assert len({name.lower() for name in names.values()}) == len(alike)
    assert names["c"] == "c.png" and all(Path(name).name == name for name in names.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_slide_of_a_subset_is_exported_as_it_is_beside_all_others(kind: str, tmp_path: Path) -> None:
    predictions = slides_at(a=ROW, lone=LONE, A=ROW)
    miue.export(predictions, tmp_path / "all", kind)
    miue.export(predictions, tmp_path / "some", kind, ids=["lone", "A.svs"])
    (every, some) = (
        {path.name: path.read_bytes() for path in (tmp_path / of).iterdir()} for of in ("all", "some")
    )
    listed, listed_too = (json.loads(files.pop("export.json"))["slides"] for files in (every, some))
    assert listed_too == {slide: listed[slide] for slide in ("A", "lone")}
    assert some == {name: every[name] for name in listed_too.values()}


@pytest.mark.parametrize(
    ("name", "content", "jobs"),
    [("i.txt", "b\n\n", ("--jobs", 2)), ("i.csv", "slide,note\nb,the second\n", ())],
)
def test_ids_of_slides_to_export_are_read_from_lines_or_a_table(
    name: str, content: str, jobs: tuple[object, ...], saved_slides: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    result = export("geojson", saved_slides, "--ids", tmp_path / name, "--out", tmp_path / "out", *jobs)
    assert result.exit_code == 0 and "1 slide written" in result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["b.geojson", "export.json"]


def test_an_id_of_no_slide_is_named_and_nothing_is_exported(saved_slides: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("007\n08\n")
    more = ("--ids", tmp_path / "ids.txt", "--out", tmp_path / "out")
    error = export("geojson", saved_slides, *more).exception
    assert isinstance(error, DataError) and "'08'" in error.got
    assert not (tmp_path / "out").exists()


def test_an_id_too_long_for_a_file_is_named(tmp_path: Path, two_slides: Predictions) -> None:
    assert len(file_names(["x" * 232], ".geojson")) == 1
    with pytest.raises(DataError, match="slide 'ä+': .*file name of at most 240 bytes, got 304 bytes; shorten"):
        file_names(["ä" * 150], ".png")
    with pytest.raises(StorageError, match="File name too long: .*; choose another place"):
        two_slides.save(tmp_path / ("x" * 250))


def test_classes_without_names_are_numbered(two_slides: Predictions, saved_slides: Path) -> None:
    assert class_names(replace(two_slides, provenance=UNKNOWN)) == ["class 0", "class 1"]
    assert class_names(read_predictions(saved_slides)) == ["normal", "tumour"]
    error = export("geojson", saved_slides, "--out", saved_slides.parent / "out", "--class", "tumor").exception
    assert isinstance(error, ConfigError)
    assert "did you mean 'tumour'" in str(error)


def test_an_opened_slide_reads_as_openslide_does(shared_data: Path) -> None:
    with open_slide(shared_data / "CMU-1-Small-Region.svs") as slide:
        assert slide.dimensions == (2220, 2967)


def test_arrays_are_read_back_with_their_places_and_values(saved_slides: Path, two_slides: Predictions) -> None:
    result = export("arrays", saved_slides, "--out", saved_slides.parent / "out", "--quiet")
    assert result.exit_code == 0, result.output
    table = two_slides.instances
    assert table is not None
    assert table.coords is not None
    files = sorted(path.name for path in (saved_slides.parent / "out").iterdir())
    assert files == ["007.h5", "b.h5", "export.json"]
    for slide in ("007", "b"):
        rows = np.flatnonzero(table.bag_ids.astype(str) == slide)
        with h5py.File(saved_slides.parent / "out" / f"{slide}.h5", "r") as file:
            assert np.array_equal(file["coords"][:], table.coords.values[rows])
            assert file["coords"].attrs["patch_size_level0"] == (STEP if slide == "007" else 2 * STEP)
            assert json.loads(file["probabilities"].attrs["classes"]) == class_names(two_slides)
            np.testing.assert_allclose(file["probabilities"][:], table.probabilities[rows], rtol=1e-6)
            for name, values in table.uncertainties().items():
                column = name if name in file else f"score_{name}"
                np.testing.assert_allclose(file[column][:], values[rows], rtol=1e-6)
            assert len(file) == 2 + len(table.uncertainties())


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "words", "options"),
    [
        ("geojson", ("--merge", "--class", "tumour", "--bounds", "512,0"), None),
        ("arrays", ("--patch-size", "64"), {"patch_size": 64}),
        ("heatmap", ("--class", "normal"), {"class_name": "normal"}),
        ("geoparquet", ("--patch-size", "64"), {"patch_size": 64}),
        ("ome-tiff", ("--patch-size", "64"), {"patch_size": 64}),
    ],
)
def test_python_exports_the_files_of_the_command(
    two_slides: Predictions, tmp_path: Path, kind: str, words: tuple[str, ...], options: dict[str, object] | None
) -> None:
    two_slides.save(tmp_path / "p")
    assert export(kind, tmp_path / "p", "--out", tmp_path / "shell", "--quiet", *words).exit_code == 0
    given = options or {"merge": True, "classes": ["tumour"], "bounds": (512, 0)}
    written = miue.export(read_predictions(tmp_path / "p"), str(tmp_path / "python"), kind, **given)  # type: ignore[arg-type]
    files = {path.name: path.read_bytes() for path in (tmp_path / "shell").iterdir()}
    assert written.slides == len(files) - 1 == 2 and written.left_out == ()
    assert {path.name: path.read_bytes() for path in (tmp_path / "python").iterdir()} == files
    with pytest.raises(StorageError, match="python"):
        miue.export(two_slides, tmp_path / "python", kind)
    assert miue.export(two_slides, tmp_path / "python", kind, overwrite=True).slides == 2


def test_an_export_that_there_is_not_is_refused_with_the_nearest(two_slides: Predictions, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="export 'geojsn'.*did you mean 'geojson'"):
        miue.export(two_slides, tmp_path / "x", "geojsn")
    with pytest.raises(ConfigError, match="option of heatmap 'class_nam'.*did you mean 'class_name'"):
        miue.export(two_slides, tmp_path / "x", "heatmap", class_nam="tumour")
    with pytest.raises(ConfigError, match="option of arrays 'merge'"):
        miue.export(two_slides, tmp_path / "x", "arrays", merge=True)
    assert not (tmp_path / "x").exists()


def test_every_export_is_listed_wherever_exports_are() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    (option,) = (one for one in commands["predict"].flags if "--export" in one.opts)
    page = Path(__file__).resolve().parents[1] / "docs" / "howto" / "python.md"
    assert set(commands["export"].commands) == set(KINDS)
    for name, text in (
        ("predict --export", option.help),
        ("miue.export", miue.export.__doc__),
        ("python.md", page.read_text(encoding="utf-8")),
    ):
        assert [kind for kind in KINDS if kind not in str(text)] == [], name
