"""How sure instances are, by digit: are 4 and 7, which look like the 9 that makes a bag positive, the unsure ones?

Reference: Liu & Ji 2024, figure of instance-level confidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64
from matplotlib.figure import Figure

from miue.datasets.drawing import TARGET
from miue.datasets.mnist import digits_of_test_bags, mnist_bags
from miue.predictions import PredictionTable
from papers.mirel.figures.figure_with_data import Cell, FigureWithData, plain
from papers.mirel.figures.ood_sweep import CONFIDENCE, scores_of
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.runner import train_preset

COLUMNS = (
    "preset",
    "seed",
    "estimator",
    "digit",
    "instances",
    "mean_confidence",
    "q05",
    "median",
    "q95",
    "called_positive",
)
TITLES = {"attention": "a_k", "bag-of-one": "T", "residual": "R"}


def draw_confidence_by_digit(network: str, seeds: Sequence[int], paths: Paths, device: str) -> FigureWithData:
    """Draw the negative expected entropy of instances of each digit, for a_k and T without and R with MIREL.

    Args:
        network: "abmil" or "dsmil".
        seeds: the first is drawn; the table holds all.
        paths: where images, models and results are.
        device: "auto", "cpu", "gpu".
    """
    panels = [
        (f"mnist/{network}-deterministic", "attention"),
        (f"mnist/{network}-deterministic", "bag-of-one"),
        (f"mnist/{network}-mirel", "residual"),
    ]
    bags, digits = mnist_bags(paths.source, splits=["test"]), digits_of_test_bags(paths.source)
    rows: list[list[Cell]] = []
    figure = Figure(figsize=(12.5, 3.6), layout="constrained")
    for axes, (name, estimator) in zip(figure.subplots(1, 3), panels, strict=True):
        for seed in seeds:
            model = train_preset(name, [seed], paths, device)[0]
            predictions = model.predict(bags, estimator=estimator, device=device)
            assert predictions.instances is not None
            rows += digit_rows(name, seed, estimator, predictions.instances, digits)
            if seed == seeds[0]:
                confidence = scores_of(predictions.instances)[CONFIDENCE]
                boxes = axes.boxplot(
                    [confidence[digits == d] for d in range(10)],
                    tick_labels=[str(d) for d in range(10)],
                    whis=(5, 95),
                    showfliers=False,
                    patch_artist=True,
                    medianprops={"color": "#333333"},
                )
                for digit, box in enumerate(boxes["boxes"]):
                    box.set_facecolor(
                        "#1b6ca8" if digit == TARGET else "#edae49" if digit in (4, 7) else "#cfd6dc"
                    )
        axes.set_title(f"{preset(name).title}: {TITLES[estimator]}", loc="left", fontsize=11)
        axes.set_xlabel("digit   (blue: the positive one, yellow: 4 and 7)")
        plain(axes)
    figure.axes[0].set_ylabel("negative expected entropy, nats")
    return FigureWithData(figure, COLUMNS, rows)


def digit_rows(
    name: str, seed: int, estimator: str, table: PredictionTable, digits: Int64[np.ndarray, "n"]
) -> list[list[Cell]]:
    """Return the confidence of each digit's instances, and the share of them called positive."""
    confidence = scores_of(table)[CONFIDENCE].astype(np.float64)
    rows: list[list[Cell]] = []
    for digit in range(10):
        of_digit = digits == digit
        quantiles = np.quantile(confidence[of_digit], [0.05, 0.5, 0.95]).tolist()
        positive = float((table.predicted[of_digit] == 1).mean())
        mean = float(confidence[of_digit].mean())
        rows.append([name, seed, estimator, digit, int(of_digit.sum()), mean, *quantiles, positive])
    return rows
