"""Bags instance by instance, in and out of distribution.

Reference: Liu & Ji 2024, figure of bag examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from miue.bags import BagDataset
from miue.distributions import Dirichlet
from papers.mirel.figures.figure_with_data import Cell, FigureWithData
from papers.mirel.paths import Paths
from papers.mirel.runner import train_preset

COLUMNS = ("bag_id", "instance", "label", "is_ood", "probability", "vacuity")
PRESET = "mnist/abmil-mirel"
RATIO = 0.4
WIDTH = 12  # instances shown


def draw_bag_examples(seeds: Sequence[int], paths: Paths, device: str) -> FigureWithData:
    """Draw a positive and a negative bag, and two bags with out-of-distribution instances of each source.

    Args:
        seeds: the first is used.
        paths: where images, models and results are.
        device: "auto", "cpu", "gpu".
    """
    from miue.datasets.mnist import OOD_SOURCES, mnist_bags

    bags = mnist_bags(paths.source, splits=["test"], ood=OOD_SOURCES, ood_ratio=RATIO)
    inside = np.flatnonzero(bags.is_ood.in_distribution)[:2]
    outside = [np.flatnonzero(np.array(bags.ood_sets) == name)[:2] for name in sorted(set(bags.ood_sets) - {""})]
    return draw_bags(bags.subset(np.concatenate([inside, *outside])), seeds[0], paths, device)


def draw_bags(bags: BagDataset, seed: int, paths: Paths, device: str) -> FigureWithData:
    """Draw each bag as a row of images with the probability of a 9 and the vacuity under R."""
    model = train_preset(PRESET, [seed], paths, device)[0]
    predictions = model.predict(bags, device=device)
    table = predictions.instances
    assert table is not None
    assert isinstance(table.distribution, Dirichlet)
    assert table.instance is not None
    vacuity, probability = table.distribution.vacuity().numpy(), table.probabilities[:, 1]
    figure = Figure(figsize=(12.5, 1.72 * len(bags)), layout="constrained")
    grid = figure.subplots(len(bags), WIDTH, squeeze=False)
    for row, axes_of_bag in enumerate(grid):
        members = np.flatnonzero(table.bag_ids == bags.ids[row])
        images = bags.batch([row]).instances.numpy()
        for place, axes in enumerate(axes_of_bag):
            axes.axis("off")
            if place >= len(members):
                continue
            member = members[place]
            axes.imshow(images[place, ..., 0], cmap="gray", vmin=0, vmax=255)
            axes.set_title(f"p {probability[member]:.2f}\nvac. {vacuity[member]:.2f}", fontsize=7.5)
            is_target = table.labels.known[member] and table.labels.values[member] == 1
            if is_target or table.is_ood.out_of_distribution[member]:
                color = "#d1495b" if is_target else "#edae49"
                axes.add_patch(Rectangle((-0.5, -0.5), 28, 28, fill=False, edgecolor=color, linewidth=3))
        kind = bags.ood_sets[row] or "in distribution"
        summary = f"bag p {predictions.bags.probabilities[row, 1]:.2f}"
        axes_of_bag[0].text(
            -0.15,
            0.5,
            f"{kind}\n{summary}",
            transform=axes_of_bag[0].transAxes,
            ha="right",
            va="center",
            fontsize=8.5,
        )
    figure.suptitle(
        "p: probability of a 9 (red frame: it is one). vac.: vacuity under R. Yellow frame: out of distribution.",
        fontsize=10,
    )
    rows: list[list[Cell]] = []
    for member in range(len(table)):
        label = int(table.labels.values[member]) if table.labels.known[member] else ""
        start: list[Cell] = [str(table.bag_ids[member]), int(table.instance[member]), label]
        rows.append(
            [
                *start,
                int(table.is_ood.out_of_distribution[member]),
                float(probability[member]),
                float(vacuity[member]),
            ]
        )
    return FigureWithData(figure, COLUMNS, rows)
