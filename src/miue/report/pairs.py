"""Differences between every two of several methods: a table for each metric, and sentences for the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from miue.evaluation.class_metrics import METRICS
from miue.report.metrics_table import Cell, Difference, difference_cell, is_better, is_in_percent, metric_heading

MOST_LISTED = 2  # methods of which a sentence has the difference with its interval; of more it has the names
OF_ERRORS = ("confidence", "errors")
MEANS = ("balanced_accuracy", "ue")  # of metrics that are compared themselves
ROUNDING = 1e-12  # of a difference


@dataclass(frozen=True)
class PairTable:
    """The differences between every two methods in one metric: row − column.

    Attributes:
        heading: of the metric.
        meaning: of the metric.
        names: of the methods, for rows and columns.
        rows: (method, a cell for each column), None on the diagonal.
        reasons: footnotes.
    """

    heading: str
    meaning: str
    names: list[str]
    rows: list[tuple[str, list[Cell | None]]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def pair_tables(
    differences: Sequence[Difference], keys: Sequence[str], scores: Mapping[str, str]
) -> list[PairTable]:
    """Return a table for each metric of three methods or more; two have a row in the table of metrics.

    Args:
        differences: of every two methods, each pair once.
        keys: the metrics, in order.
        scores: as ``metrics_table`` takes them.
    """
    names = list_methods(differences)
    if len(names) < 3:
        return []
    of_pair = {(one.method, one.reference): one for one in differences}
    of_pair |= {(one.reference, one.method): one.reverse() for one in differences}
    tables = [PairTable(*metric_heading(key, scores), names) for key in keys]
    for key, table in zip(keys, tables, strict=True):
        for row in names:
            cells = [
                None if name == row else difference_cell(table.reasons, key, of_pair[row, name].values.get(key))
                for name in names
            ]
            table.rows.append((row, cells))
    return tables


def list_methods(differences: Sequence[Difference]) -> list[str]:
    """Return the methods of all pairs, in the order in which they were passed."""
    return list(dict.fromkeys(name for one in differences for name in (one.reference, one.method)))


def compare_methods(differences: Sequence[Difference]) -> list[str]:
    """Return in which metrics the methods differ, and in which not: of two in a sentence, of more by metric.

    Args:
        differences: of every two methods.
    """
    if len(differences) == 1:
        return _compare_two(differences[0])
    sentences, alike = [], []
    for key in dict.fromkeys(key for one in differences for key in one.values):
        measured = [one for one in differences if key in one.values and one.values[key][1].was_compared]
        if not measured or not _is_compared(key, measured[0]):
            continue
        apart = [one for one in measured if one.values[key][1].excludes_zero]
        if apart:
            sentences.append(_compare_many(key, measured, apart))
        else:
            alike.append(_metric_name(key))
    if alike:
        sentences.append(f"No two methods can be shown to differ in {', '.join(alike)}.")
    return sentences


def _compare_two(one: Difference) -> list[str]:
    apart, alike = [], []
    for key, (value, interval) in one.values.items():
        if not _is_compared(key, one):
            continue
        if interval.excludes_zero:
            assert interval.low is not None and interval.high is not None
            ends = f"{_signed(key, interval.low)} to {_signed(key, interval.high)}"
            apart.append(f"{_metric_name(key)} {_signed(key, value)}{_unit(key)} ({ends})")
        elif interval.was_compared:
            alike.append(_metric_name(key))
    if not apart and not alike:
        return []
    text = f"{one.method} compared with {one.reference}: "
    text += f"{', '.join(apart)}. " if apart else "no difference can be shown. "
    text += f"These bags show no difference in {', '.join(alike)}." if apart and alike else ""
    return [text.strip()]


def _compare_many(key: str, measured: Sequence[Difference], apart: Sequence[Difference]) -> str:
    """Return which methods are best in a metric, and those from which their difference can be shown."""
    worse = Counter[str]()
    for one in measured:
        if _differs(key, one):
            worse[one.reference if is_better(key, one.values[key][0]) else one.method] += 1
    best = min(list_methods(measured), key=lambda name: worse[name])
    ties = [one for one in measured if best in (one.method, one.reference) and not _differs(key, one)]
    if ties:
        return _best_together(key, list_methods(ties), apart)
    others = [one if one.method == best else one.reverse() for one in apart if best in (one.method, one.reference)]
    text = f"{_metric_name(key)}: {best} is best"
    if len(others) > MOST_LISTED:
        text += f", and better than {_listed([one.reference for one in others])}"
    elif others:
        text += f", and better than {_listed([_by_how_much(key, one) for one in others])}"
    return _sentence(text, len(apart) - len(others), has_others=bool(others))


def _differs(key: str, one: Difference) -> bool:
    return abs(one.values[key][0]) > ROUNDING


def _best_together(key: str, best: Sequence[str], apart: Sequence[Difference]) -> str:
    """Return that methods are best in a metric with the same value, and those that differ from each of them."""
    beaten = Counter(
        name
        for one in apart
        for name, other in ((one.method, one.reference), (one.reference, one.method))
        if name not in best and other in best
    )
    others = [name for name in list_methods(apart) if beaten[name] == len(best)]
    text = f"{_metric_name(key)}: {_listed(best)} are best, with the same value"
    if others:
        text += f", and {'both' if len(best) == 2 else 'all'} better than {_listed(others)}"
    return _sentence(text, len(apart) - len(best) * len(others), has_others=bool(others))


def _sentence(text: str, more: int, *, has_others: bool) -> str:
    """Return a sentence on the best, with how many more pairs of methods differ than those that it lists."""
    if more:
        pairs = f"{more} {'other ' if has_others else ''}{'pair differs' if more == 1 else 'pairs differ'}"
        text += f"; {pairs}" if has_others else f", but not shown to be; {pairs}"
    return f"{text[0].upper()}{text[1:]}."


def _by_how_much(key: str, one: Difference) -> str:
    value, interval = one.values[key]
    assert interval.low is not None and interval.high is not None
    low, high = sorted((abs(interval.low), abs(interval.high)))
    size, low_text, high_text = (_signed(key, end).lstrip("+") for end in (abs(value), low, high))
    return f"{one.reference} by {size}{_unit(key)} ({low_text} to {high_text})"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_compared(key: str, one: Difference) -> bool:
    """Return whether the verdict compares a metric: of error and OOD detection, by what calibration uses."""
    kind, _, ood_set = key.partition(" ")
    if key == "confidence" and "errors" in one.values:
        return False
    if kind == "ood":
        return f"detection {ood_set}" not in one.values
    return kind == "detection" or key in OF_ERRORS or (key in METRICS and key not in MEANS)


def _metric_name(key: str) -> str:
    if key in OF_ERRORS:
        return "error detection"
    return METRICS[key].short if key in METRICS else f"detection of {key.partition(' ')[2]}"


def _unit(key: str) -> str:
    return " points" if is_in_percent(key) else ""


def _signed(key: str, value: float) -> str:
    return (f"{100 * value:+.1f}" if is_in_percent(key) else f"{value:+.3f}").replace("-", "−")
