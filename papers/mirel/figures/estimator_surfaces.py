"""What each instance estimator says over the plane of the synthetic bags.

Reference: Liu & Ji 2024, figure of weakly-supervised instance estimators on 2-D instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32
from matplotlib.figure import Figure

from miue.bags import BagDataset
from miue.distributions import Dirichlet
from miue.predictions import PredictionTable
from papers.mirel.figures.figure_with_data import Cell, FigureWithData, plain
from papers.mirel.figures.ood_sweep import CONFIDENCE, scores_of
from papers.mirel.paths import Paths
from papers.mirel.runner import train_preset
from papers.mirel.stores import store_of

PANELS = (
    ("synthetic/abmil-deterministic", "attention", "a_k of ABMIL"),
    ("synthetic/abmil-deterministic", "bag-of-one", "T of ABMIL"),
    ("synthetic/abmil-i-edl", "bag-of-one", "T of ABMIL + I-EDL"),
    ("synthetic/abmil-mirel", "residual", "R of ABMIL + MIREL"),
)
COLUMNS = ("preset", "seed", "estimator", "x", "y", "probability", "expected_entropy", "vacuity")
EXTENT = (-4.0, 7.0, -7.0, 4.0)
SIDE = 111
EVERY = 10  # of the grid's points that the table holds


def draw_estimator_surfaces(seeds: Sequence[int], paths: Paths, device: str) -> FigureWithData:
    """Draw the probability of the positive class, data uncertainty and vacuity over the plane.

    The attention proxy is min–max normalized over the plane, as over a bag; softmax has no vacuity.

    Args:
        seeds: the first is drawn; the table holds all.
        paths: where images, models and results are.
        device: "auto", "cpu", "gpu".
    """
    plane = BagDataset.from_arrays([grid()])
    test = store_of("gaussian-bags", paths).split("test")
    figure = Figure(figsize=(14.2, 9.4), layout="constrained")
    axes = figure.subplots(3, len(PANELS), sharex=True, sharey=True)
    rows: list[list[Cell]] = []
    for column, (name, estimator, title) in enumerate(PANELS):
        for seed in seeds:
            model = train_preset(name, [seed], paths, device)[0]
            predictions = model.predict(plane, estimator=estimator, device=device)
            assert predictions.instances is not None
            rows += surface_rows(name, seed, estimator, predictions.instances)
            if seed == seeds[0]:
                _panels(
                    figure, axes[:, column], predictions.instances, test, title, last=column == len(PANELS) - 1
                )
    for row, label in zip(
        axes, ("probability of positive", "expected entropy, nats", "vacuity C/α0"), strict=True
    ):
        row[0].set_ylabel(label)
    return FigureWithData(figure, COLUMNS, rows)


def grid() -> Float32[np.ndarray, "points 2"]:
    """Return the points of the plane, row by row from below."""
    x = np.linspace(EXTENT[0], EXTENT[1], SIDE)
    y = np.linspace(EXTENT[2], EXTENT[3], SIDE)
    return np.stack(np.meshgrid(x, y), -1).reshape(-1, 2).astype(np.float32)


def surface_rows(name: str, seed: int, estimator: str, table: PredictionTable) -> list[list[Cell]]:
    """Return what is drawn at every tenth point along each axis."""
    points, entropy, vacuity = grid(), -scores_of(table)[CONFIDENCE], _vacuity(table)
    rows: list[list[Cell]] = []
    for at in np.arange(SIDE * SIDE).reshape(SIDE, SIDE)[::EVERY, ::EVERY].ravel().tolist():
        x, y = points[at].tolist()
        free = "" if vacuity is None else float(vacuity[at])
        rows.append([name, seed, estimator, x, y, float(table.probabilities[at, 1]), float(entropy[at]), free])
    return rows


def _vacuity(table: PredictionTable) -> np.ndarray | None:
    return table.distribution.vacuity().numpy() if isinstance(table.distribution, Dirichlet) else None


def _panels(figure: Any, column: Any, table: PredictionTable, test: BagDataset, title: str, *, last: bool) -> None:
    surfaces = [
        (table.probabilities[:, 1], "coolwarm", 1.0),
        (-scores_of(table)[CONFIDENCE], "viridis", float(np.log(2))),
        (_vacuity(table), "viridis", 1.0),
    ]
    column[0].set_title(title, loc="left", fontsize=11)
    for axes, (values, colors, top) in zip(column, surfaces, strict=True):
        plain(axes)
        axes.set(xlim=EXTENT[:2], ylim=EXTENT[2:], aspect="equal")
        if values is None:
            axes.text(0.5, 0.5, "softmax has no evidence", ha="center", transform=axes.transAxes, color="#777777")
            continue
        drawn = axes.imshow(
            values.reshape(SIDE, SIDE), origin="lower", extent=EXTENT, cmap=colors, vmin=0, vmax=top
        )
        positions = test.positions
        known, labels = test.instance_labels.known[positions], test.instance_labels.values[positions]
        points = np.asarray(test.instances[positions])
        outside = test.instance_is_ood.out_of_distribution[positions]
        for chosen, color in (
            (known & (labels == 1), "#c0392b"),
            (known & (labels == 0), "#2e8b57"),
            (outside, "#222222"),
        ):
            shown = points[chosen][:200]
            axes.scatter(shown[:, 0], shown[:, 1], s=4, color=color, edgecolors="white", linewidths=0.25)
        if last:
            figure.colorbar(drawn, ax=axes, shrink=0.85)
