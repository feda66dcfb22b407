"""What the figures of a report show of each run, small enough to be carried in a page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from miue.calibration import grouped_error_intervals
from miue.evaluation import (
    INTERVAL,
    NO_LABEL,
    Items,
    LevelEvaluation,
    Owners,
    Ranking,
    detection_score,
    error_measure,
)
from miue.predictions import PredictionTable

HISTOGRAM_BINS = 40
NARROWEST = 1e-4  # range of a histogram, as a part of its largest value
ITEMS_OF_A_POINT = 30  # of the reliability diagram, as far as that gives 5 to 10 points
CURVE_POINTS = 200
NUMBERS = "labels are numbers, of which none is right or wrong"


def packed(values: Shaped[np.ndarray, "*shape"], kind: str) -> dict[str, str]:
    """Return an array as base64 of little-endian numbers: "f4", "i4", "i2" or "u1"."""
    raw = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"kind": kind, "base64": base64.b64encode(raw).decode("ascii")}


class LevelSummary:
    """What the figures show of one level, gathered from the ranking of one uncertainty after another.

    Args:
        table: predictions of bags or of instances.
        items: what is known of them.
        owners: what the items depend on each other within, such as patients.
    """

    def __init__(self, table: PredictionTable, items: Items, owners: Owners) -> None:
        self._items, self._owners = items, owners
        of_errors = error_measure(table) if table.head.has_classes else "entropy"
        self._defaults = {"confidence": of_errors, "ood": detection_score(table)}
        why = NO_LABEL if table.head.has_classes else NUMBERS
        self._judges = bool(len(items.labels)) and table.head.has_classes
        self._reliability = _reliability(items, owners) if self._judges else {"reason": why}
        self._distributions: dict[str, dict[str, Any]] = {}
        self._coverage: dict[str, Any] = {} if self._judges else {"reason": why}

    def add(self, measure: str, ranking: Ranking, judged: Ranking) -> None:
        """Add the figures of an uncertainty; ``judged`` is the ranking of the judged items."""
        self._distributions[measure] = _distribution(ranking, self._items)
        if self._judges:
            self._coverage[measure] = _risk_coverage(judged, self._items.correct, self._owners)

    def finish(self, evaluation: LevelEvaluation) -> dict[str, Any]:
        """Return all of it, with how well each set is detected."""
        for measure, drawn in self._distributions.items():
            for group in drawn["groups"]:
                known = evaluation.by_measure[measure].ood.get(group["name"]) if group["kind"] == "out" else None
                group["auroc"] = known and known.auroc.value
                group["reason"] = known.auroc.reason if known else ""
        return {
            "defaults": self._defaults,
            "reliability": self._reliability,
            "distributions": self._distributions,
            "coverage": self._coverage,
        }


def _reliability(items: Items, owners: Owners) -> dict[str, Any]:
    """Return mean confidence, accuracy with its 95 % interval, and count of groups of about the same size.

    Groups are of neighboring confidence, 5 to 10 by the number of items; equal confidences are never split.

    Reference: Nguyen & O'Connor 2015 (equal mass).
    """
    confidence, correct = items.results.confidence, items.results.correct
    groups = int(np.clip(len(correct) // ITEMS_OF_A_POINT, 5, 10))
    ends = np.unique(np.quantile(confidence, np.arange(1, groups) / groups, method="lower"))
    group_of = np.searchsorted(ends, confidence, side="left")
    count = np.bincount(group_of)
    used = np.flatnonzero(count)
    right, size = np.bincount(group_of, correct)[used].astype(int), count[used]
    owner_of = owners[items.judged]
    wrong = (~correct).astype(np.float64)
    cases = [(owner_of[group_of == group], wrong[group_of == group]) for group in used]
    low, high = grouped_error_intervals(((own.sizes(), own.total(errors)) for own, errors in cases), INTERVAL)
    return {
        "confidence": _short(np.bincount(group_of, confidence)[used] / size),
        "accuracy": _short(right / size),
        "low": _short(1 - high),
        "high": _short(1 - low),
        "count": size.tolist(),
    }


def _distribution(ranking: Ranking, items: Items) -> dict[str, Any]:
    """Return histogram, median and quartiles of an uncertainty, of every set of items.

    The sets are the items known to be in distribution, those of which it is unknown, and each set of those known
    to be out of distribution.
    """
    sets = [
        ("known in distribution", "in", items.is_in),
        ("not known to be in or out", "unknown", ~(items.is_in | items.is_out)),
    ]
    sets = [one for one in sets if one[2].any()]
    sets += [(name, "out", items.is_out & items.of_set(name)) for name in items.ood_sets]
    low, high = float(ranking.values[0]), float(ranking.values[-1])
    if high - low <= NARROWEST * max(abs(low), abs(high)):  # edges must differ on a screen
        high = low + max(0.1 * abs(low), 0.01)
    edges = np.linspace(low, high, HISTOGRAM_BINS + 1)
    groups = []
    for name, kind, chosen in sets:
        values = ranking.among(chosen).values
        below = np.append(np.searchsorted(values, edges[:-1]), len(values))
        groups.append(
            {
                "name": name,
                "kind": kind,
                "count": len(values),
                "share": _short(np.diff(below) / len(values)),
                "quartiles": _short(np.quantile(values, [0.25, 0.5, 0.75])),
            }
        )
    return {"edges": _short(edges), "groups": groups}


def _risk_coverage(ranking: Ranking, correct: Bool[np.ndarray, "n"], owners: Owners) -> dict[str, Any]:
    """Return (accepted, errors among them, 95 % interval of their rate) at growing coverage.

    Items of the same uncertainty are accepted together.
    """
    ends = ranking.ends()
    ends = ends[np.unique(np.searchsorted(ends, np.linspace(0, len(ranking) - 1, CURVE_POINTS)))]
    errors = (~correct[ranking.order]).cumsum()[ends]
    low, high = grouped_error_intervals(_accepted_of_owners(ranking, ends, correct, owners), INTERVAL)
    return {
        "accepted": (ends + 1).tolist(),
        "errors": errors.tolist(),
        "low": _short(low, 5),
        "high": _short(high, 5),
    }


def _accepted_of_owners(
    ranking: Ranking, ends: Int64[np.ndarray, "points"], correct: Bool[np.ndarray, "n"], owners: Owners
) -> Iterator[tuple[Float64[np.ndarray, "owners"], Float64[np.ndarray, "owners"]]]:
    """Yield how many items of each owner are accepted, and how many of these are wrong, up to each end."""
    sizes, errors = np.zeros(owners.count), np.zeros(owners.count)
    for start, end in zip([0, *(ends[:-1] + 1)], ends + 1, strict=True):
        added = ranking.order[start:end]
        sizes += owners[added].sizes()
        errors += owners[added].total((~correct[added]).astype(np.float64))
        yield sizes, errors


def _short(values: Any, digits: int = 6) -> list[float]:
    """Return numbers with as many digits as a screen can show."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).tolist()]
