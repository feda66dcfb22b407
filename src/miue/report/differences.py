"""Paired differences between every two methods: their intervals, a table for each metric, and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from miue.evaluation import NAMED_METRICS, Interval, Metric, paired_differences, percentile_intervals
from miue.report.runs import Run
from miue.report.tables import Cell, Column, Table, metric_column

OF_ERRORS = ("confidence", "errors")
MEANS = ("balanced_accuracy", "ue")  # of metrics that are compared themselves
ROUNDING = 1e-12  # of a difference
SAME = Cell("·", kind="same")


@dataclass(frozen=True)
class Difference:
    """What two methods differ by on the same bags.

    Attributes:
        method: name of the one; its seeds are averaged.
        reference: name of the other.
        values: (method − reference, its interval over paired resamples) of each metric that both have.
    """

    method: str
    reference: str
    values: Mapping[str, tuple[float, Interval]]

    def reverse(self) -> Difference:
        """Return reference − method."""
        values = {}
        for key, (value, one) in self.values.items():
            ends = (one.low, one.high) if one.low is None or one.high is None else (-one.high, -one.low)
            values[key] = (-value, Interval(*ends, one.defined, one.reason))
        return Difference(self.reference, self.method, values)


def find_differences(
    found: Sequence[tuple[Run, Mapping[str, Metric], Mapping[str, np.ndarray]]], owners: int
) -> list[Difference]:
    """Return the difference of every two methods, the later minus the earlier; of several seeds that of the means.

    Args:
        found: runs with their metrics, and these in every resample, the same for all.
        owners: number of patients or bags that were drawn from.
    """
    differences, nothing = [], Metric.undefined("")
    for reference, method in combinations(dict.fromkeys(run.name for run, _, _ in found), 2):
        both = {}
        of = [[(one, by) for run, one, by in found if run.name == name] for name in (method, reference)]
        draws = paired_differences(*([by for _, by in seeds] for seeds in of))
        for key, interval in percentile_intervals(draws, owners=owners).items():
            ours, theirs = (Metric.mean_of([one.get(key, nothing) for one, _ in seeds]).value for seeds in of)
            if ours is not None and theirs is not None:
                both[key] = (ours - theirs, interval)
        differences.append(Difference(method, reference, both))
    return differences


def pair_tables(differences: Sequence[Difference], columns: Sequence[Column]) -> list[Table]:
    """Return a table for each metric of three methods or more, row − column; two have a row of their own.

    Args:
        differences: of every two methods, each pair once.
        columns: those of the table of metrics.
    """
    names = list_methods(differences)
    if len(names) < 3:
        return []
    of_pair = {(one.method, one.reference): one for one in differences}
    of_pair |= {(one.reference, one.method): one.reverse() for one in differences}
    tables = []
    for column in columns:
        table = Table([Column(name, name, "") for name in names], caption=(column.heading, column.meaning))
        for row in names:
            others = [of_pair.get((row, name)) for name in names]
            cells = [table.difference(column, one.values.get(column.key)) if one else SAME for one in others]
            table.rows.append((row, cells, ""))
        tables.append(table)
    return tables


def list_methods(differences: Sequence[Difference]) -> list[str]:
    """Return the methods of all pairs, in the order in which they were passed."""
    return list(dict.fromkeys(name for one in differences for name in (one.reference, one.method)))


def compare_methods(differences: Sequence[Difference]) -> list[str]:
    """Return in which metrics the methods differ, and in which not: of two in a sentence, of more by metric.

    Args:
        differences: of every two methods.
    """
    sentences, alike = [], []
    for key in dict.fromkeys(key for one in differences for key in one.values):
        measured = [one for one in differences if key in one.values and one.values[key][1].was_compared]
        if not measured or not _is_compared(key, measured[0]):
            continue
        apart = [one for one in measured if one.values[key][1].excludes_zero]
        if not apart:
            alike.append(_metric_name(key))
        elif len(differences) == 1:
            value, interval = apart[0].values[key]
            ends = f"{_shown(key, interval.low, '+')} to {_shown(key, interval.high, '+')}"
            sentences.append(f"{_metric_name(key)} {_shown(key, value, '+')}{_unit(key)} ({ends})")
        else:
            sentences.append(_compare_many(key, measured, apart))
    names = ", ".join(alike)
    if len(differences) != 1:
        return [*sentences, *([f"No two methods can be shown to differ in {names}."] if alike else [])]
    if not sentences and not alike:
        return []
    text = f"{differences[0].method} compared with {differences[0].reference}: "
    text += f"{', '.join(sentences)}." if sentences else "no difference can be shown."
    return [text + (f" These bags show no difference in {names}." if sentences and alike else "")]


def compare_with_baselines(differences: Sequence[Difference], baselines: Collection[str]) -> list[str]:
    """Return whether networks beat the pooled baselines in NLL, in a sentence; none where not both are there.

    Args:
        differences: of every two methods.
        baselines: the names of those without a network.
    """
    turned = [one if one.reference in baselines else one.reverse() for one in differences]
    pairs = [one for one in turned if one.reference in baselines and one.method not in baselines]
    beaten: dict[str, list[bool]] = {}
    for one in pairs:
        if "nll" in one.values:
            value, interval = one.values["nll"]
            beaten.setdefault(one.method, []).append(value < 0 and interval.excludes_zero)
    if not beaten:
        return []
    better = [name for name, of_name in beaten.items() if all(of_name)]
    names = _listed(sorted(baselines))
    if better:
        return [
            f"{_listed(better)} {'has' if len(better) == 1 else 'have'} a lower NLL than the baseline {names}."
        ]
    return [f"No network can be shown to have a lower NLL than the baseline {names}."]


def _compare_many(key: str, measured: Sequence[Difference], apart: Sequence[Difference]) -> str:
    """Return which methods are best in a metric, and those from which all of them can be shown to differ."""
    worse, column = Counter[str](), metric_column(key, {})
    for one in measured:
        if _differs(key, one):
            worse[one.reference if column.is_better(one.values[key][0]) else one.method] += 1
    first = min(list_methods(measured), key=lambda name: worse[name])
    same = [one for one in measured if first in (one.method, one.reference) and not _differs(key, one)]
    best = list_methods(same) or [first]
    pairs = Counter(frozenset((one.method, one.reference)) for one in apart)
    others = [one for one in list_methods(apart) if all(pairs[frozenset((one, name))] for name in best)]
    text = (
        f"{_metric_name(key)}: {_listed(best)} {'is best' if len(best) == 1 else 'are best, with the same value'}"
    )
    text += f", and better than {_listed(others)}" if others else ", but not shown to be"
    if more := len(apart) - len(best) * len(others):
        text += f"; {more} {'other ' if others else ''}{'pair differs' if more == 1 else 'pairs differ'}"
    return f"{text[0].upper()}{text[1:]}."


def _differs(key: str, one: Difference) -> bool:
    return abs(one.values[key][0]) > ROUNDING


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_compared(key: str, one: Difference) -> bool:
    """Return whether the verdict compares a metric: of error and OOD detection, by what calibration uses."""
    kind, _, ood_set = key.partition(" ")
    if key == "confidence" and "errors" in one.values:
        return False
    if kind == "ood":
        return f"detection {ood_set}" not in one.values
    return kind == "detection" or key in OF_ERRORS or (key in NAMED_METRICS and key not in MEANS)


def _metric_name(key: str) -> str:
    if key in OF_ERRORS:
        return "error detection"
    return NAMED_METRICS[key].short if key in NAMED_METRICS else f"detection of {key.partition(' ')[2]}"


def _unit(key: str) -> str:
    return " points" if metric_column(key, {}).digits is None else ""


def _shown(key: str, value: float | None, sign: str = "") -> str:
    return metric_column(key, {}).show(value or 0.0, sign)
