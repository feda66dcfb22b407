"""What the figures of a report show of each run, small enough to be carried in a page."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from jaxtyping import Shaped

from miue.common.parts import DISTANCES
from miue.distributions.measures import MEASURES
from miue.evaluation.evaluate import Items, default_measures, detection_score
from miue.evaluation.evaluation import LevelEvaluation
from miue.evaluation.metrics import NO_LABEL
from miue.predictions.table import PredictionTable

HISTOGRAM_BINS = 40
ITEMS_OF_A_POINT = 30  # of the reliability diagram, as far as that gives 5 to 10 points
FAR = "how far from the training instances"
DISTANCE_TEXTS = {
    "knn": "how unlike the training data it is in meaning: " + FAR,
    "statistics": "how unlike the training images it looks: sharpness, noise, color",
    "typicality": "how unusual its features are, nearer or farther than those of training instances",
    "combined": "how unlike the training data it looks or is in meaning",
}
CURVE_POINTS = 200


def packed(values: Shaped[np.ndarray, "*shape"], kind: str) -> dict[str, str]:
    """Return an array as base64 of little-endian numbers: "f4", "i4", "i2" or "u1"."""
    raw = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"kind": kind, "base64": base64.b64encode(raw).decode("ascii")}


def described_measures(tables: list[PredictionTable]) -> dict[str, dict[str, str]]:
    """Return kind and description of every measure and score of the tables, by name."""
    found: dict[str, dict[str, str]] = {}
    for table in tables:
        for name in table.uncertainty_names:
            measure = MEASURES.get(name)
            if measure:
                found[name] = {"kind": f"{measure.kind} uncertainty", "text": measure.describes}
            elif is_distance(name):
                found[name] = {"kind": "distance", "text": DISTANCE_TEXTS.get(_kind_of(name), FAR)}
            else:
                found[name] = {"kind": "score", "text": "a score that came with the predictions"}
    return found


def is_distance(name: str) -> bool:
    """Return whether a score of bags or instances is a distance to the training instances.

    >>> is_distance("knn_mean"), is_distance("vacuity")
    (True, False)
    """
    return _kind_of(name) in DISTANCES


def _kind_of(name: str) -> str:
    """Return the distance that a column of instances or bags is of."""
    return name.removesuffix("_mean").removesuffix("_high")


def level_summary(table: PredictionTable, evaluation: LevelEvaluation) -> dict[str, Any]:
    """Return what the figures show of one level: default measures, reliability, distributions, risk–coverage."""
    items = Items.of(table)
    return {
        "defaults": {"confidence": default_measures(table)[0], "ood": detection_score(table)},
        "reliability": _reliability(items),
        "distributions": _distributions(table, items, evaluation),
        "coverage": _risk_coverage(table, items),
    }


def _reliability(items: Items) -> dict[str, Any]:
    """Return mean confidence, accuracy with its 95 % interval, and count of groups of about the same size.

    Groups are of neighboring confidence, 5 to 10 by the number of items; equal confidences are never split.

    Reference: Nguyen & O'Connor 2015 (equal mass); Wilson 1927 (interval).
    """
    from scipy.stats import binomtest

    if not len(items.labels):
        return {"reason": NO_LABEL}
    confidence, correct = items.results.confidence, items.results.correct
    groups = int(np.clip(len(correct) // ITEMS_OF_A_POINT, 5, 10))
    ends = np.unique(np.quantile(confidence, np.arange(1, groups) / groups, method="lower"))
    group_of = np.searchsorted(ends, confidence, side="left")
    count = np.bincount(group_of)
    used = np.flatnonzero(count)
    right, size = np.bincount(group_of, correct)[used].astype(int), count[used]
    wilson = [
        binomtest(k, n).proportion_ci(0.95, "wilson") for k, n in zip(right.tolist(), size.tolist(), strict=True)
    ]
    return {
        "confidence": _short(np.bincount(group_of, confidence)[used] / size),
        "accuracy": _short(right / size),
        "low": _short([one.low for one in wilson]),
        "high": _short([one.high for one in wilson]),
        "count": size.tolist(),
    }


def _distributions(table: PredictionTable, items: Items, evaluation: LevelEvaluation) -> dict[str, Any]:
    """Return, by measure, histogram, median and quartiles of every set of items, and how well it is detected.

    The sets are the items known to be in distribution, those of which it is unknown, and each set of those known
    to be out of distribution.
    """
    sets = {
        name: (kind, chosen)
        for name, kind, chosen in (
            ("known in distribution", "in", items.is_in),
            ("not known to be in or out", "unknown", ~(items.is_in | items.is_out)),
        )
        if chosen.any()
    }
    outside = [(name, ("out", items.is_out & items.of_set(name))) for name in items.ood_sets]
    found: dict[str, Any] = {}
    for measure in table.uncertainty_names:
        values = table.uncertainty(measure)
        low, high = float(values.min()), float(values.max())
        edges = np.linspace(low, high if high > low else low + 1e-9, HISTOGRAM_BINS + 1)
        groups = []
        for name, (kind, chosen) in [*sets.items(), *outside]:
            share = np.histogram(values[chosen], edges)[0] / chosen.sum()
            separation = evaluation.by_measure[measure].ood.get(name) if kind == "out" else None
            groups.append(
                {
                    "name": name,
                    "kind": kind,
                    "count": int(chosen.sum()),
                    "share": _short(share),
                    "quartiles": _short(np.quantile(values[chosen], [0.25, 0.5, 0.75])),
                    "auroc": separation and separation.auroc.value,
                    "reason": separation.auroc.reason if separation else "",
                }
            )
        found[measure] = {"edges": _short(edges), "groups": groups}
    return found


def _risk_coverage(table: PredictionTable, items: Items) -> dict[str, Any]:
    """Return, by measure, (accepted, errors among them, exact 95 % interval of their rate) at growing coverage.

    Items of the same uncertainty are accepted together.

    Reference: Clopper & Pearson 1934.
    """
    from scipy.stats import beta

    if not len(items.labels):
        return {"reason": NO_LABEL}
    wrong = ~items.results.correct
    found: dict[str, Any] = {}
    for measure in table.uncertainty_names:
        uncertainty = table.uncertainty(measure)[items.judged]
        order = np.argsort(uncertainty, kind="stable")
        values = uncertainty[order]
        ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
        targets = np.linspace(0, len(values) - 1, CURVE_POINTS)
        ends = ends[np.unique(np.searchsorted(ends, targets))]
        errors, accepted = wrong[order].cumsum()[ends], ends + 1
        low = np.where(errors > 0, beta.ppf(0.025, np.maximum(errors, 1), accepted - errors + 1), 0)
        high = np.where(errors < accepted, beta.ppf(0.975, errors + 1, np.maximum(accepted - errors, 1)), 1)
        found[measure] = {
            "accepted": accepted.tolist(),
            "errors": errors.tolist(),
            "low": _short(low, 5),
            "high": _short(high, 5),
        }
    return found


def _short(values: Any, digits: int = 6) -> list[float]:
    """Return numbers with as many digits as a screen can show."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).tolist()]
