"""Train ABMIL + MIREL on MNIST-bags with every seed and write mnist_bags.csv and README.md beside this file.

Usage: python results/mnist_bags.py SOURCE WORK
SOURCE holds mnist.npz, fashion_mnist.npz and kmnist.npz (or the idx files); WORK takes stores and runs.
What is there is not made again, so the command may be killed and started again.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SEEDS = (42, 17, 26, 50, 82)
COLUMNS = ("Acc.", "Conf.", "OOD-F", "OOD-K*", "UE")
PAPER = {
    "bag": ("96.48 ± 0.22", "86.63 ± 1.32", "92.84 ± 0.60", "79.95 ± 4.12", "86.47"),
    "instance": ("87.71 ± 0.67", "90.73 ± 1.31", "78.13 ± 2.19", "67.02 ± 1.94", "78.63"),
}
RERUN = {
    "bag": ("96.38 ± 0.33", "85.25 ± 2.39", "85.66 ± 4.30", "", ""),
    "instance": ("86.46 ± 0.65", "91.68 ± 1.34", "78.82 ± 1.57", "", ""),
}


def miue(*arguments: object) -> None:
    """Run a command of the library."""
    subprocess.run([sys.executable, "-m", "miue", *map(str, arguments)], check=True)


def evaluation_of(seed: int, source: Path, work: Path) -> dict[str, list[float]]:
    """Return the columns of both levels, in percent, training what is missing."""
    store, run, out = work / "store", work / f"run-{seed}", work / f"predictions-{seed}"
    if not store.exists():
        miue(
            "data", "make", "mnist-bags", "--source", source, "--ood", "fmnist", "--ood", "kmnist", "--out", store
        )
    if not (run / "config.json").exists():
        miue(
            "train", store, "--network", "attention", "--method", "mirel", "--seed", seed, "--out", run, "--resume"
        )
    if not out.exists():
        miue("predict", run, store, "--out", out)
    miue("evaluate", out, "--out", work / f"evaluation-{seed}.json")
    evaluation = json.loads((work / f"evaluation-{seed}.json").read_text())
    result = {}
    for name, level in (("bag", evaluation["bags"]), ("instance", evaluation["instances"])):
        ood = [level["ood"][s]["auroc"] for s in ("fmnist", "kmnist-test")]
        values = [level["metrics"]["accuracy"], level["confidence"]["auroc"], *ood, level["metrics"]["ue"]]
        result[name] = [100 * value for value in values]
    return result


def table(level: str, values: np.ndarray) -> list[str]:
    """Return the Markdown table of one level."""
    mean, std = values.mean(0), values.std(0, ddof=1)
    rows = [("seed", *COLUMNS), ("---",) + ("---:",) * len(COLUMNS)]
    rows += [(str(seed), *(f"{v:.2f}" for v in row)) for seed, row in zip(SEEDS, values, strict=True)]
    rows.append(("**ours, mean ± std**", *(f"**{m:.2f} ± {s:.2f}**" for m, s in zip(mean, std, strict=True))))
    rows += [("published code, run again", *RERUN[level]), ("paper", *PAPER[level])]
    return [f"### {level.capitalize()} level", "", *("| " + " | ".join(row) + " |" for row in rows), ""]


def main(source: Path, work: Path) -> None:
    """Write mnist_bags.csv and README.md."""
    evaluations = {seed: evaluation_of(seed, source, work) for seed in SEEDS}
    with (HERE / "mnist_bags.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("network", "method", "seed", "level", *COLUMNS))
        for seed, levels in evaluations.items():
            for level, values in levels.items():
                writer.writerow(("attention", "mirel", seed, level, *(f"{v:.4f}" for v in values)))
    text = (HERE / "introduction.md").read_text()
    for level in PAPER:
        text += "\n".join(table(level, np.array([evaluations[seed][level] for seed in SEEDS]))) + "\n"
    (HERE / "README.md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
