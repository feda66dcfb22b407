"""The decisions of a calibration: a table of their outcome, the guarantees, and the decision of each bag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.calibration import Calibration, applied_calibration
from miue.evaluation.decisions import DecisionEvaluation, evaluate_decisions
from miue.evaluation.metrics import Metric
from miue.report.metrics_table import Cell, MetricsTable, footnote
from miue.report.runs import Run
from miue.report.summaries import packed

NOT_OUT = "not known to be out of distribution"
NAMES = {
    "accepted": ("accepted\u00a0%", f"share of bags {NOT_OUT} that are assigned a class"),
    "deferred": ("deferred\u00a0%", f"share of bags {NOT_OUT} that are deferred to a person"),
    "flagged": ("flagged OOD\u00a0%", f"share of bags {NOT_OUT} that are flagged as out of distribution"),
    "false_alarms": (
        "false alarms\u00a0%",
        "share of bags known to be in distribution that are flagged as out of distribution",
    ),
    "selective_risk": ("selective risk\u00a0%", "share of incorrect ones among labeled bags that are accepted"),
    "coverage": (
        "coverage of the sets\u00a0%",
        f"share of labeled bags {NOT_OUT} whose prediction set contains the label",
    ),
    "set_size": ("set size", "mean number of classes in a prediction set"),
    "empty_sets": (
        "empty sets\u00a0%",
        f"share of bags {NOT_OUT} with an empty prediction set: no class is probable enough, a person should look",
    ),
}


@dataclass(frozen=True)
class DecisionsTable:
    """Decisions of all runs that have any.

    Attributes:
        table: one row for each run.
        promises: (run, the guarantees of its calibration), where the predictions say them.
    """

    table: MetricsTable
    promises: list[tuple[str, list[str]]]


def evaluate_outcomes(runs: Sequence[Run]) -> list[DecisionEvaluation | None]:
    """Return the evaluation of the decisions of each run; None for a run without decisions."""
    found: list[DecisionEvaluation | None] = []
    for run in runs:
        table, rules = run.predictions.bags, applied_calibration(run.predictions.provenance)
        found.append(None if table.decisions is None else evaluate_decisions(table, table.decisions, rules))
    return found


def decisions_table(runs: Sequence[Run], outcomes: Sequence[DecisionEvaluation | None]) -> DecisionsTable | None:
    """Return the outcome of the decisions of the runs, or None where no run has any."""
    found = [(run, one) for run, one in zip(runs, outcomes, strict=True) if one is not None]
    if not found:
        return None
    sets = list(dict.fromkeys(name for _, one in found for name in one.found))
    flagged = "share of this set's bags that are flagged as out of distribution; higher is better"
    table = MetricsTable([*NAMES.values(), *((f"{name} detected\u00a0%", flagged) for name in sets)])
    nothing = Metric.undefined("no bag of this out-of-distribution set")
    for run, one in found:
        cells = [decision_cell(table, key, one) for key in NAMES]
        cells += [_share(table, one.found.get(name, nothing)) for name in sets]
        table.rows.append((run.title, cells, ""))
    promises = [(run.title, promised(applied_calibration(run.predictions.provenance))) for run, _ in found]
    return DecisionsTable(table, [(title, texts) for title, texts in promises if texts])


def promised(calibration: Calibration | None) -> list[str]:
    """Return the guarantees of a calibration, a sentence for each of its rules; nothing where it is not known."""
    if calibration is None:
        return []
    texts = []
    deferral, sets, alarms = calibration.deferral, calibration.prediction_sets, calibration.false_alarms
    if deferral is not None:
        refused = "; no threshold passed its tests, so that every bag is deferred" if deferral.refused else ""
        texts.append(
            f"selective risk at most {deferral.max_error:g}, at confidence {deferral.confidence:g}{refused}"
        )
    if sets is not None:
        of = "of each class" if sets.per_class else "over all bags"
        texts.append(f"prediction sets with coverage of at least {1 - sets.error:g}, {of}")
    if alarms is not None:
        sure = "on average" if alarms.confidence is None else f"at confidence {alarms.confidence:g}"
        texts.append(f"false alarms at most {alarms.rate:g}, {sure}")
    if calibration.instances is not None:
        texts.append(f"flags of instances ({calibration.instances.rule}): {calibration.instances.promise}")
    caveat = calibration.made_from.caveat
    return [*texts, *([f"but {caveat}"] if caveat else [])]


def decision_columns(run: Run, rows: Int64[np.ndarray, "B"]) -> dict[str, Any] | None:
    """Return decision, reason and prediction set of every bag as codes of texts, −1 where the run lacks it."""
    decisions = run.predictions.bags.decisions
    if decisions is None:
        return None
    columns = {"decision": decisions.decision, "reason": decisions.reason}
    if decisions.prediction_sets is not None:
        columns["set"] = np.array(
            [" ".join(map(str, np.flatnonzero(row))) for row in decisions.prediction_sets], object
        )
    return {
        name: coded([texts[row] if row >= 0 else None for row in rows.tolist()]) for name, texts in columns.items()
    }


def coded(texts: Iterable[str | None]) -> dict[str, Any]:
    """Return texts as the distinct ones and a code for each, −1 for None."""
    texts = list(texts)
    code = {text: number for number, text in enumerate(sorted({str(one) for one in texts if one is not None}))}
    codes = np.array([-1 if one is None else code[str(one)] for one in texts])
    return {"texts": list(code), "codes": packed(codes, "i4")}


def decision_cell(table: MetricsTable, key: str, one: DecisionEvaluation) -> Cell:
    """Return a metric of decisions, the selective risk with its interval.

    Args:
        table: whose footnote says why there is no value.
        key: of the metric.
        one: what the decisions came to.
    """
    metric = one.metrics[key]
    if key == "set_size" and metric.value is not None:
        return Cell(f"{metric.value:.2f}")
    low, high = (one.metrics[name].value for name in ("selective_risk_low", "selective_risk_high"))
    if key == "selective_risk" and low is not None and high is not None:
        return Cell(_share(table, metric).text, f"{100 * low:.1f} to {100 * high:.1f}")
    return _share(table, metric)


def _share(table: MetricsTable, metric: Metric) -> Cell:
    if metric.value is None:
        return Cell("—", "", footnote(table.reasons, metric.reason))
    return Cell(f"{100 * metric.value:.1f}")
