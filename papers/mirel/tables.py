"""Our numbers beside the published ones, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot

import numpy as np

from miue.evaluation import Metric
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.published import PublishedRow, PublishedTable
from papers.mirel.results import DEFAULT, Result, metric_of, read_results

COMMAND = "python -m papers.mirel"
TASKS = {
    "Acc": "accuracy",
    "AUROC": "auroc",
    "Conf": "conf",
    "OOD-F": "ood fmnist*",
    "OOD-K": "ood kmnist*",
    "OOD-S": "ood svhn*",
    "OOD-T": "ood dtd*",
    "OOD-PRAD": "ood prad",
}
BEYOND_THE_PAPER = {  # columns of a table without published numbers, by data
    "mnist-bags": ("Acc", "Conf", "OOD-F", "OOD-K", "UE"),
    "cifar10-bags": ("Acc", "Conf", "OOD-S", "OOD-T", "UE"),
}
OF_CLASSES = ("Acc", "AUROC")  # columns that are not averaged in UE
LEVELS = ("bag", "instance")
HEADINGS = {"bag": "Bag level", "instance": "Instance level"}


def markdown_table(table: PublishedTable, paths: Paths, seeds: Sequence[int]) -> str:
    """Return the table as Markdown, one part per level.

    A cell holds our mean ± standard deviation over seeds, the paper's, and the difference of the means
    in units of both standard deviations together, (ours − paper) / √(s² + s²). Numbers are in percent.
    """
    lines = [f"## {table.name}", "", f"{table.title}. Seeds: {', '.join(map(str, seeds))}.", ""]
    lines += [f"`{COMMAND} run {table.name}`, `{COMMAND} table {table.name}`", ""]
    runs_of_presets = {name: _results(name, paths, seeds) for name in table.presets}
    if table.not_run and not any(runs_of_presets.values()):
        lines += [table.not_run, ""]
    for level in LEVELS:
        rows = [row for row in table.rows if level in row.paper or level in row.ood_score]
        if not rows:
            continue
        columns = list(rows[0].paper.get(level) or BEYOND_THE_PAPER[preset(rows[0].preset).data])
        notes = {column: _note(column, runs_of_presets.values()) for column in columns}
        heading = [column + notes[column] for column in columns]
        lines += [f"### {HEADINGS[level]}", "", "| | " + " | ".join(heading) + " |"]
        lines.append("| --- |" + " ---: |" * len(columns))
        for row in rows:
            runs = runs_of_presets[row.preset]
            cells = [_cell(row, level, column, columns, runs, len(seeds)) for column in columns]
            lines.append(f"| {row.label} | " + " | ".join(cells) + " |")
        lines.append("")
    if any("\\*" in line for line in lines[4:]):
        lines += [
            "\\* drawn from a part of the out-of-distribution images, not from all.",
            "",
        ]
    return "\n".join(lines)


def markdown_seeds(name: str, paths: Paths, seeds: Sequence[int]) -> str:
    """Return every seed of one preset as Markdown, with mean and standard deviation, in percent.

    Instances are predicted from the preset's first estimator.
    """
    estimator = preset(name).estimators[0]
    every_run = {seed: read_results(paths.result(name, seed), (name, seed)) for seed in seeds}
    runs = {seed: results for seed, results in every_run.items() if results is not None}
    lines = [f"`{COMMAND} run {name}`, `{COMMAND} seeds {name}`; instances from: {estimator}.", ""]
    if not runs:
        return "\n".join([*lines, "Not run.", ""])
    sets = sorted({r.task for results in runs.values() for r in results if r.task.startswith("ood ")})
    tasks = ["accuracy", "conf", *sets, "ue"]
    for level in LEVELS:
        values = np.array(
            [[_percent(results, estimator, level, task) for task in tasks] for results in runs.values()]
        )
        lines += [f"| {HEADINGS[level].lower()}, seed | " + " | ".join(tasks) + " |"]
        lines.append("| --- |" + " ---: |" * len(tasks))
        for seed, row in zip(runs, values, strict=True):
            lines.append(f"| {seed} | " + " | ".join(f"{value:.2f}" for value in row) + " |")
        if len(runs) > 1:
            both = zip(values.mean(0), values.std(0, ddof=1), strict=True)
            lines.append("| **mean ± std** | " + " | ".join(f"**{m:.2f} ± {s:.2f}**" for m, s in both) + " |")
        lines.append("")
    return "\n".join(lines)


def _percent(results: list[Result], estimator: str, level: str, task: str) -> float:
    value = metric_of(results, estimator, level, task).value
    return float("nan") if value is None else 100 * value


def _results(name: str, paths: Paths, seeds: Sequence[int]) -> list[list[Result]]:
    every_run = [read_results(paths.result(name, seed), (name, seed)) for seed in seeds]
    return [results for results in every_run if results is not None]


def _note(column: str, runs_of_presets: Iterable[list[list[Result]]]) -> str:
    """Mark a column whose out-of-distribution source was not whole ("kmnist-test")."""
    task = TASKS.get(column, "")
    if not task.endswith("*"):
        return ""
    names = {r.task for runs in runs_of_presets for results in runs for r in results}
    return "\\*" if any(n.startswith(task[:-1]) and n != task[:-1] for n in names) else ""


def _cell(
    row: PublishedRow, level: str, column: str, columns: Sequence[str], runs: list[list[Result]], wanted: int
) -> str:
    metrics = [_metric(row, level, column, columns, results) for results in runs]
    values = [100 * metric.value for metric in metrics if metric.value is not None]
    mean_paper, std_paper = row.paper.get(level, {}).get(column, (None, None))
    paper = "" if mean_paper is None else f"<br>paper {mean_paper:.2f}"
    paper += "" if std_paper is None else f" ± {std_paper:.2f}"
    if not values:
        return f"{metrics[0].reason if metrics else 'not run'}{paper}"
    count = "" if len(values) == wanted else f" ({len(values)} of {wanted} seeds)"
    if len(values) < 2:
        return f"**{values[0]:.2f}**{count}{paper}"
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1))
    if mean_paper is not None and std_paper is not None and hypot(std, std_paper) > 0:
        paper += f" ({(mean - mean_paper) / hypot(std, std_paper):+.1f})"
    return f"**{mean:.2f} ± {std:.2f}**{count}{paper}"


def _metric(row: PublishedRow, level: str, column: str, columns: Sequence[str], results: list[Result]) -> Metric:
    """Return one seed's number; UE is the mean of the table's other columns that are of uncertainty.

    A row with a score of its own detects out-of-distribution items with that.
    """
    if column == "UE":
        parts = [other for other in columns if other != column and other not in OF_CLASSES]
        return Metric.mean_of([_metric(row, level, part, columns, results) for part in parts])
    task = row.tasks.get(column) or TASKS[column]
    measure = row.ood_score.get(level, DEFAULT) if task.startswith("ood ") else DEFAULT
    return metric_of(results, row.estimator, level, task, measure)
