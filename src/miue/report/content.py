"""What a page says of runs and bags, apart from instances: the data of its figures and its table of bags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.bags.ood_flags import OodFlags
from miue.predictions.distance_names import describe_scores
from miue.report.cases import Cases
from miue.report.decisions_table import coded, decision_columns
from miue.report.details import Instances
from miue.report.levels import LEVELS, Level, known_patients
from miue.report.runs import Comparison, Run
from miue.report.summaries import packed

CALLED = {
    "bags": "data",
    "weights_sha256": "weights (SHA-256)",
    "settings": "settings of training",
    "without_distances": "without distances",
    "without_error_model": "without error model",
    "criterion": "NLL + error",
    "constant_criterion": "NLL + error of the class shares",
    "also_try": "also try",
}
SHOWN_ELSEWHERE = ("classes", "calibration", "validation", "dataset_shift")


def page_content(comparison: Comparison, levels: Mapping[str, Level], cases: Sequence[Cases]) -> dict[str, Any]:
    """Return everything but instances that the page's figures are drawn from, as JSON values.

    Args:
        comparison: runs on the same bags.
        levels: the evaluation of the shared bags of every run, at each level.
        cases: which bags to look at first by each run.
    """
    tables = [getattr(run.predictions, level) for run in comparison.runs for level in LEVELS]
    names = [name for table in tables if table for name in table.uncertainty_names]
    labels, flags, sets = _known_of_bags(comparison)
    set_names = list(dict.fromkeys(["", *sets]))
    ids, patients = [str(name) for name in comparison.bag_ids], known_patients(comparison.runs)
    return {
        "classes": list(comparison.class_names),
        "measures": describe_scores(names),
        "runs": [{"title": run.title, "name": run.name} for run in comparison.runs],
        "levels": {level: levels[level].summaries for level in LEVELS},
        "bags": {
            "id": ids,
            **({"patient": coded([patients.get(name, "") for name in ids])} if patients else {}),
            "label": packed(labels, "i2"),
            "sets": set_names,
            "set": packed(np.array([set_names.index(name) for name in sets]), "i2"),
            "known": packed(flags.known, "u1"),
            "shared": packed(np.all([rows >= 0 for rows in comparison.rows], axis=0), "u1"),
        },
        "predictions": [
            {**_columns(run, rows), "reasons": coded([of.reasons.get(str(bag), "") for bag in comparison.bag_ids])}
            for run, rows, of in zip(comparison.runs, comparison.rows, cases, strict=True)
        ],
    }


def _known_of_bags(comparison: Comparison) -> tuple[Int64[np.ndarray, "B"], OodFlags, list[str]]:
    """Return of every bag the label (−1 unknown), what is known of its distribution, and its OOD set ("" none)."""
    labels = np.full(len(comparison.bag_ids), -1, np.int64)
    sets, flags = np.full(len(comparison.bag_ids), "", object), OodFlags.unknown(len(comparison.bag_ids))
    for run, rows in zip(comparison.runs, comparison.rows, strict=True):
        table, there = run.predictions.bags, rows >= 0
        known = there & table.labels.known[rows]
        labels[known] = table.labels.values[rows[known]]
        sets[there] = table.ood_sets[rows[there]]
        flags.values[there], flags.known[there] = table.is_ood.values[rows[there]], table.is_ood.known[rows[there]]
    return labels, flags, [str(name) for name in sets]


def _columns(run: Run, rows: Int64[np.ndarray, "B"]) -> dict[str, Any]:
    """Return a run's predictions of all bags; NaN where it lacks one."""
    table, there = run.predictions.bags, rows >= 0
    probabilities = np.where(there[:, None], table.probabilities[rows], np.nan)
    measures = {name: np.where(there, values[rows], np.nan) for name, values in table.uncertainties().items()}
    return {
        "probabilities": packed(probabilities, "f4"),
        "measures": {name: packed(values, "f4") for name, values in measures.items()},
        "decisions": decision_columns(run, rows),
    }


def overview(comparison: Comparison, instances: Instances | None) -> dict[str, str]:
    """Return the counts of bags and instances."""
    labels, flags, sets = _known_of_bags(comparison)
    facts = {"bags": f"{len(labels):,}"}
    if flags.in_distribution.any():
        facts |= _by_class(labels[flags.in_distribution], comparison.class_names, "known in distribution, ")
    if not flags.known.all():
        before = "distribution unknown, " if flags.known.any() else ""
        facts |= _by_class(labels[~flags.known], comparison.class_names, before)
        facts["not known to be in or out of distribution"] = f"{int((~flags.known).sum()):,}"
    for name in sorted(set(sets) - {""}):
        facts[f"known out of distribution, {name}"] = f"{sets.count(name):,}"
    if instances is not None:
        sizes = instances.totals
        facts["instances"] = f"{int(sizes.sum()):,}"
        facts["instances of a bag"] = f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}"
    return facts


def _by_class(labels: Int64[np.ndarray, "b"], names: Sequence[str], before: str) -> dict[str, str]:
    facts = {f"{before}label {name}": f"{int((labels == number).sum()):,}" for number, name in enumerate(names)}
    unknown = int((labels < 0).sum())
    return {**facts, **({f"{before}label unknown": f"{unknown:,}"} if unknown else {})}


def list_facts(run: Run) -> dict[str, str]:
    """Return what is known of a run."""
    bags, instances = run.predictions.bags, run.predictions.instances
    facts, shift = run.predictions.provenance.facts(), run.predictions.provenance.dataset_shift
    return {
        "read from": run.source,
        "distribution": type(bags.distribution).__name__,
        "bags": f"{len(bags):,}",
        "instances": f"{len(instances):,}" if instances else "—, none predicted",
        **{CALLED.get(name, name): _readable(one) for name, one in facts.items() if name not in SHOWN_ELSEWHERE},
        **({} if shift is None else {"bags together": str(shift)}),
    }


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_readable(one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_readable(one)}" for key, one in value.items()) or "none"
    return str(value)
