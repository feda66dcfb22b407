"""Heatmaps: probability, aleatoric and epistemic uncertainty and distance side by side, on fixed ranges.

No value is ranked or stretched: the same color means the same number in every slide's picture, and in a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from miue.common.files import atomic_file
from miue.common.parts import DISTANCES
from miue.common.text import plural, visible
from miue.distributions import MEASURES, Categorical
from miue.pathology.export.patches import Patches
from miue.predictions import ERROR_PROBABILITY, PredictionTable, color_range, uncertainty_column

LONGEST = 1000  # pixels of the longer side of a panel's canvas; a panel is at most 975 high in print
PANEL_WIDTH = 4.1  # inches
INK = "#333333"
FLAGGED = "#e6007e"  # no color of the maps is near it
LETTERS = 40  # of the title that fit over a panel
Extent = tuple[int, int, int, int]  # x, y, right, bottom in level-0 pixels


@dataclass(frozen=True)
class Layer:
    """One panel: what is drawn, and on which range.

    Attributes:
        column: name of the uncertainty, or "probability".
        title: over the panel.
        unit: under the color bar.
        range: both ends of the scale.
        colormap: name of the color map.
    """

    column: str
    title: str
    unit: str
    range: tuple[float, float]
    colormap: str


@dataclass(frozen=True)
class Slide:
    """A slide's picture under the values.

    Attributes:
        picture: the whole slide, small.
        size: width and height of the slide in level-0 pixels.
        microns_per_pixel: width of a level-0 pixel in µm, where known.
    """

    picture: UInt8[np.ndarray, "height width 3"]
    size: tuple[int, int]
    microns_per_pixel: float | None = None


def probability_layer(class_name: str) -> Layer:
    """Return the panel of the probability of a class: the model's own, by which flags go as well.

    A calibration scales the probabilities of slides alone, since it knows the labels of slides alone.
    """
    unit = "probability of each patch, not calibrated"
    return Layer("probability", f"Probability of {class_name}", unit, (0.0, 1.0), "cividis")


def uncertainty_layers(table: PredictionTable) -> list[Layer]:
    """Return the panels of the uncertainties of a table of instances.

    A single softmax has no epistemic uncertainty: its one entropy is all there is. Every score of the
    table has a panel; a distance shows what the probabilities cannot, that a patch is unlike the training patches.

    Args:
        table: of all slides, so that the range of a score is the same in each.
    """
    entropies = {
        "expected_entropy": "Aleatoric uncertainty (expected entropy)",
        "mutual_information": "Epistemic uncertainty (mutual information)",
    }
    if isinstance(table.head.distribution, Categorical):
        entropies = {"entropy": "Total uncertainty (entropy)"}
    layers = [Layer(name, title, "nats", color_range(table, name), "YlOrRd") for name, title in entropies.items()]
    scores = [name for name in table.head.scores if name not in MEASURES]
    return layers + [
        Layer(uncertainty_column(name), *_title_and_unit(name), color_range(table, name), "YlOrRd")
        for name in scores
    ]


def _title_and_unit(score: str) -> tuple[str, str]:
    if score == ERROR_PROBABILITY:
        return "Error probability", "probability"
    if score in DISTANCES:
        return f"Distance to training patches ({score})", "distance"
    return f"Score ({score})", "score"


def values_of(layer: Layer, patches: Patches, number: int) -> Float64[np.ndarray, "n"]:
    """Return what a panel shows of each patch; ``number`` is the class of the probability."""
    return (
        patches.probabilities[:, number] if layer.column == "probability" else patches.uncertainties[layer.column]
    )


@dataclass(frozen=True)
class Canvas:
    """Where the n patches of a slide lie on a picture of it.

    Attributes:
        begin: first column and row of each patch.
        end: one behind its last column and row.
        count: patches that cover each pixel.
    """

    begin: Int64[np.ndarray, "n 2"]
    end: Int64[np.ndarray, "n 2"]
    count: Float64[np.ndarray, "height width"]

    @classmethod
    def of(cls, patches: Patches, extent: Extent, longest: int = LONGEST) -> Canvas:
        """Return a canvas of ``extent``, whose longer side has at most ``longest`` pixels."""
        x, y, right, bottom = extent
        return cls.at_scale(patches, extent, min(1.0, longest / max(right - x, bottom - y)))

    @classmethod
    def at_scale(cls, patches: Patches, extent: Extent, scale: float) -> Canvas:
        """Return a canvas of ``extent``, of which a level-0 pixel is ``scale`` pixels wide."""
        x, y, right, bottom = extent
        size = max(1, round((right - x) * scale)), max(1, round((bottom - y) * scale))
        low = patches.coords - (x, y)
        begin, end = (np.floor(corner * scale + 0.5).astype(int) for corner in (low, low + patches.size))
        center = np.floor((low + patches.size / 2) * scale).astype(int)  # of patches without a whole pixel
        begin, end = np.where(end > begin, begin, center), np.where(end > begin, end, center + 1)
        begin, end = np.clip(begin, 0, size), np.clip(end, 0, size)
        return cls(begin, end, _sums_of_rectangles(begin, end, np.ones(len(begin)), size[::-1]))

    def paint(self, values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "height width"]:
        """Return the values as a picture: the mean where patches overlap, NaN where none lies."""
        shape = self.count.shape
        total = _sums_of_rectangles(self.begin, self.end, values, (shape[0], shape[1]))
        return np.divide(total, self.count, out=np.full_like(total, np.nan), where=self.count > 0)


def _sums_of_rectangles(
    begin: Int64[np.ndarray, "n 2"],
    end: Int64[np.ndarray, "n 2"],
    values: Float64[np.ndarray, "n"],
    shape: tuple[int, int],
) -> Float64[np.ndarray, "height width"]:
    """Return at each pixel the sum of the values of the rectangles over it: steps at their corners, summed up."""
    steps = np.zeros((shape[0] + 1, shape[1] + 1))
    for column, row, sign in ((begin, begin, 1), (end, begin, -1), (begin, end, -1), (end, end, 1)):
        np.add.at(steps, (row[:, 1], column[:, 0]), sign * values)
    np.cumsum(steps, 0, out=steps)
    np.cumsum(steps, 1, out=steps)
    return steps[:-1, :-1]


def heatmap_figure(
    patches: Patches, layers: list[Layer], number: int, slide: Slide | None = None, flags: str = ""
) -> Figure:
    """Return the slide's panels side by side, over its picture where there is one; flagged patches have a border.

    Args:
        patches: of the slide.
        layers: the panels.
        number: the class whose probability is shown.
        slide: its picture, drawn once by itself and, in gray, under every panel.
        flags: by which rule patches were flagged and what is promised, in words.
    """
    extent = (0, 0, *slide.size) if slide is not None else _extent_of(patches)
    width, height = extent[2] - extent[0], extent[3] - extent[1]
    panels = len(layers) + (slide is not None)
    tall = float(np.clip(3.6 * height / width, 1.8, 6.5))
    figure = Figure(figsize=(PANEL_WIDTH * panels, tall + 1.5), dpi=150, layout="constrained")
    axes, bars = figure.subplots(2, panels, squeeze=False, height_ratios=(tall, 0.14))
    place = (extent[0], extent[2], extent[3], extent[1])
    canvas = Canvas.of(patches, extent)
    gray = None if slide is None else _faint_gray(slide.picture)
    if slide is not None:
        axes[0].imshow(slide.picture, extent=place)
        axes[0].set_title("Slide", loc="left", fontsize=10, color=INK)
        bars[0].axis("off")
        _scale_bar(axes[0], slide, extent)
    for axis, under, layer in zip(axes[-len(layers) :], bars[-len(layers) :], layers, strict=True):
        values = values_of(layer, patches, number)
        if gray is not None:
            axis.imshow(gray, extent=place, cmap="gray", vmin=0, vmax=255)
        drawn = _draw_layer(axis, layer, canvas.paint(values), values, place, alpha=1.0 if slide is None else 0.85)
        _color_bar(figure, under, drawn, layer, above=bool((values > _just_above(layer)).any()))
    if patches.flagged is not None:
        _outline(axes[-len(layers)], canvas.paint(patches.flagged.astype(np.float64)), extent, patches.size)
    for axis in axes:
        axis.set_xlim(extent[0], extent[2])
        axis.set_ylim(extent[3], extent[1])
        axis.set_facecolor("#f2f2f2")
        axis.set_xticks([])
        axis.set_yticks([])
    caption = f"{plural(len(patches), 'patch')} of {patches.size} level-0 pixels ({patches.size_from})"
    if patches.flagged is not None:
        outlined = f"{plural(int(patches.flagged.sum()), 'patch')} outlined: {flags}"
        caption += "\n" + fill(outlined, LETTERS * panels)
    figure.suptitle(
        f"{visible(patches.slide)}   ·   {caption}", x=0.01, ha="left", fontsize=11, color=INK, parse_math=False
    )
    return figure


def save_heatmap(figure: Figure, path: Path | str) -> None:
    """Write the figure as PNG, whole or not at all."""
    canvas = FigureCanvasAgg(figure)
    with atomic_file(Path(path)) as temporary:
        canvas.print_png(temporary)  # Figure.savefig draws all twice to lay it out


def _draw_layer(
    axis: Any, layer: Layer, picture: np.ndarray, values: np.ndarray, place: Extent, *, alpha: float
) -> Any:
    """Draw the values of one layer, with its title above and their range below."""
    axis.set_title(visible(layer.title, keep="\n"), loc="left", fontsize=10, color=INK, parse_math=False)
    low, high, middle = map(_short, (values.min(), values.max(), np.median(values)))
    spread = f"here {low} to {high}, median {middle}"
    axis.set_xlabel(spread, fontsize=8, color=INK)
    return axis.imshow(
        picture,
        extent=place,
        cmap=layer.colormap,
        vmin=layer.range[0],
        vmax=layer.range[1],
        interpolation="nearest",
        alpha=alpha,
    )


def _outline(axis: Any, flagged: Float64[np.ndarray, "height width"], extent: Extent, side: int) -> None:
    """Draw the border of the flagged patches; what touches has one border, thin where patches are small.

    Args:
        axis: of the panel.
        flagged: share of the patches over each pixel that are flagged, NaN where none lies.
        extent: of the picture.
        side: of a patch in level-0 pixels.
    """
    covered = flagged > 1e-6  # above rounding; NaN is not
    height, width = covered.shape
    x, y, right, bottom = extent
    pixel = (right - x) / width, (bottom - y) / height
    across = x + (np.arange(-1, width + 1) + 0.5) * pixel[0]
    down = y + (np.arange(-1, height + 1) + 0.5) * pixel[1]
    points = side / (right - x) * PANEL_WIDTH * 72
    axis.contour(
        *(across, down, np.pad(covered, 1).astype(float)),
        levels=[0.5],
        colors=FLAGGED,
        linewidths=float(np.clip(points / 3, 0.5, 1.2)),
    )


def _extent_of(patches: Patches) -> Extent:
    low, high = patches.coords.min(0), patches.coords.max(0) + patches.size
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])


def _faint_gray(picture: UInt8[np.ndarray, "height width 3"]) -> Float64[np.ndarray, "height width"]:
    return 128 + picture.mean(2) / 2


def _color_bar(figure: Figure, axis: Any, drawn: Any, layer: Layer, *, above: bool) -> None:
    bar = figure.colorbar(drawn, cax=axis, orientation="horizontal", extend="max" if above else "neither")
    low, high = layer.range
    bar.set_ticks([low + (high - low) * share for share in (0, 0.25, 0.5, 0.75, 1)])
    bar.ax.set_xticklabels([_short(tick, 2) for tick in bar.get_ticks()])
    bar.ax.tick_params(labelsize=8, colors=INK)
    bar.set_label(f"{layer.unit}, range {_short(low)} to {_short(high)}", fontsize=8, color=INK)


def _short(value: float, digits: int = 3) -> str:
    """Return a number with this many digits, and all those before its point: 324, not 3.2e+02.

    >>> _short(0.0484, 2), _short(99.6, 2), _short(324.4, 2), _short(-12345.6), _short(6.5e-16)
    ('0.048', '100', '324', '-12346', '6.5e-16')
    """
    return f"{value:.0f}" if 10**digits - 0.5 <= abs(value) < 1e6 else f"{value:.{digits}g}"


def _just_above(layer: Layer) -> float:
    """Return the least value beyond the range that is not rounding."""
    return layer.range[1] + 1e-6 * abs(layer.range[1])


def _scale_bar(axis: Any, slide: Slide, extent: Extent) -> None:
    """Draw a bar of a round length, about a fifth of the slide's width."""
    if slide.microns_per_pixel is None:
        return
    target = (extent[2] - extent[0]) * slide.microns_per_pixel / 4
    length = max((m * 10.0**e for e in range(6) for m in (1, 2, 5) if m * 10.0**e <= target), default=1.0)
    pixels = length / slide.microns_per_pixel
    right, bottom = extent[2] - 0.04 * (extent[2] - extent[0]), extent[3] - 0.04 * (extent[3] - extent[1])
    axis.plot([right - pixels, right], [bottom, bottom], color="black", linewidth=3, solid_capstyle="butt")
    text = f"{length / 1000:g} mm" if length >= 1000 else f"{length:g} µm"
    axis.text(
        right - pixels / 2, bottom - 0.008 * (extent[3] - extent[1]), text, ha="center", va="bottom", fontsize=8
    )
