"""Cross-validations side by side: each metric of each, and how far it is from the first on the same folds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.common.errors import (
    StorageError,
    first_repeated,
    import_extra,
    not_a_folder,
    repeated,
    unknown_name,
    wrong_type,
)
from miue.common.files import name_of, read_json
from miue.common.folder_kinds import CROSS_VALIDATION
from miue.common.parts import BASELINES
from miue.common.tables import read_text_columns
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.common.values import check_value, several
from miue.evaluation import OwnMetric, check_own_metrics, is_built_in, own_metrics
from miue.io import fold_columns
from miue.predictions import read_predictions
from miue.selection.cross_validation import folder_of
from miue.selection.summaries import FoldShares, Summary, Value, is_share, standard_error, summarize

NLL = ("bags", "nll")
CLEAR = 0.05  # p-value
METRICS = ("accuracy", "auroc", "confidence_auroc", "nll", "ece")
NOTE = (
    "Mean over folds ± standard deviation over runs, shares in %; in brackets the difference to the first row on "
    "the same folds and its p-value."
)
FEWER_RUNS = " A metric that is undefined in some runs has its mean and difference over the others."


@dataclass(frozen=True)
class Difference:
    """How far a metric of one cross-validation is from that of another on the same folds.

    Attributes:
        mean: over folds, seeds averaged within each.
        p: of the corrected resampled t-test, two-sided, that it is zero; None of a single fold, and of differences
            that are the same on every fold and not zero, which say nothing of how much they vary.
    """

    mean: float
    p: float | None


@dataclass(frozen=True)
class Compared:
    """A cross-validation beside others.

    Attributes:
        name: its folder.
        summaries: of each (level, metric).
        differences: to the first of those compared, for each (level, metric) that both have; none of the first
            itself.
        is_baseline: whether it is a pooled baseline, without a network.
        beside_baseline: NLL less that of the best baseline on the same folds; None of baselines, or without one.
        same_tests: whether each fold tests the bags, with the labels, that the first does; what is trained on, and
            with which features, may differ. Else there are no differences.
    """

    name: str
    summaries: dict[tuple[str, str], Summary]
    differences: dict[tuple[str, str], Difference]
    same_tests: bool
    is_baseline: bool = False
    beside_baseline: Difference | None = None

    def numbers(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return each (level, metric) as a row of numbers, with its difference to the first and its p-value."""
        return {
            key: {"name": self.name, **asdict(summary), "difference": pair and pair.mean, "p": pair and pair.p}
            for key, summary in self.summaries.items()
            for pair in [self.differences.get(key)]
        }

    def cells(self, level: str, metrics: Sequence[str]) -> tuple[str, ...]:
        """Return the name, the runs and each metric as texts, shares in percent."""
        keys = [(level, name) for name in metrics]
        shown = [_cell(self.summaries.get(key), self.differences.get(key), self.runs) for key in keys]
        return (self.name, str(self.runs), *shown)

    @property
    def runs(self) -> int:
        """The number of runs; some metrics are undefined in some."""
        return max((one.runs for one in self.summaries.values()), default=0)

    def has_fewer_runs(self, level: str, metrics: Sequence[str]) -> bool:
        """Return whether one of these metrics is undefined in some runs, and not in all."""
        found = [self.summaries.get((level, name)) for name in metrics]
        return any(one.runs < self.runs for one in found if one)


@dataclass(frozen=True)
class _Folder:
    name: str
    tests: tuple[frozenset[tuple[str, str]], ...]
    values: list[Value]
    shares: FoldShares
    method: str

    @property
    def is_baseline(self) -> bool:
        return self.method in BASELINES


