"""Figures: confidence in and out of distribution, and one bag instance by instance."""

from __future__ import annotations

from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from miue.common.files import atomic_file
from miue.distributions import Dirichlet
from miue.evaluation import Items
from miue.predictions import Predictions, PredictionTable

INSIDE, OUTSIDE = "#1b6ca8", ("#d1495b", "#edae49", "#66a182", "#8d6a9f")  # distinct with any color vision
UNSTATED = "#8a929a"
INK = "#333333"
MAX_SHOWN = 24  # instances of one bag


class ShownFigure(Figure):
    """A figure that a notebook draws below its cell, whether or not pyplot is loaded there."""

    def _repr_png_(self) -> bytes:
        image = BytesIO()
        FigureCanvasAgg(self).print_png(image)
        return image.getvalue()


def confidence_figure(predictions: Predictions) -> ShownFigure:
    """Return histograms of the confidence of bags and of instances, by what is known of their distribution.

    The confidence is the total evidence α0 of a Dirichlet, else the max probability. Where predictions carry the
    distance to the nearest training instances, a second row shows that.
    """
    levels = [("bags", predictions.bags, "knn_mean")]
    if predictions.instances is not None:
        levels.append(("instances", predictions.instances, "knn"))
    rows = 2 if all(score in table.head.scores for _, table, score in levels) else 1
    figure = ShownFigure(figsize=(5.2 * len(levels), 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, len(levels), squeeze=False)
    for column, (name, table, score) in enumerate(levels):
        (values, label, logarithmic), items = _confidence(table), Items.of(table)
        title = f"How sure the model is of {name}"
        _histograms(grid[0][column], items, values, f"{label}   (more certain →)", logarithmic, name, title)
        if rows == 2:
            title = f"How far {name} are from the training data"
            label = "distance to the nearest training instances   (farther →)"
            _histograms(grid[1][column], items, table.uncertainty(score), label, False, name, title)
    return figure


def _histograms(
    axes: Any,
    items: Items,
    values: Float64[np.ndarray, "n"],
    label: str,
    logarithmic: bool,
    name: str,
    title: str,
) -> None:
    low, high = values.min(), values.max()
    high = max(high, low + 1e-9)
    edges = np.geomspace(low, high, 41) if logarithmic else np.linspace(low, high, 41)
    groups = [
        ("in distribution", items.is_in, INSIDE),
        ("not known to be in or out of distribution", ~(items.is_in | items.is_out), UNSTATED),
        *(
            (f"{ood_set} (out of distribution)", items.of_set(ood_set), color)
            for ood_set, color in zip(items.ood_sets, cycle(OUTSIDE), strict=False)
        ),
    ]
    for group, chosen, color in groups:
        count = int(chosen.sum())
        if count:
            share = 100 * np.histogram(values[chosen], edges)[0] / count
            axes.stairs(share, edges, fill=True, alpha=0.3, color=color)
            axes.stairs(share, edges, linewidth=1.6, label=f"{group}, {count:,}", color=color)
    if logarithmic:
        axes.set_xscale("log")
        for axis_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.6)))
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel(f"share of {name} in %", color=INK)
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    axes.margins(y=0.32)
    for text in axes.legend(frameon=False, fontsize=8, loc="upper left").get_texts():
        text.set_parse_math(False)
    _plain(axes)


def _confidence(table: PredictionTable) -> tuple[Float64[np.ndarray, "n"], str, bool]:
    if isinstance(table.head.distribution, Dirichlet):
        strength = [one.alpha0.numpy() for one in table.distributions() if isinstance(one, Dirichlet)]
        return np.concatenate(strength), "total evidence α0, log scale", True
    highest = [one.probabilities.max(-1).values.numpy() for one in table.distributions()]
    return np.concatenate(highest), "probability of the predicted class", False


