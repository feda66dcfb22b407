"""Heatmaps: where values are painted, on which scale, over which slide."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_slides import GRID, STEP, alpha_of, export, one_slide
from made_slides import prediction_table as table
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

import miue
from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution
from miue.pathology.export.heatmap import (
    FLAGGED,
    Canvas,
    Layer,
    Slide,
    heatmap_figure,
    probability_layer,
    save_heatmap,
    uncertainty_layers,
)
from miue.pathology.export.patches import patch_sizes, patches_by_slide
from miue.predictions import Predictions, Provenance, color_range


def test_painted_values_lie_where_the_patches_lie_and_keep_their_values(two_slides: Predictions) -> None:
    (patches, _) = patches_by_slide(two_slides)
    values = np.arange(15.0)
    picture = Canvas.of(patches, (0, 0, 6 * STEP, 3 * STEP), longest=60).paint(values)
    assert picture.shape == (30, 60)
    assert np.array_equal(picture[5::10, 5::10][:, :5].ravel(), values)
    assert np.isnan(picture[:, 50:]).all()
    assert not np.isnan(picture[:, :50]).any()


def test_control_characters_of_a_slides_name_are_visible_in_its_picture() -> None:
    given = one_slide([[0, 0], [4, 0]], [0.1, 0.9])
    (patches,) = patches_by_slide(given, patch_sizes(given, 4))
    figure = heatmap_figure(replace(patches, slide="a\x1b[31m\nb"), [probability_layer("tumor")], 1)
    assert figure.get_suptitle().startswith("a\\x1b[31m\\nb   ·   2 patches")


def test_overlapping_patches_are_averaged() -> None:
    given = one_slide([[0, 0], [2, 0]], [0.1, 0.9])
    (patches,) = patches_by_slide(given, patch_sizes(given, 4))
    picture = Canvas.of(patches, (0, 0, 6, 4)).paint(patches.probabilities[:, 1])
    assert picture[0].tolist() == pytest.approx([0.1, 0.1, 0.5, 0.5, 0.9, 0.9])


def test_a_heatmaps_ranges_are_fixed_by_the_method_alone() -> None:
    def layers(distribution: PredictiveDistribution) -> list[Layer]:
        return uncertainty_layers(table(distribution, ["a"] * len(distribution)))

    flat = Dirichlet(torch.ones(1, 3, dtype=torch.float64))
    of_evidence = layers(alpha_of(3, classes=3))
    assert [layer.range[1] for layer in of_evidence] == pytest.approx(
        [math.log(3), float(flat.mutual_information())], rel=1e-5
    )
    assert [layer.range[0] for layer in of_evidence] == [0, 0]
    p = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
    draws = layers(Draws(p, torch.tensor([0.3], dtype=torch.float64)))
    assert [layer.range[1] for layer in draws] == pytest.approx([math.log(2), math.log(2)])
    assert [layer.column for layer in layers(Categorical(p))] == ["entropy"]
    assert probability_layer("tumour").range == (0, 1)


def test_an_alpha_below_1_is_more_uncertain_than_no_evidence_and_within_the_range() -> None:
    relaxed = Dirichlet(torch.tensor([[0.01, 0.01], [40.0, 0.01]], dtype=torch.float64))  # R-EDL, λ = 0.01
    shown = table(relaxed, ["a", "b"])
    epistemic = uncertainty_layers(shown)[1]
    assert epistemic.column == "mutual_information"
    assert epistemic.range == pytest.approx((0, math.log(2)))
    assert color_range(shown, "vacuity") == pytest.approx((0, 100))
    little = table(Dirichlet(torch.tensor([[40.0, 0.01]], dtype=torch.float64)), ["b"])
    assert uncertainty_layers(little)[1].range == epistemic.range
    assert color_range(little, "vacuity") == (0, 1)


def test_a_heatmap_shows_the_distance_on_one_range_for_all_slides(two_slides: Predictions) -> None:
    assert two_slides.instances is not None
    distance = np.linspace(0, 3, len(two_slides.instances))
    measured = replace(two_slides, instances=replace(two_slides.instances, scores={"knn": distance}))
    assert measured.instances is not None
    layers = uncertainty_layers(measured.instances)
    assert (layers[-1].column, layers[-1].range) == ("score_knn", (0, 3))
    for patches in patches_by_slide(measured):
        figure = heatmap_figure(patches, layers, 1)
        panel = next(axis for axis in figure.axes if axis.get_title(loc="left").startswith("Distance"))
        assert panel.images[-1].get_clim() == (0, 3)
        assert f"{patches.uncertainties['score_knn'].max():.3g}" in panel.get_xlabel()


def test_numbers_of_a_heatmap_have_their_digits_before_the_point(two_slides: Predictions) -> None:
    assert two_slides.instances is not None
    distance = np.linspace(0, 12345, len(two_slides.instances))
    instances = replace(two_slides.instances, scores={"knn": distance})
    (patches, _) = patches_by_slide(replace(two_slides, instances=instances))
    figure = heatmap_figure(patches, uncertainty_layers(instances), 1)
    bar = figure.axes[-1]
    assert [tick.get_text() for tick in bar.get_xticklabels()] == ["0", "3086", "6172", "9259", "12345"]
    assert "range 0 to 12345" in bar.get_xlabel()
    panel = next(axis for axis in figure.axes if axis.get_title(loc="left").startswith("Distance"))
    assert "e+" not in panel.get_xlabel()


def test_what_is_no_distance_is_not_called_one(two_slides: Predictions) -> None:
    assert two_slides.instances is not None
    values = np.linspace(0, 0.25, len(two_slides.instances))
    scores = {"combined": values, "error_probability": values, "their_own": values}
    layers = uncertainty_layers(replace(two_slides.instances, scores=scores))[-3:]
    assert [(layer.title, layer.unit, layer.range) for layer in layers] == [
        ("Distance to training patches (combined)", "distance", (0, 0.25)),
        ("Error probability", "probability", (0, 1)),
        ("Score (their_own)", "score", (0, 0.25)),
    ]


@pytest.mark.parametrize(
    ("lowest", "highest", "expected"),
    [(-1.25, -0.5, (-1.25, -0.5)), (-1.0, 2.0, (-1.0, 2.0)), (0.5, 2.0, (0.0, 2.0)), (-1.0, -1.0, (-1.0, 0.0))],
)
def test_a_score_that_can_be_negative_as_an_energy_is_drawn_from_its_lowest_value(
    lowest: float, highest: float, expected: tuple[float, float], two_slides: Predictions
) -> None:
    assert two_slides.instances is not None
    energy = np.linspace(lowest, highest, len(two_slides.instances))
    instances = replace(two_slides.instances, scores={"energy": energy})
    layers = uncertainty_layers(instances)
    assert layers[-1].range == expected
    for patches in patches_by_slide(replace(two_slides, instances=instances)):
        figure = heatmap_figure(patches, layers, 1)
        panel = next(axis for axis in figure.axes if axis.get_title(loc="left").startswith("Distance"))
        assert panel.images[-1].get_clim() == expected
        assert f"range {expected[0]:.3g} to {expected[1]:.3g}" in figure.axes[-1].get_xlabel()


def test_a_heatmap_shows_raw_values_units_and_ranges(two_slides: Predictions) -> None:
    (patches, _) = patches_by_slide(two_slides)
    assert two_slides.instances is not None
    layers = [probability_layer("tumour"), *uncertainty_layers(two_slides.instances)]
    slide = Slide(np.full((3, 5, 3), 200, np.uint8), (5 * STEP, 3 * STEP), 0.5)
    for under in (None, slide):
        figure = heatmap_figure(patches, layers, 1, under)
        panels = [axis for axis in figure.axes if axis.images and axis.get_title(loc="left") != "Slide"]
        assert len(panels) == 4
        for panel, layer in zip(panels, layers, strict=True):
            image = panel.images[-1]
            assert image.get_clim() == layer.range
            shown: np.ndarray = np.unique(np.ma.asarray(image.get_array()).compressed())
            expected = (
                patches.probabilities[:, 1]
                if layer.column == "probability"
                else patches.uncertainties[layer.column]
            )
            assert shown == pytest.approx(np.unique(expected))
        labels = [axis.get_xlabel() for axis in figure.axes]
        assert sum("nats" in label for label in labels) == 2
        assert "probability of each patch, not calibrated, range 0 to 1" in labels


def test_the_first_row_of_a_slide_is_at_the_top_of_every_panel(two_slides: Predictions) -> None:
    (patches, _) = patches_by_slide(two_slides)
    slide = Slide(np.full((3, 5, 3), 200, np.uint8), (5 * STEP, 3 * STEP), 0.5)
    figure = heatmap_figure(patches, [probability_layer("tumour")], 1, slide)
    panels = [axis for axis in figure.axes if axis.get_title(loc="left")]
    assert [len(panel.images) for panel in panels] == [1, 2]  # the slide, and the values over it
    for image in (image for panel in panels for image in panel.images):
        assert image.origin == "upper"
        assert list(image.get_extent()) == [0, 5 * STEP, 3 * STEP, 0]  # left, right, below, above
    for panel in panels:
        assert panel.get_xlim() == (0, 5 * STEP) and panel.get_ylim() == (3 * STEP, 0)


@pytest.mark.parametrize(
    ("classes", "chosen", "titles"),
    [
        (3, None, ["c", "a"]),  # what each slide is predicted as
        (3, "b", ["b", "b"]),
        (2, None, ["b", "b"]),
    ],
)
def test_a_heatmap_shows_the_positive_class_or_the_predicted_one_of_several(
    classes: int, chosen: str | None, titles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strength = torch.ones(2, classes, dtype=torch.float64)
    strength[0, -1] = strength[1, 0] = 9
    instances = table(alpha_of(4, classes=classes), ["s", "s", "t", "t"], GRID[:4])
    made = Predictions(
        table(Dirichlet(strength), ["s", "t"]), instances, Provenance(classes=tuple("abc"[:classes]))
    )
    drawn: list[Figure] = []
    monkeypatch.setattr("miue.pathology.export.heatmap.save_heatmap", lambda figure, path: drawn.append(figure))
    miue.export(made, tmp_path / "out", "heatmap", patch_size=STEP, class_name=chosen)
    shown = [figure.axes[0].get_title(loc="left") for figure in drawn]
    assert shown == [f"Probability of {name}" for name in titles]
    for figure, slide, name in zip(drawn, "st", titles, strict=True):
        of_slide = instances.probabilities[instances.bag_ids == slide, "abc".index(name)]
        values: np.ndarray = np.ma.asarray(figure.axes[0].images[-1].get_array()).compressed()
        assert np.unique(values) == pytest.approx(np.sort(of_slide))


def share_of_border(side: int, flagged: Callable[[np.ndarray], np.ndarray], folder: Path) -> float:
    """Share of the first panel that the border of flagged patches covers, of side × side patches."""
    coords = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
    given = one_slide((coords * 8).tolist(), [0.5] * len(coords))
    (patches,) = patches_by_slide(given, patch_sizes(given, 8))
    panels = [probability_layer("tumour")]
    save_heatmap(
        heatmap_figure(replace(patches, flagged=flagged(coords)), panels, 1, None, "a rule"), folder / "a.png"
    )
    picture = imread(folder / "a.png")[..., :3]
    pink = np.abs(picture - to_rgb(FLAGGED)).max(-1) < 0.2
    panel = np.abs(picture - colormaps["cividis"](0.5)[:3]).max(-1) < 0.02
    return float(pink.sum() / (pink.sum() + panel.sum()))


def test_flagged_patches_that_touch_have_one_border(tmp_path: Path) -> None:
    every = share_of_border(40, lambda at: np.ones(len(at), bool), tmp_path)
    half = share_of_border(40, lambda at: at[:, 0] < 20, tmp_path)
    assert 0 < every < half < 0.02
    assert share_of_border(40, lambda at: np.zeros(len(at), bool), tmp_path) == 0


@pytest.mark.long
def test_many_small_flagged_patches_do_not_hide_the_values(tmp_path: Path) -> None:
    assert 0.02 < share_of_border(200, lambda at: (at % 5 == 0).all(1), tmp_path) < 0.08


def test_patches_are_painted_as_one_by_one() -> None:
    random = np.random.default_rng(2)
    coords = random.integers(0, 300, (200, 2))
    values = random.normal(size=200)
    given = one_slide(coords.tolist(), [0.5] * 200)
    (patches,) = patches_by_slide(given, patch_sizes(given, 23))
    extent = (40, 20, 250, 290)  # some patches stand out on every side
    total, count = np.zeros((270, 210)), np.zeros((270, 210))
    for (x, y), value in zip(patches.coords - (40, 20), values, strict=True):
        rows, columns = slice(max(y, 0), max(y + 23, 0)), slice(max(x, 0), max(x + 23, 0))
        total[rows, columns] += value
        count[rows, columns] += 1
    with np.errstate(invalid="ignore"):
        wanted = total / count
    assert Canvas.of(patches, extent).paint(values) == pytest.approx(wanted, abs=1e-9, nan_ok=True)


def test_patches_smaller_than_half_a_pixel_have_the_pixel_that_they_lie_in() -> None:
    given = one_slide([[0, 0], [4, 16], [6, 999], [999, 6], [999, 999]], [0.5] * 5)
    (patches,) = patches_by_slide(given, patch_sizes(given, 1))
    canvas = Canvas.at_scale(patches, (0, 0, 1000, 1000), 0.1)
    assert canvas.begin.tolist() == [[0, 0], [0, 1], [0, 99], [99, 0], [99, 99]]
    assert canvas.end.tolist() == [[1, 1], [1, 2], [1, 100], [100, 1], [100, 100]]
    assert int(canvas.count.sum()) == len(patches)  # those at the margin among them


@pytest.mark.long
def test_the_heatmap_command_writes_a_picture_per_slide(saved_slides: Path) -> None:
    result = export("heatmap", saved_slides, "--out", saved_slides.parent / "out", "--quiet")
    assert result.exit_code == 0, result.output
    files = sorted((saved_slides.parent / "out").glob("*.png"))
    assert [file.name for file in files] == ["007.png", "b.png"]
    picture = imread(files[0])
    assert picture.shape[1] > 1500
    assert picture.std() > 0.05


@pytest.mark.long
def test_a_heatmap_is_drawn_over_the_real_slide(shared_data: Path, tmp_path: Path) -> None:
    coords = GRID[:4] // 2
    ids = ["CMU-1-Small-Region"]
    Predictions(table(alpha_of(1), ids), table(alpha_of(4), ids * 4, coords)).save(tmp_path / "p")
    result = export("heatmap", tmp_path / "p", "--slides", shared_data, "--out", tmp_path / "out", "--quiet")
    assert result.exit_code == 0, result.output
    assert imread(tmp_path / "out" / "CMU-1-Small-Region.png").shape[1] > 2000  # four panels
    result = export("geojson", tmp_path / "p", "--slides", shared_data, "--out", tmp_path / "json", "--quiet")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "json" / "CMU-1-Small-Region.geojson").read_text("utf-8"))
    assert content["miue"]["bounds_subtracted"] == [0, 0]