class Comparison(PrintsAsTable, tuple[Compared, ...]):
    """Cross-validations side by side; prints as a table of the commonest metrics of bags."""

    def tables(self) -> tuple[ResultTable]:
        """Return the commonest metrics of bags."""
        return (self.as_table(),)

    def as_table(self, level: str = "bags", metrics: Sequence[str] | None = None) -> ResultTable:
        """Return a row for each cross-validation, with its runs and each metric.

        Args:
            level: "bags", "instances" or "patients".
            metrics: the columns; None for the commonest, and those of a user.

        Raises:
            ConfigError: no such level or metric.
        """
        known = list(dict.fromkeys(key for one in self for key in one.summaries))
        levels = list(dict.fromkeys(name for name, _ in known))
        if level not in levels:
            raise unknown_name("level", level, levels)
        there = [name for at, name in known if at == level]
        for name in metrics or ():
            if name not in there:
                raise unknown_name("metric", name, there)
        shown = [*METRICS, *(name for name in there if not is_built_in(name))]
        columns = list(metrics or [name for name in shown if name in there] or there)
        others = [one.name for one in self if not one.same_tests]
        apart = f" Without a difference, since their folds test other bags: {', '.join(others)}." if others else ""
        rows = tuple(one.cells(level, columns) for one in self)
        fewer = FEWER_RUNS if any(one.has_fewer_runs(level, columns) for one in self) else ""
        notes = filter(None, (f"{NOTE}{fewer}{apart}", self.beside_baseline))
        return ResultTable(("", "runs", *columns), rows, tuple(notes))

    @property
    def beside_baseline(self) -> str:
        """Whether a network beats the pooled baselines in NLL, in a sentence; "" where not both are compared."""
        networks = [one for one in self if one.beside_baseline is not None]
        if not networks:
            return ""
        best = min(networks, key=lambda one: one.summaries[NLL].mean)
        found = best.beside_baseline
        assert found is not None
        baseline = min((one for one in self if one.is_baseline), key=lambda one: one.summaries[NLL].mean)
        by = f"NLL {found.mean:+.3f}" + ("" if found.p is None else f", p {found.p:.2f}")
        if found.mean < 0 and found.p is not None and found.p < CLEAR:
            return f"{best.name} is better than the baseline {baseline.name} ({by})."
        return f"No network clearly beats the baseline {baseline.name}; the nearest is {best.name} ({by})."

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each metric of each, and its difference to the first.

        Raises:
            ConfigError: pandas is not installed.
        """
        return import_extra("pandas", "a data frame", "pandas").DataFrame(
            [row for one in self for row in one.numbers().values()]
        )


def compare(folders: Sequence[Path | str], *, metrics: Mapping[str, OwnMetric] | None = None) -> Comparison:
    """Return cross-validations side by side, each with its differences to the first.

    Args:
        folders: written by ``cross_validate``.
        metrics: functions by their names, computed from the predictions of each run beside the metrics of miue, as
            ``evaluate`` does.

    Raises:
        ConfigError: one path in place of several; metrics that ``evaluate`` does not take.
        StorageError: a folder without a finished cross-validation, or without the predictions that metrics need.
        DataError: two folders of one name.
    """
    listed = several(folders)
    if not listed:
        raise wrong_type("folders", "several folders", folders, "pass a list of them")
    check_value("folders", listed, Sequence[Path | str])
    own = metrics or {}
    check_own_metrics(own)
    read = [_read(Path(folder), own) for folder in listed]
    names = [one.name for one in read]
    if (twice := first_repeated(names)) is not None:
        raise repeated(f"cross-validation {twice!r}", "folders of different names", names.count(twice))
    first, compared = read[0], []
    baselines = [one for one in read if one.is_baseline and NLL in _by_fold(one.values)]
    best = min(baselines, key=_mean_nll) if baselines else None
    for one in read:
        same = one.tests == first.tests
        pairs = _differences(one, first) if same and one is not first else {}
        summaries = {(s.level, s.metric): s for s in summarize(one.values, one.shares)}
        beside = None
        if best is not None and not one.is_baseline and one.tests == best.tests:
            beside = _differences(one, best).get(NLL)
        compared.append(Compared(one.name, summaries, pairs, same, one.is_baseline, beside))
    return Comparison(compared)


def paired_difference(
    values: Float64[np.ndarray, "k"], others: Float64[np.ndarray, "k"], test_share: float
) -> Difference:
    """Return the mean difference over folds and the p-value of the corrected resampled t-test.

    Reference: Nadeau & Bengio 2003, "Inference for the Generalization Error", Section 3.

    Args:
        values: one of each fold.
        others: of the same folds.
        test_share: test bags of a fold over its training bags.

    >>> paired_difference(np.array([0.9, 0.9]), np.array([0.8, 0.8]), 0.5)
    Difference(mean=0.1, p=None)
    """
    from scipy.stats import t

    differences = values - others
    mean = float(differences.mean().round(12))
    if len(differences) < 2:
        return Difference(mean, None)
    scale = standard_error(differences, test_share)
    if scale < 1e-12:
        return Difference(mean, 1.0 if abs(mean) < 1e-12 else None)
    return Difference(mean, float(2 * t.sf(abs(mean) / scale, len(differences) - 1)))


def _cell(summary: Summary | None, difference: Difference | None, runs: int) -> str:
    if summary is None:
        return "—"
    scale, digits = (100, 1) if is_share(summary.metric) else (1, 3)
    text = f"{scale * summary.mean:.{digits}f}"
    if summary.std is not None:
        text += f" ± {scale * summary.std:.{digits}f}"
    if summary.runs < runs:
        text += f" of {plural(summary.runs, 'run')}"
    if difference is not None:
        p = "" if difference.p is None else f", p {difference.p:.2f}" if difference.p >= 0.005 else ", p < 0.005"
        text += f" ({scale * difference.mean:+.{digits}f}{p})"
    return text


def _differences(one: _Folder, first: _Folder) -> dict[tuple[str, str], Difference]:
    ours, theirs = _by_fold(one.values), _by_fold(first.values)
    differences = {}
    for key, of_folds in ours.items():
        common = sorted(of_folds.keys() & theirs.get(key, {}).keys())
        if common:
            values, others = (np.array([of[k] for k in common]) for of in (of_folds, theirs[key]))
            share = max(each.shares.of_metric(key[1]) for each in (one, first))
            differences[key] = paired_difference(values, others, share)
    return differences


def _mean_nll(one: _Folder) -> float:
    return float(np.mean(list(_by_fold(one.values)[NLL].values())))


def _by_fold(values: Sequence[Value]) -> dict[tuple[str, str], dict[int, float]]:
    """Return the mean over seeds of each metric in each fold where it is defined."""
    kept: dict[tuple[str, str], dict[int, list[float]]] = {}
    for one in values:
        if one.value is not None:
            kept.setdefault((one.level, one.metric), {}).setdefault(one.fold, []).append(one.value)
    return {key: {k: float(np.mean(v)) for k, v in of_folds.items()} for key, of_folds in kept.items()}


def _read(folder: Path, metrics: Mapping[str, OwnMetric]) -> _Folder:
    path = folder / "runs.csv"
    if not path.exists():
        fix = "run 'miue cross-validate … --out' to its end"
        raise not_a_folder(folder, "a finished cross-validation (with runs.csv)", fix)
    tests, shares = _tests(folder / "splits.csv")
    values = _values(path, len(tests))
    if metrics:
        values = [*(one for one in values if one.metric not in metrics), *_own_values(folder, values, metrics)]
    described = read_json(folder / CROSS_VALIDATION.shown_by[0], what="cross-validation")
    return _Folder(name_of(folder), tests, values, shares, str(described["recipe"]["method"]))


def _own_values(folder: Path, values: Sequence[Value], metrics: Mapping[str, OwnMetric]) -> Iterator[Value]:
    """Yield metrics of a user for each run of which there are values."""
    for fold, seed in dict.fromkeys((one.fold, one.seed) for one in values):
        predictions = read_predictions(folder_of(folder, fold, seed) / "predictions")
        for level, table in predictions.levels().items():
            for name, metric in own_metrics(metrics, table).items():
                yield Value(fold, seed, level, name, metric.value)


def _tests(path: Path) -> tuple[tuple[frozenset[tuple[str, str]], ...], FoldShares]:
    """Return bags and labels that each fold tests, and test bags over training bags."""
    columns = read_text_columns(path)
    folds = [columns[name] for name in fold_columns(path, columns).values()]
    if not {"bag_id", "label"} <= columns.keys() or not all("train" in names for names in folds) or not folds:
        wanted = "columns bag_id, label and fold_0, …, each with bags to train on"
        raise _damaged(path, wanted, f"columns {', '.join(columns)}")
    bags = list(zip(columns["bag_id"], columns["label"], strict=True))
    tests = [frozenset(bag for bag, part in zip(bags, names, strict=True) if part == "test") for names in folds]
    return tuple(tests), FoldShares.of([bool(label) for label in columns["label"]], folds)


def _values(path: Path, folds: int) -> list[Value]:
    """Return what runs.csv holds, after every seed was seen to have every fold, each with the metrics of bags."""
    columns = read_text_columns(path)
    try:
        rows = zip(*(columns[name] for name in ("fold", "seed", "level", "metric", "value")), strict=True)
        values = [
            Value(int(fold), int(seed), level, metric, float(value) if value else None)
            for fold, seed, level, metric, value in rows
        ]
    except (KeyError, ValueError) as error:
        raise _damaged(path, "columns fold, seed, level, metric, value", str(error)) from error
    if not all(one.value is None or math.isfinite(one.value) for one in values):
        raise _damaged(path, "finite values, or none where a metric is undefined", "NaN or infinity")
    metrics_of: dict[tuple[int, int], list[tuple[str, str]]] = {
        (seed, fold): [] for seed in sorted({one.seed for one in values}) for fold in range(folds)
    }
    for one in values:
        metrics_of.setdefault((one.seed, one.fold), []).append((one.level, one.metric))
    in_all = {  # what is out of distribution may differ among folds
        run: {name for level, name in keys if level == "bags" and not name.startswith("ood_")}
        for run, keys in metrics_of.items()
    }
    wanted = max(in_all.values(), key=len)
    for (seed, fold), keys in metrics_of.items():
        if fold >= folds or len(set(keys)) < len(keys) or in_all[seed, fold] != wanted:
            got = f"{', '.join(name for _, name in keys) or 'none'} in fold {fold}, seed {seed}"
            raise _damaged(path, f"{', '.join(sorted(wanted))} of bags once in {folds} folds of every seed", got)
    return values


def _damaged(path: Path, wanted: str, got: str) -> StorageError:
    return StorageError(item=f"{str(path)!r}", wanted=wanted, got=got, fix="run the cross-validation again")
