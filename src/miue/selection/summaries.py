"""Metrics of a cross-validation over its runs: mean, deviation and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.common.errors import import_extra
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.evaluation import METRICS, is_built_in, units

CONFIDENCE = 0.95
SHOWN = 8  # metrics in print
INTERVALS = (
    "The interval is that of the mean over folds, widened because folds share training bags (corrected resampled "
    "t); with one fold it is over seeds alone. There is none where all have the same value."
)
ROUNDING = 1e-12  # of a metric


@dataclass(frozen=True)
class Value:
    """One metric of one run, None where it is undefined."""

    fold: int
    seed: int
    level: str
    metric: str
    value: float | None


@dataclass(frozen=True)
class Summary:
    """One metric over all runs in which it is defined.

    Attributes:
        level: "bags", "instances" or "patients".
        metric: its name.
        runs: in which it is defined.
        mean: over folds, each the mean over its seeds.
        std: standard deviation over all runs, None for one.
        low: lower end of the 95 % interval of the mean, None where it is undefined.
        high: upper end.
    """

    level: str
    metric: str
    runs: int
    mean: float
    std: float | None
    low: float | None
    high: float | None

    def in_words(self) -> str:
        """Return mean ± standard deviation; shares in percent."""
        scale, digits = (100, 2) if is_share(self.metric) else (1, 4)
        spread = "" if self.std is None else f" ± {scale * self.std:.{digits}f}"
        return f"{scale * self.mean:.{digits}f}{spread}"


@dataclass(frozen=True)
class FoldShares:
    """Test bags of a fold over its training bags, the mean over folds.

    Attributes:
        judged: of labeled test bags without those that every fold tests, such as out-of-distribution bags.
        tested: of all test bags.
    """

    judged: float
    tested: float

    @classmethod
    def of(cls, labeled: Sequence[bool], folds: Sequence[Sequence[str]]) -> FoldShares:
        """Return the shares of folds, each with the split of every bag.

        >>> FoldShares.of([True, True, False], [["train", "test", "test"], ["test", "train", "test"]])
        FoldShares(judged=1.0, tested=2.0)
        """
        in_turn = [
            label and "test" in parts and not {*parts} <= {"test", ""}
            for label, *parts in zip(labeled, *folds, strict=True)
        ]
        counted = in_turn if any(in_turn) else labeled  # one fold, or the same test bags in all
        judged = [sum(bag and part == "test" for bag, part in zip(counted, fold, strict=True)) for fold in folds]
        tested, trained = ([fold.count(part) for fold in folds] for part in ("test", "train"))
        return cls(*(float(np.mean(np.divide(count, trained))) for count in (judged, tested)))

    def of_metric(self, metric: str) -> float:
        """Return the share of the bags that a metric is computed on."""
        return self.tested if metric == "ue" or metric.startswith("ood_") else self.judged


class Summaries(PrintsAsTable, tuple[Summary, ...]):
    """Every metric of a cross-validation, in print the first ones."""

    def tables(self) -> tuple[ResultTable]:
        """Return the metrics of bags, at most ``SHOWN``."""
        table = self.as_table()
        more = f"{plural(len(self) - SHOWN, 'more metric')}: to_frame()" if len(self) > SHOWN else ""
        return (replace(table, rows=table.rows[:SHOWN], notes=(units(), *filter(None, [more]))),)

    def as_table(self) -> ResultTable:
        """Return all metrics as texts; shares in percent."""
        rows = []
        for summary in self:
            scale, digits = (100, 2) if is_share(summary.metric) else (1, 4)
            interval = (
                ""
                if summary.low is None or summary.high is None
                else f"{scale * summary.low:.{digits}f} to {scale * summary.high:.{digits}f}"
            )
            rows.append((summary.metric, summary.level, summary.in_words(), interval, str(summary.runs)))
        return ResultTable(
            ("metric", "level", "mean ± std", "95 % interval", "runs"), tuple(rows), (f"{units()} {INTERVALS}",)
        )

    def to_frame(self) -> Any:
        """Return all metrics as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        return import_extra("pandas", "a data frame", "pandas").DataFrame([asdict(summary) for summary in self])


def summarize(values: Sequence[Value], shares: FoldShares) -> Summaries:
    """Return mean, standard deviation and a 95 % interval of every metric.

    The interval is that of the corrected resampled t-test: folds share training bags, so that the variance of
    their mean is (1/k + test/train) s², not s²/k. Seeds are averaged within a fold first. Of a single fold the
    interval is over seeds, and does not extend to other test bags. Values that are all the same have no
    interval: as that of few bags in each fold often is by chance, it would have no width.

    Reference: Nadeau & Bengio 2003, "Inference for the Generalization Error", Section 3.

    Args:
        values: of all runs.
        shares: test bags of a fold over its training bags.
    """
    from scipy.stats import t

    summaries = []
    for level, metric in dict.fromkeys((value.level, value.metric) for value in values):
        defined = [v for v in values if (v.level, v.metric) == (level, metric) and v.value is not None]
        if not defined:
            continue
        numbers = np.array([v.value for v in defined], float)
        folds = sorted({v.fold for v in defined})
        means = np.array([np.mean([v.value for v in defined if v.fold == k]) for k in folds])
        groups, share = (means, shares.of_metric(metric)) if len(folds) > 1 else (numbers, 0.0)
        low = high = None
        if np.ptp(groups) > ROUNDING:
            half = t.ppf(0.5 + CONFIDENCE / 2, len(groups) - 1) * standard_error(groups, share)
            low, high = float(groups.mean() - half), float(groups.mean() + half)
            low = max(0.0, low) if is_built_in(metric) else low
            high = min(1.0, high) if is_share(metric) else high
        std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
        summaries.append(Summary(level, metric, len(numbers), float(groups.mean()), std, low, high))
    return Summaries(summaries)


def standard_error(of_folds: Float64[np.ndarray, "k"], test_share: float) -> float:
    """Return the standard error of a mean over k folds, which share training bags (corrected resampled t-test).

    Reference: Nadeau & Bengio 2003, "Inference for the Generalization Error", Section 3.

    Args:
        of_folds: one value of each fold, at least two.
        test_share: test bags of a fold over its training bags.
    """
    return float(np.sqrt((1 / len(of_folds) + test_share) * of_folds.var(ddof=1)))


def is_share(metric: str) -> bool:
    """Return whether a metric is known to lie between 0 and 1, and so can be shown in percent.

    >>> is_share("ood_kmnist_auroc"), is_share("nll"), is_share("a metric of a user")
    (True, False, False)
    """
    return METRICS[metric].is_share if metric in METRICS else is_built_in(metric)
