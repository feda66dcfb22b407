"""How well out-of-distribution bags are detected as their share of such instances grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from miue.datasets.mnist import OOD_SOURCES
from miue.evaluation.ranking import separation
from papers.mirel.figures.figure_with_data import Cell, FigureWithData, plain
from papers.mirel.figures.ood_sweep import RATIOS, OodSweep, sweep_of
from papers.mirel.paths import Paths
from papers.mirel.preset import preset

COLUMNS = ("preset", "seed", "source", "ood_ratio", "score", "bag_auroc")
CURVES = {
    "least_confidence": ("1 − max probability", "#8d8d8d"),
    "inverse_max_alpha": ("1 / max α", "#1b6ca8"),
    "vacuity": ("vacuity C/α0", "#66a182"),
    "knn_mean": ("distance to training instances, mean", "#d1495b"),
    "knn_high": ("the same, high quantile", "#edae49"),
}


def draw_detection_by_ratio(network: str, seeds: Sequence[int], paths: Paths, device: str) -> FigureWithData:
    """Draw the AUROC of out-of-distribution against other bags, mean and standard deviation over seeds.

    Args:
        network: "abmil" or "dsmil".
        seeds: all are used.
        paths: where images, models and results are.
        device: "auto", "cpu", "gpu".
    """
    names = [f"mnist/{network}-deterministic", f"mnist/{network}-mirel"]
    rows: list[list[Cell]] = []
    for name in names:
        for seed in seeds:
            rows += detection_rows(name, seed, sweep_of(name, seed, paths, device))
    figure = Figure(figsize=(10.4, 6.6), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, name in zip(grid, names, strict=True):
        for axes, source in zip(row, OOD_SOURCES, strict=True):
            for score, (label, color) in CURVES.items():
                values = np.array(
                    [
                        [float(r[5]) for r in rows if r[0] == name and r[2:5] == [source, ratio, score]]
                        for ratio in RATIOS
                    ]
                )
                if values.size:
                    axes.errorbar(
                        RATIOS,
                        100 * values.mean(1),
                        100 * values.std(1),
                        label=label,
                        color=color,
                        capsize=2,
                        marker="o",
                        markersize=3,
                    )
            axes.axhline(50, color="#bbbbbb", linewidth=0.8)
            axes.set_title(f"{preset(name).title}, {source}", loc="left", fontsize=11)
            plain(axes)
    for axes in grid[-1]:
        axes.set_xlabel("share of out-of-distribution instances in a bag")
    for axes in grid[:, 0]:
        axes.set_ylabel("AUROC of out-of-distribution bags in %")
    handles, labels = grid[-1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    return FigureWithData(figure, COLUMNS, rows)


def detection_rows(name: str, seed: int, sweep: OodSweep) -> list[list[Cell]]:
    """Return the AUROC of every score in the figure, by source and share of out-of-distribution instances."""
    rows: list[list[Cell]] = []
    for source in OOD_SOURCES:
        for ratio in RATIOS:
            for score in (score for score in CURVES if score in sweep.names("bag")):
                inside, outside = sweep.of("bag", score), sweep.of("bag", score, source, ratio)
                uncertainty = np.concatenate([inside, outside]).astype(np.float64)
                own = np.repeat([True, False], [len(inside), len(outside)])
                result = separation(uncertainty, own, names=("in-distribution", "out-of-distribution"))
                assert result.auroc.value is not None
                rows.append([name, seed, source, ratio, score, result.auroc.value])
    return rows
