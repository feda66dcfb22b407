"""Draw results/figures/methods.png from results/mnist: mean and standard deviation over seeds, for each method.

python docs/draw_results.py
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev

from matplotlib.figure import Figure

from miue.report.figures import INK, save_figure

RESULTS = Path(__file__).resolve().parents[1] / "results" / "mnist"
PICTURE = RESULTS.parent / "figures" / "methods.png"
METHODS = {
    "deterministic": "softmax",
    "deep-ensemble": "deep ensemble",
    "mc-dropout": "MC dropout",
    "bayes-mil": "Bayes-MIL",
    "i-edl": "I-EDL",
    "mirel": "MIREL",
}
PANELS = {
    "error detection (Conf.)": ("conf", "default"),
    "OOD detection, FMNIST": ("ood fmnist", "default"),
    "OOD detection, KMNIST": ("ood kmnist-test", "default"),
    "UE, mean of the three": ("ue", "default"),
}
LEVELS = {"bag": "#1b6ca8", "instance": "#d1762b"}
Values = Mapping[tuple[str, str, str], list[float]]  # method, level, panel: one value for each seed


def main() -> None:
    """Draw the picture and print the numbers in it."""
    values = read_values("abmil")
    save_figure(results_figure(values), PICTURE)
    for (method, level, panel), seeds in values.items():
        print(f"{method}, {level}, {panel}: {mean(seeds):.1f} ± {stdev(seeds):.1f} ({len(seeds)} seeds)")


def read_values(network: str) -> Values:
    """Return the AUROC in % of each method, level and panel, one value for each seed.

    Instances are predicted by R of MIREL and by T of all other methods.
    """
    values: dict[tuple[str, str, str], list[float]] = {}
    for name, title in METHODS.items():
        for path in sorted((RESULTS / f"{network}-{name}").glob("*.csv")):
            with path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["value"]]
            estimator = "residual" if name == "mirel" else "bag-of-one"
            for row in rows:
                for panel, (task, measure) in PANELS.items():
                    if (row["estimator"], row["task"], row["measure"]) == (estimator, task, measure):
                        values.setdefault((title, row["level"], panel), []).append(100 * float(row["value"]))
    return values


def results_figure(values: Values) -> Figure:
    """Return one panel for each task, with the methods from top to bottom."""
    methods = list(METHODS.values())
    figure = Figure(figsize=(7.6, 5.8), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 2, sharey=True).flat, PANELS, strict=True):
        for offset, (level, color) in zip((-0.14, 0.14), LEVELS.items(), strict=True):
            seeds = [values[method, level, panel] for method in methods]
            axes.errorbar(
                [mean(one) for one in seeds],
                [row + offset for row in range(len(methods))],
                xerr=[stdev(one) for one in seeds],
                fmt="o",
                markersize=5,
                capsize=3,
                color=color,
                label=f"{level}s",
            )
        axes.axvline(50, color="#bbbbbb", linewidth=1, zorder=0)
        axes.set_yticks(range(len(methods)), methods)
        axes.set_xlim(40, 100)
        axes.set_title(panel, fontsize=10, color=INK)
        axes.set_xlabel("AUROC in %", color=INK, fontsize=9)
        axes.grid(axis="x", color="#eeeeee")
        axes.tick_params(colors=INK, labelsize=9)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.axes[0].invert_yaxis()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    main()
