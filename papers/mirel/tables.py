"""Our numbers beside the published ones, as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot

import numpy as np
from jaxtyping import Float64

from miue.evaluation import Metric
from papers.mirel.paths import Paths
from papers.mirel.preset import preset, preset_names
from papers.mirel.published import PublishedRow, PublishedTable
from papers.mirel.results import DEFAULT, MARK, MARKED, Result, metric_of, older_rows, read_results
from papers.mirel.stored_bags import Resamples, read_resamples, resamples_path

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
RESAMPLED = {"accuracy": "accuracy", "auroc": "auroc", "conf": "confidence"}
"""What tasks are called among resampled metrics."""

LEVELS = ("bag", "instance")
HEADINGS = {"bag": "Bag level", "instance": "Instance level"}
SOFTMAX = "deterministic"
CELLS = (
    "In each cell, in %: **mean ± standard deviation over seeds** (± standard error over test bags); the"
    " difference {of}, [its 95 % interval over test bags]; the paper's number (the difference to it in standard"
    " deviations of both). What is over test bags is of 1,000 resamples, the same for all rows, and holds for"
    " these trainings: a difference is more than chance where it exceeds both."
)


@dataclass(frozen=True)
class Runs:
    """What is kept of the runs of a preset.

    Attributes:
        results: of each seed that was run.
        resamples: of each seed whose test bags are kept, the numbers in resamples of these.
    """

    results: dict[int, list[Result]]
    resamples: dict[int, Resamples]


def markdown_table(table: PublishedTable, paths: Paths, seeds: Sequence[int], *, older: bool = False) -> str:
    """Return the table as Markdown, one part per level; ``CELLS`` says what a cell holds.

    Args:
        table: its rows.
        paths: where results are.
        seeds: of the runs.
        older: show rows that were run with an earlier version of their method, with a mark.

    Raises:
        StorageError: rows of an earlier version without ``older``, or a row of several versions.
    """
    rows = {row.label: row for row in table.rows}
    baselines = {label: _baseline(row, table) for label, row in rows.items()}
    compared = [baseline.preset for baseline in baselines.values() if baseline]
    runs = {name: _runs(name, paths, seeds) for name in dict.fromkeys([*table.presets, *compared])}
    files = {name: ([paths.result(name, seed) for seed in seeds], preset(name).version) for name in table.presets}
    marked = older_rows(files, shown=older)
    option = " --older" if marked else ""
    lines = [f"## {table.name}", "", f"{table.title}. Seeds: {', '.join(map(str, seeds))}.", ""]
    lines += [f"`{COMMAND} run {table.name}`, `{COMMAND} table {table.name}{option}`", ""]
    if table.not_run and not any(runs[name].results for name in table.presets):
        lines += [table.not_run, ""]
    parts: list[str] = []
    for level in LEVELS:
        shown = [row for row in table.rows if level in row.paper or level in row.ood_score]
        if not shown:
            continue
        columns = list(shown[0].paper.get(level) or BEYOND_THE_PAPER[preset(shown[0].preset).data])
        every_run = [list(runs[name].results.values()) for name in table.presets]
        heading = [column + _note(column, every_run) for column in columns]
        parts += [f"### {HEADINGS[level]}", "", "| | " + " | ".join(heading) + " |"]
        parts.append("| --- |" + " ---: |" * len(columns))
        for row in shown:
            cells = [
                _cell(row, baselines[row.label], level, column, columns, runs, len(seeds)) for column in columns
            ]
            mark = MARK if row.preset in marked else ""
            parts.append(f"| {row.label}{mark} | " + " | ".join(cells) + " |")
        parts.append("")
    done = [row for row in table.rows if runs[row.preset].results]
    without = [row.label for row in done if not runs[row.preset].resamples]
    if len(without) < len(done):
        of = f"to {table.baseline}" if table.baseline else "to softmax on the same network, its instances by T"
        lines += [CELLS.format(of=of), ""]
    if without:
        which = "; ".join(without) if len(without) < len(done) else "all rows"
        parts += [f"No error over test bags, as predictions of bags were not kept: {which}.", ""]
    if marked:
        parts += [MARKED, ""]
    if any("\\*" in line for line in parts):
        parts += ["\\* drawn from a part of the out-of-distribution images, not from all.", ""]
    return "\n".join([*lines, *parts])


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


def _runs(name: str, paths: Paths, seeds: Sequence[int]) -> Runs:
    files = {seed: paths.result(name, seed) for seed in seeds}
    every = {seed: read_results(file, (name, seed)) for seed, file in files.items()}
    read = {seed: results for seed, results in every.items() if results is not None}
    kept = {seed: path for seed in read if (path := resamples_path(files[seed])).exists()}
    return Runs(read, {seed: read_resamples(path) for seed, path in kept.items()})


def _baseline(row: PublishedRow, table: PublishedTable) -> PublishedRow | None:
    """Return what a row is compared with, None where there is nothing, or where it is the row itself."""
    mine, data = preset(row.preset), row.preset.split("/")[0]
    softmax = (
        name
        for name in preset_names()
        if name.startswith(f"{data}/") and (preset(name).network, preset(name).method) == (mine.network, SOFTMAX)
    )
    name = table.baseline or next(softmax, None)
    if name is None or (name, preset(name).estimators[0]) == (row.preset, row.estimator):
        return None
    return replace(row, preset=name, estimator=preset(name).estimators[0])


def _note(column: str, runs_of_presets: Iterable[list[list[Result]]]) -> str:
    """Mark a column whose out-of-distribution source was not whole ("kmnist-test")."""
    task = TASKS.get(column, "")
    if not task.endswith("*"):
        return ""
    names = {r.task for runs in runs_of_presets for results in runs for r in results}
    return "\\*" if any(n.startswith(task[:-1]) and n != task[:-1] for n in names) else ""


def _cell(
    row: PublishedRow,
    baseline: PublishedRow | None,
    level: str,
    column: str,
    columns: Sequence[str],
    runs: Mapping[str, Runs],
    wanted: int,
) -> str:
    mine = runs[row.preset]
    metrics = [_metric(row, level, column, columns, results) for results in mine.results.values()]
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
    over_bags = ""
    if mine.resamples:
        over_bags = f" (± {np.nanstd(_drawn(row, level, column, columns, mine, mine.resamples)):.2f})"
    same = baseline is None or (level == "bag" and baseline.preset == row.preset)
    if baseline is not None and not same and (common := mine.resamples.keys() & runs[baseline.preset].resamples):
        both = [(one, runs[one.preset]) for one in (row, baseline)]
        drawn = [_drawn(one, level, column, columns, of, common) for one, of in both]
        means = [_mean(one, level, column, columns, of, common) for one, of in both]
        less, difference = drawn[0] - drawn[1], means[0] - means[1]
        low, high = np.nanpercentile(less, (2.5, 97.5))
        over_bags += f"<br>{difference:+.1f} [{low:+.1f}, {high:+.1f}]"
        over_bags += "" if len(common) == wanted else f" ({len(common)} seeds)"
    return f"**{mean:.2f} ± {std:.2f}**{over_bags}{count}{paper}"


def _mean(
    row: PublishedRow, level: str, column: str, columns: Sequence[str], runs: Runs, seeds: Collection[int]
) -> float:
    """Return a column's mean over some seeds, in %; NaN where it is undefined for one."""
    metrics = [_metric(row, level, column, columns, runs.results[seed]) for seed in seeds]
    mean = Metric.mean_of(metrics).value
    return float("nan") if mean is None else 100 * mean


