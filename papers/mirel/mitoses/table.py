"""Errors and warnings on the scanner trained on and on two others, as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from papers.mirel.folds import evaluate_pooled
from papers.mirel.mitoses.experiment import COMPARED, FOLDS, FORMS, SCANNERS, Fold
from papers.mirel.nuclei.experiment import METHOD_SETUPS, version_of_setup
from papers.mirel.results import DEFAULT, MARK, MARKED, Result, mean_and_std, metric_of, older_rows, read_results

COMMAND = "python -m papers.mirel mitoses"
LEVELS = ("bag", "instance")
Folds = list[tuple[Fold, list[Result]]]


def mitoses_page(results: Path, seeds: Sequence[int], *, older: bool = False) -> str:
    """Return the page as Markdown; a number is a mean over the folds of all three scanners and of all seeds.

    Args:
        results: the folder.
        seeds: of the repetitions.
        older: show methods that were run with an earlier version of them, with a mark.

    Raises:
        StorageError: a file of results that is not one, or rows as ``older_rows`` refuses them.
    """
    found = {
        form: {name: folds for name in METHOD_SETUPS if (folds := _read(results, form, name, seeds))}
        for form in FORMS
    }
    files = {
        f"{form}, {name}": ([fold.path(results) for fold, _ in folds], version_of_setup(name))
        for form, of_methods in found.items()
        for name, folds in of_methods.items()
    }
    marked = older_rows(files, shown=older)
    command = f"{COMMAND} table --seeds {','.join(map(str, seeds))}{' --older' if marked else ''}"
    lines = [
        "# Mitoses-bags: three scanners",
        "",
        f"Trained on slides of one scanner, each in turn, in {FOLDS} folds; tested on its other slides and on all",
        "slides of the two other scanners. A number is the mean over folds and seeds, then over scanners (±",
        "standard deviation over the three); Conf. of the same scanner's bags is of those of all folds of a seed",
        "together, as nine slides are too few for it (—: their predictions were not kept). What the data are and",
        "how they are used: overview.md.",
        *(["", MARKED] if marked else []),
        "",
        f"`{COMMAND} run`, `{command} --out results/mitoses/README.md`",
        "",
    ]
    total = len(seeds) * len(SCANNERS) * FOLDS
    for form, read in found.items():
        if read:
            done = "; ".join(
                f"{METHOD_SETUPS[name].title} {len(folds)} of {total}" for name, folds in read.items()
            )
            lines += [f"## {form.capitalize()}", ""]
            lines += [f"Folds done with seeds {', '.join(map(str, seeds))}: {done}.", ""]
            methods = {
                _title(name, len(folds), total) + (MARK if f"{form}, {name}" in marked else ""): folds
                for name, folds in read.items()
            }
            for level in LEVELS:
                lines += [*_errors(methods, level, results), *_warnings(methods, level)]
    return "\n".join(lines)


def _title(method: str, done: int, total: int) -> str:
    """Return the name of a row, which says where folds are missing, so that others are not compared with it."""
    title = METHOD_SETUPS[method].title
    return title if done == total else f"{title} ({done} of {total} folds)"


def _read(results: Path, form: str, method: str, seeds: Sequence[int]) -> Folds:
    folds = [Fold(form, method, scanner, s, n) for s in seeds for scanner in SCANNERS for n in range(FOLDS)]
    read = [(fold, read_results(fold.path(results), fold.run)) for fold in folds]
    return [(fold, numbers) for fold, numbers in read if numbers is not None]


def _errors(methods: dict[str, Folds], level: str, results: Path) -> list[str]:
    """Return what the networks get right on the scanner of their training and on the others."""
    lines = [
        f"### {level.capitalize()}s: same scanner | other scanners",
        "",
        "| | accuracy | | AUC | | Conf. | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, folds in methods.items():
        cells = []
        for task in COMPARED:
            pooled = (level, task) == ("bag", "conf")
            cells.append(_pooled(folds, results) if pooled else _cell(folds, level, partial(_same, task)))
            cells.append(_cell(folds, level, partial(_elsewhere, f"{task} on")))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return [*lines, ""]


def _pooled(folds: Folds, results: Path) -> str:
    """Return Conf. of the test bags of all folds of a scanner and seed together, as ``_cell`` does."""
    of_scanners: dict[str, list[float]] = {}
    for scanner, seed in dict.fromkeys((fold.scanner, fold.seed) for fold, _ in folds):
        of_seed = [fold for fold, _ in folds if (fold.scanner, fold.seed) == (scanner, seed)]
        pooled = evaluate_pooled(of_seed, results)
        if pooled is not None and pooled.confidence.auroc.value is not None:
            of_scanners.setdefault(scanner, []).append(pooled.confidence.auroc.value)
    return mean_and_std([float(np.mean(values)) for values in of_scanners.values()])


def _warnings(methods: dict[str, Folds], level: str) -> list[str]:
    """Return how well each score tells other scanners from the same one, in all six directions."""
    directions = [(own, other) for own in SCANNERS for other in SCANNERS if own != other]
    lines = [
        f"### {level.capitalize()}s of other scanners against those of the same: AUROC by score",
        "",
        f"| | score | {' | '.join(f'{a} → {b}' for a, b in directions)} | mean |",
        "| --- | --- |" + " ---: |" * (len(directions) + 1),
    ]
    for title, folds in methods.items():
        tasks = {f"ood {scanner}" for scanner in SCANNERS}
        measures = {r.measure: None for _, rs in folds for r in rs if r.level == level and r.task in tasks}
        for measure in measures:
            cells = [
                _cell([f for f in folds if f[0].scanner == own], level, partial(_same, f"ood {other}"), measure)
                for own, other in directions
            ]
            mean = _cell(folds, level, partial(_elsewhere, "ood"), measure)
            shown = "the paper's" if measure == DEFAULT else measure
            lines.append(f"| {title} | {shown} | {' | '.join(cells)} | {mean} |")
    return [*lines, ""]


def _same(task: str, fold: Fold) -> list[str]:
    return [task]


def _elsewhere(beginning: str, fold: Fold) -> list[str]:
    """Return the tasks that begin so, of both scanners that a fold was not trained on."""
    return [f"{beginning} {scanner}" for scanner in SCANNERS if scanner != fold.scanner]


def _cell(folds: Folds, level: str, tasks: Callable[[Fold], Iterable[str]], measure: str = DEFAULT) -> str:
    """Return the mean over folds and tasks, ± standard deviation over scanners where there are several."""
    of_scanners: dict[str, list[float]] = {}
    for fold, results in folds:
        estimator = METHOD_SETUPS[fold.method].estimators[0]
        for task in tasks(fold):
            value = metric_of(results, estimator, level, task, measure).value
            if value is not None:
                of_scanners.setdefault(fold.scanner, []).append(value)
    return mean_and_std([float(np.mean(values)) for values in of_scanners.values()])
