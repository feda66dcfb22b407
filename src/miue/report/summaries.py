"""What the figures of a report show of each run, small enough to be carried in a page."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from jaxtyping import Shaped

from miue.distributions.measures import MEASURES
from miue.evaluation.evaluate import default_measures
from miue.evaluation.evaluation import LevelEvaluation
from miue.evaluation.metrics import ECE_BINS, NO_LABEL, confidence_bins
from miue.predictions.table import PredictionTable

HISTOGRAM_BINS = 40
CURVE_POINTS = 200


def packed(values: Shaped[np.ndarray, "*shape"], kind: str) -> dict[str, str]:
    """Return an array as base64 of little-endian numbers: "f4", "i4", "i2" or "u1"."""
    raw = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"kind": kind, "base64": base64.b64encode(raw).decode("ascii")}


def described_measures(tables: list[PredictionTable]) -> dict[str, dict[str, str]]:
    """Return kind and description of every measure and score of the tables, by name."""
    found: dict[str, dict[str, str]] = {}
    for table in tables:
        for name in table.uncertainties():
            measure = MEASURES.get(name)
            found[name] = {
                "kind": f"{measure.kind} uncertainty" if measure else "score",
                "text": measure.describes if measure else "a score given with the predictions",
            }
    return found


def level_summary(table: PredictionTable, evaluation: LevelEvaluation) -> dict[str, Any]:
    """Return what the figures show of one level: default measures, reliability, distributions, risk–coverage."""
    confidence, ood = default_measures(table)
    return {
        "defaults": {"confidence": confidence, "ood": ood},
        "reliability": _reliability(table),
        "distributions": _distributions(table, evaluation),
        "coverage": _risk_coverage(table),
    }


def _reliability(table: PredictionTable) -> dict[str, Any]:
    """Return mean confidence, accuracy and count of each bin that holds items, as the calibration error has it."""
    inside = table.judged
    if not inside.any():
        return {"reason": NO_LABEL}
    probabilities, labels = table.probabilities[inside], table.labels.values[inside]
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == labels
    bin_of = confidence_bins(confidence)
    count = np.bincount(bin_of, minlength=ECE_BINS)
    used = np.flatnonzero(count)
    mean = np.bincount(bin_of, confidence, minlength=ECE_BINS)[used] / count[used]
    accuracy = np.bincount(bin_of, correct, minlength=ECE_BINS)[used] / count[used]
    centre = (used + 0.5) / ECE_BINS
    return {
        "centre": _short(centre),
        "confidence": _short(mean),
        "accuracy": _short(accuracy),
        "count": count[used].tolist(),
    }


def _distributions(table: PredictionTable, evaluation: LevelEvaluation) -> dict[str, Any]:
    """Return, by measure, the histogram of every set of items, and how well the measure detects the set.

    The sets are the items known to be in distribution, those of which it is unknown, and each set of those known
    to be out of distribution.
    """
    sets = {
        name: (kind, chosen)
        for name, kind, chosen in (
            ("known in distribution", "in", table.is_ood.in_distribution),
            ("not known to be in or out", "unknown", ~table.is_ood.known),
        )
        if chosen.any()
    }
    names = sorted({str(name) for name in table.ood_sets if name})
    found: dict[str, Any] = {}
    for measure, values in table.uncertainties().items():
        low, high = float(values.min()), float(values.max())
        edges = np.linspace(low, high if high > low else low + 1e-9, HISTOGRAM_BINS + 1)
        groups = []
        foreign = [(name, ("out", table.is_ood.out_of_distribution & (table.ood_sets == name))) for name in names]
        for name, (kind, chosen) in [*sets.items(), *foreign]:
            share = np.histogram(values[chosen], edges)[0] / chosen.sum()
            separation = evaluation.by_measure[measure].ood.get(name) if kind == "out" else None
            groups.append(
                {
                    "name": name,
                    "kind": kind,
                    "count": int(chosen.sum()),
                    "share": _short(share),
                    "median": float(np.median(values[chosen])),
                    "auroc": separation and separation.auroc.value,
                    "reason": separation.auroc.reason if separation else "",
                }
            )
        found[measure] = {"edges": _short(edges), "groups": groups}
    return found


def _risk_coverage(table: PredictionTable) -> dict[str, Any]:
    """Return, by measure, (count kept, errors among them, threshold) as more and more items are kept.

    Items of the same uncertainty are kept together.
    """
    inside = table.judged
    if not inside.any():
        return {"reason": NO_LABEL}
    wrong = table.probabilities[inside].argmax(1) != table.labels.values[inside]
    found: dict[str, Any] = {}
    for measure, uncertainty in table.uncertainties().items():
        order = np.argsort(uncertainty[inside], kind="stable")
        values = uncertainty[inside][order]
        ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
        targets = np.linspace(0, len(values) - 1, CURVE_POINTS)
        ends = ends[np.unique(np.searchsorted(ends, targets))]
        errors = wrong[order].cumsum()[ends]
        found[measure] = {
            "kept": (ends + 1).tolist(),
            "errors": errors.tolist(),
            "threshold": _short(values[ends]),
        }
    return found


def _short(values: Any) -> list[float]:
    """Return numbers with six digits, which is what a screen can show."""
    return [float(f"{value:.6g}") for value in np.asarray(values, np.float64).tolist()]