def _drawn(
    row: PublishedRow, level: str, column: str, columns: Sequence[str], runs: Runs, seeds: Collection[int]
) -> Float64[np.ndarray, "resamples"]:
    """Return a column's mean over some seeds in each resample of the test bags, in %."""
    if column == "UE":
        return np.mean([_drawn(row, level, part, columns, runs, seeds) for part in _of_ue(columns)], axis=0)
    task, measure = _task(row, level, column)
    level_and_estimator = level if level == "bag" else f"{level}, {row.estimator}"
    kind = RESAMPLED.get(task) or (task if measure == DEFAULT else task.replace("ood ", "detection ", 1))
    start = f"{level_and_estimator}, {kind.removesuffix('*')}"
    drawn = [runs.resamples[seed] for seed in seeds]
    return 100 * np.mean([next(v for k, v in one.items() if k.startswith(start)) for one in drawn], axis=0)


def _of_ue(columns: Sequence[str]) -> list[str]:
    """Return the columns that UE is the mean of: the table's others that are of uncertainty."""
    return [column for column in columns if column not in ("UE", *OF_CLASSES)]


def _task(row: PublishedRow, level: str, column: str) -> tuple[str, str]:
    """Return task and measure; a row with a score of its own detects out-of-distribution items with that."""
    task = row.tasks.get(column) or TASKS[column]
    return task, row.ood_score.get(level, DEFAULT) if task.startswith("ood ") else DEFAULT


def _metric(row: PublishedRow, level: str, column: str, columns: Sequence[str], results: list[Result]) -> Metric:
    """Return one seed's number."""
    if column == "UE":
        return Metric.mean_of([_metric(row, level, part, columns, results) for part in _of_ue(columns)])
    task, measure = _task(row, level, column)
    return metric_of(results, row.estimator, level, task, measure)
