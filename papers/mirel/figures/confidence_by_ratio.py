"""How confidence and α0 are distributed as bags take in out-of-distribution instances.

Reference: Liu & Ji 2024, figures of predictive confidence and of α0 (main text and appendix).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from papers.mirel.figures.figure_with_data import Cell, FigureWithData, plain
from papers.mirel.figures.ood_sweep import CONFIDENCE, RATIOS, STRENGTH, OodSweep, sweep_of
from papers.mirel.paths import Paths
from papers.mirel.preset import preset

COLUMNS = (
    "preset",
    "seed",
    "level",
    "score",
    "source",
    "ood_ratio",
    "items",
    "q05",
    "q25",
    "median",
    "q75",
    "q95",
    "mean",
)
LABELS = {
    CONFIDENCE: "negative expected entropy in nats   (more certain →)",
    STRENGTH: "α0, log scale   (more evidence →)",
}


def draw_confidence_by_ratio(
    data: str, network: str, source: str, seeds: Sequence[int], paths: Paths, device: str
) -> FigureWithData:
    """Draw the negative expected entropy of bags and instances, without and with MIREL.

    Args:
        data: "mnist" or "cifar10", as the presets' names begin.
        network: "abmil" or "dsmil".
        source: of the out-of-distribution images, such as "fmnist".
        seeds: the first is drawn; the table holds all.
        paths: where images, models and results are.
        device: "auto", "cpu", "gpu".
    """
    names = [f"{data}/{network}-deterministic", f"{data}/{network}-mirel"]
    return by_ratio(names, CONFIDENCE, source, seeds, paths, device)


def draw_strength_by_ratio(
    data: str, network: str, source: str, seeds: Sequence[int], paths: Paths, device: str
) -> FigureWithData:
    """Draw α0 of bags and instances, with MIREL; arguments as for ``draw_confidence_by_ratio``."""
    return by_ratio([f"{data}/{network}-mirel"], STRENGTH, source, seeds, paths, device)


def by_ratio(
    names: Sequence[str], score: str, source: str, seeds: Sequence[int], paths: Paths, device: str
) -> FigureWithData:
    """Draw one score of bags and instances, a row for each preset."""
    sweeps = {(name, seed): sweep_of(name, seed, paths, device) for name in names for seed in seeds}
    figure = Figure(figsize=(10.4, 3.3 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), 2, squeeze=False, sharex="col")
    for row, name in zip(grid, names, strict=True):
        sweep = sweeps[name, seeds[0]]
        for axes, level in zip(row, ("bag", "instance"), strict=True):
            _densities(axes, sweep, level, score, source)
            axes.set_title(f"{preset(name).title}: {level}s", loc="left", fontsize=11)
            axes.set_ylabel(f"share of {level}s in %")
    for axes in grid[-1]:
        axes.set_xlabel(LABELS[score])
    rows = [
        row for (name, seed), sweep in sweeps.items() for row in summary_rows(name, seed, sweep, score, source)
    ]
    return FigureWithData(figure, COLUMNS, rows)


def summary_rows(name: str, seed: int, sweep: OodSweep, score: str, source: str) -> list[list[Cell]]:
    """Return quantiles and mean of one score by level and share of out-of-distribution instances."""
    rows: list[list[Cell]] = []
    for level, ratios in (("bag", RATIOS), ("instance", (1.0,))):
        for where, ratio in [("", 0.0), *((source, share) for share in ratios)]:
            values = sweep.of(level, score, where, ratio).astype(np.float64)
            quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
            rows.append([name, seed, level, score, where, ratio, len(values), *quantiles, float(values.mean())])
    return rows


def _densities(axes: Any, sweep: OodSweep, level: str, score: str, source: str) -> None:
    sets = [("in distribution", sweep.of(level, score))]
    ratios = RATIOS if level == "bag" else (1.0,)
    for ratio in ratios:
        label = f"{source}, {ratio:.0%} of a bag" if level == "bag" else f"{source} instances"
        sets.append((label, sweep.of(level, score, source, ratio)))
    together = np.concatenate([values for _, values in sets])
    low, high = np.quantile(together, [0.001, 0.999])
    edges = np.geomspace(low, high, 31) if score == STRENGTH else np.linspace(low, high, 31)
    colors = (
        ["#1b6ca8", *colormaps["YlOrRd"](np.linspace(0.35, 0.95, len(ratios)))]
        if level == "bag"
        else ["#1b6ca8", colormaps["YlOrRd"](0.95)]
    )
    for (label, values), color in zip(sets, colors, strict=True):
        weights = np.full(len(values), 100 / len(values))
        clipped = np.clip(values, edges[0], edges[-1])
        axes.hist(clipped, edges, weights=weights, histtype="step", linewidth=1.6, color=color, label=label)
    axes.hist(
        np.clip(sets[0][1], edges[0], edges[-1]),
        edges,
        weights=np.full(len(sets[0][1]), 100 / len(sets[0][1])),
        histtype="stepfilled",
        alpha=0.25,
        color=colors[0],
    )
    if score == STRENGTH:
        axes.set_xscale("log")
        for set_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            set_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.6)))
    axes.legend(frameon=False, fontsize=8)
    plain(axes)