def bag_figure(
    predictions: Predictions, bag: int, instances: Shaped[np.ndarray, "n *shape"], class_names: Any
) -> ShownFigure:
    """Return one bag's instances with the probability of its ``class_in_question`` and their uncertainty.

    Args:
        predictions: of all bags, instances included.
        bag: position of the bag.
        instances: the bag's images (n, H, W, channels), or features, which are not drawn.
        class_names: name of each class.
    """
    assert predictions.instances is not None
    table, item = predictions.instances, predictions.bags
    members = np.flatnonzero(table.bag_ids == item.bag_ids[bag])
    shown = min(len(members), MAX_SHOWN)
    probabilities = item.probabilities[bag]
    of_class = int(item.class_in_question[bag])
    probability = table.probabilities[members, of_class]
    uncertainty, label = _model_uncertainty(table)
    highest = float(uncertainty.max(initial=1.0))  # a vacuity is above 1 where an alpha is below
    if highest > 1:
        label = "vacuity C/α0"
    width = max(7.0, 0.72 * shown + 1.6)
    heights = [1.3, 1.3]
    if instances.ndim == 4:
        heights.insert(0, 0.9 * (width - 1.2) / shown * instances.shape[1] / instances.shape[2])
    figure = ShownFigure(figsize=(width, sum(heights) + 1.1), layout="constrained")
    rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    if instances.ndim == 4:
        _picture_row(rows[0], instances[:shown])
    for axes, values, name, end in (
        (rows[-2], probability, f"probability\nof {class_names[of_class]}", 1),
        (rows[-1], uncertainty[members], label, highest),
    ):
        colors = [_bar_color(table, member) for member in members[:shown].tolist()]
        axes.bar(range(shown), values[:shown], color=colors, width=0.72)
        axes.set_ylabel(name, color=INK, fontsize=9)
        axes.set_ylim(0, end)
        _plain(axes)
    rows[-1].set_xticks(range(shown))  # numbered from 0, as in tables and reports
    rows[-1].set_xlabel(
        "instance   (blue: known to be positive · gray: negative · red: out of distribution)", color=INK
    )
    truth = class_names[item.labels.values[bag]] if item.labels.known[bag] else "unknown"
    bag_uncertainty, _ = _model_uncertainty(item)
    title = (
        f"Bag {item.bag_ids[bag]}: {class_names[int(item.predicted[bag])]} with probability "
        f"{probabilities.max():.2f}, uncertainty {bag_uncertainty[bag]:.2f}; truth: {truth}"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, color=INK, parse_math=False)
    return figure


def _model_uncertainty(table: PredictionTable) -> tuple[Float64[np.ndarray, "n"], str]:
    if isinstance(table.distribution, Dirichlet):
        return table.distribution.vacuity().numpy(), "vacuity C/α0\n(no evidence = 1)"
    return table.distribution.least_confidence().numpy(), "1 − max\nprobability"


def _bar_color(table: PredictionTable, member: int) -> str:
    if table.is_ood.out_of_distribution[member]:
        return OUTSIDE[0]
    positive = table.labels.known[member] and table.labels.values[member] > 0
    return INSIDE if positive else "#b8bfc6"


def _picture_row(axes: Any, images: Shaped[np.ndarray, "n H W channels"]) -> None:
    brightest = 255 if images.dtype == np.uint8 else max(1.0, float(images.max()))
    for place, image in enumerate(images):
        axes.imshow(
            image[..., 0] if image.shape[-1] == 1 else image,
            cmap=colormaps["gray"],
            vmin=0,
            vmax=brightest,
            extent=(place - 0.45, place + 0.45, 0, 1),
            aspect="auto",
        )
    axes.set_xlim(-0.6, len(images) - 0.4)
    axes.set_ylim(0, 1)
    axes.axis("off")


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)


def save_figure(figure: Figure, path: Path | str) -> None:
    """Write ``figure`` as a PNG, atomically."""
    with atomic_file(Path(path)) as temporary:
        FigureCanvasAgg(figure).figure.savefig(temporary, format="png", dpi=130)
