"""Draw the pictures of docs/uncertainty.md from a real training on digits-bags, and print their numbers.

python docs/draw_uncertainty.py  (about a minute on two cores)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

import miue
from miue.cli.demo_run import SETTINGS
from miue.datasets.digits import digits_bags
from miue.datasets.image_shifts import shifted_copies
from miue.predictions import Predictions
from miue.report.figures import INK, save_figure

IMAGES = Path(__file__).with_name("images")
MEASURES = {
    "expected_entropy": "aleatoric:\nexpected\nentropy, nats",
    "mutual_information": "epistemic:\nmutual infor-\nmation, nats",
    "knn": "distance to\ntraining\ninstances",
}
COLORS = ("#5b7ea6", "#c0504d", "#6f9e6a")


def main() -> None:
    """Train, predict four kinds of bags, choose one of each by rule, and draw."""
    bags = digits_bags()
    model = miue.train(bags, settings=SETTINGS, progress=False)
    test = bags.split("test")
    known = test.subset(np.flatnonzero(test.is_ood.in_distribution))
    foreign = test.subset(np.flatnonzero(test.is_ood.out_of_distribution))
    shifted = shifted_copies(known, seed=0)
    names = np.array(shifted.ood_sets)
    groups = {"test": known, "photographs": foreign}
    groups |= {name: shifted.subset(np.flatnonzero(names == name)) for name in ("rotation", "noise", "blend")}
    predicted = {name: model.predict(group) for name, group in groups.items()}
    of_known = predicted["test"].bags
    enough = known.sizes >= 6
    entropy = of_known.uncertainties()["expected_entropy"]
    between = int(np.argmax(np.where(enough, entropy, -1)))
    strange = int(np.flatnonzero(foreign.sizes >= 6)[0])
    chosen = {"between": ("test", between), "photographs": ("photographs", strange)}
    limits = _limits(predicted)
    for name, (group, bag) in chosen.items():
        figure = bag_rows(predicted[group], bag, groups[group].batch([bag]).instances.numpy(), limits)
        save_figure(figure, IMAGES / f"uncertainty_{name}.png")
        table = predicted[group].bags
        shown = {key: f"{table.uncertainties()[key][bag]:.3f}" for key in (*list(MEASURES)[:2], "knn_mean")}
        print(name, table.bag_ids[bag], f"p {table.probabilities[bag, 1]:.2f}", shown)
    ordinary = of_known.uncertainties()
    for name, predictions in predicted.items():
        values = predictions.bags.uncertainties()
        for key in (*list(MEASURES)[:2], "knn_mean"):
            truth = np.repeat([0, 1], [len(ordinary[key]), len(values[key])])
            auroc = 100 * roc_auc_score(truth, np.concatenate([ordinary[key], values[key]]))
            print(f"{name} {key}: median {np.median(values[key]):.3f}, AUROC against test {auroc:.1f}")
    save_figure(groups_figure(predicted), IMAGES / "uncertainty_groups.png")
    print(f"aleatoric uncertainty of test bags: 90 % below {np.quantile(entropy, 0.9):.3f}")


def bag_rows(predictions: Predictions, bag: int, images: np.ndarray, limits: Mapping[str, float]) -> Figure:
    """Return the images of a bag above their probability, data and model uncertainty, and distance."""
    table = predictions.instances
    assert table is not None
    rows = np.flatnonzero(table.bag_ids == predictions.bags.bag_ids[bag])[:12]
    count = len(rows)
    heights = [6.5 / count, 1, 1, 1, 1]  # inches, so that pictures come out square
    figure = Figure(figsize=(7.4, sum(heights) + 1), layout="constrained")
    pictures, probability, *others = figure.subplots(5, 1, sharex=True, height_ratios=heights)
    for place, image in enumerate(images[:count]):
        box = (place - 0.45, place + 0.45, 0, 1)
        pictures.imshow(image[..., 0], cmap="gray", vmin=0, vmax=255, extent=box, aspect="auto")
    pictures.set(xlim=(-0.6, count - 0.4), ylim=(0, 1))
    pictures.axis("off")
    _bars(probability, table.probabilities[rows, 1], "probability\nof positive", 1.0, "#777777")
    for axes, (name, label), color in zip(others, MEASURES.items(), COLORS, strict=True):
        _bars(axes, table.uncertainties()[name][rows], label, limits[name], color)
    others[-1].set_xticks(range(count), [str(i + 1) for i in range(count)])
    others[-1].set_xlabel("instance", color=INK)
    return figure


def groups_figure(predicted: Mapping[str, Predictions]) -> Figure:
    """Return box plots of three uncertainties of bags, a row for each group."""
    names = {
        "expected_entropy": "aleatoric: expected entropy",
        "mutual_information": "epistemic: mutual information",
    }
    names["knn_mean"] = "distance: knn_mean"
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    for axes, (name, label), color in zip(figure.subplots(1, 3, sharey=True), names.items(), COLORS, strict=True):
        values = [one.bags.uncertainties()[name] for one in predicted.values()]
        axes.boxplot(
            values,
            orientation="horizontal",
            widths=0.6,
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": color, "alpha": 0.6},
            medianprops={"color": INK},
        )
        axes.set_yticks(range(1, len(values) + 1), list(predicted))
        axes.invert_yaxis() if axes.get_subplotspec().is_first_col() else None
        axes.set_xlim(left=0)
        axes.set_xlabel(label, color=INK)
        axes.tick_params(colors=INK, labelsize=9)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure


def _bars(axes: Any, values: np.ndarray, label: str, limit: float, color: str) -> None:
    axes.bar(range(len(values)), values, width=0.72, color=color)
    axes.set_ylim(0, limit)
    axes.set_ylabel(label, color=INK, fontsize=8)
    axes.tick_params(colors=INK, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _limits(predicted: Mapping[str, Predictions]) -> dict[str, float]:
    """Return the same axis for every picture: up to the largest value of any instance."""
    tables = [predictions.instances for predictions in predicted.values() if predictions.instances is not None]
    return {name: max(float(t.uncertainties()[name].max()) for t in tables) for name in MEASURES}


if __name__ == "__main__":
    main()
