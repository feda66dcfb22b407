"""What a page says of runs and bags, apart from instances: its cases, its facts, and the data of its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import numpy as np
from jaxtyping import Bool, Int64

from miue.bags import Outcomes
from miue.calibration import worklist
from miue.predictions import UNKNOWN, by_patient, describe_scores
from miue.report.instances import Instances
from miue.report.levels import LEVELS, Level, known_patients
from miue.report.runs import Comparison, Run
from miue.report.summaries import packed

CASES = 8  # shown above the table of bags
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


def find_cases(run: Run) -> dict[str, Any]:
    """Return what the worklist of a run puts first, its limits, and the reason of every bag; no label is read."""
    listed = worklist(run.predictions)
    first = [row for row in listed.rows if row["look"] == "first"]
    return {
        "title": run.title,
        "cases": [_case(row, row[listed.per]) for row in first[:CASES]],
        "count": len(first),
        "bags": len(listed.rows),
        "judged": list(listed.judged.items()),
        "not_judged": list(listed.not_judged.items()),
        "advice": listed.advice,
        "none_accepted": bool(listed.none_accepted),
        "reasons": {row[listed.per]: row["reason"] for row in listed.rows},
    }


def _case(row: Mapping[str, Any], bag: str) -> dict[str, str]:
    """Return a bag to look at, with a link that opens it in the page."""
    name, link = str(row["predicted"]), f"#bag={quote(bag, safe='', errors='replace')}"
    predicted = f"class {name}" if name.isdigit() else name  # beside a probability, a number alone is no name
    said = f"{predicted}, {row['probability']:.2f}" if "probability" in row else name
    shown = {"bag": bag, "link": link, "predicted": said, "reason": row["reason"]}
    patient = row.get("patient", "")
    return {**shown, "patient": "" if patient == bag else patient}


def page_content(
    comparison: Comparison, levels: Mapping[str, Level], cases: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return everything but instances that the page's figures are drawn from, as JSON values.

    Args:
        comparison: runs on the same bags.
        levels: the evaluation of the shared bags of every run, at each level.
        cases: which bags to look at first by each run.
    """
    tables = [getattr(run.predictions, level) for run in comparison.runs for level in LEVELS]
    sets = comparison.ood_sets.tolist()
    ids, set_names = comparison.bag_ids.tolist(), list(dict.fromkeys(["", *sets]))
    patients = known_patients(comparison.runs)
    return {
        "classes": list(comparison.class_names),
        "measures": describe_scores([name for table in tables if table for name in table.uncertainty_names]),
        "runs": [{"title": run.title, "name": run.name} for run in comparison.runs],
        "levels": {level: [one and one.summary for one in levels[level].of_runs] for level in LEVELS},
        "bags": {
            "id": ids,
            **({"patient": coded([patients.get(name, "") for name in ids])} if patients else {}),
            "label": packed(_values_or_unknown(comparison), "i2"),
            "outcome": None if comparison.outcomes is None else coded(_outcome_texts(comparison.outcomes)),
            "sets": set_names,
            "set": packed(np.array([set_names.index(name) for name in sets]), "i2"),
            "known": packed(comparison.is_ood.known, "u1"),
            "shared": packed(np.all([rows >= 0 for rows in comparison.rows], axis=0), "u1"),
        },
        "figures": [_own_figures(run) for run in comparison.shared],
        "predictions": [
            {**_columns(run, rows), "reasons": coded([of["reasons"].get(bag, "") for bag in ids])}
            for run, rows, of in zip(comparison.runs, comparison.rows, cases, strict=True)
        ],
    }


def _values_or_unknown(comparison: Comparison) -> Int64[np.ndarray, "B"]:
    return np.where(comparison.labels.known, comparison.labels.values, -1)


def _outcome_texts(outcomes: Outcomes) -> list[str | None]:
    """Return numbers in words, those that are lower bounds with a plus; None where they are not known."""
    columns = zip(outcomes.values, outcomes.known, outcomes.observed, strict=True)
    return [f"{value:.6g}{'' if observed else '+'}" if known else None for value, known, observed in columns]


def _own_figures(run: Run) -> list[dict[str, Any]]:
    """Return the figures of a run's target, of patients where they have several bags."""
    table = run.predictions.bags
    return [asdict(figure) for figure in (by_patient(table) or table).own_figures()]


def _columns(run: Run, rows: Int64[np.ndarray, "B"]) -> dict[str, Any]:
    """Return a run's predictions of all bags: NaN, or −1 as the code of a text, where it lacks one."""
    table, there = run.predictions.bags, rows >= 0
    probabilities = np.where(there[:, None], table.probabilities[rows], np.nan)
    measures = {name: np.where(there, values[rows], np.nan) for name, values in table.uncertainties().items()}
    texts: dict[str, np.ndarray] = {}
    if table.decisions is not None:
        texts = {"decision": table.decisions.decision, "reason": table.decisions.reason}
        if table.decisions.prediction_sets is not None:
            texts["set"] = np.array(
                [" ".join(map(str, np.flatnonzero(row))) for row in table.decisions.prediction_sets], object
            )
    return {
        "probabilities": packed(probabilities, "f4"),
        "width": probabilities.shape[1],
        "values": {
            name: packed(np.where(there, values[rows], np.nan), "f4")
            for name, values in {**table.predicted_values(), **table.decided_values()}.items()
            if not table.has_classes
        },
        "measures": {name: packed(values, "f4") for name, values in measures.items()},
        "decisions": {name: coded(np.where(there, one[rows], None)) for name, one in texts.items()} or None,
    }


def coded(texts: Iterable[Any]) -> dict[str, Any]:
    """Return texts as the distinct ones and a code for each, −1 for None."""
    texts = [None if one is None else str(one) for one in texts]
    code = {text: number for number, text in enumerate(sorted({one for one in texts if one is not None}))}
    codes = np.array([-1 if one is None else code[one] for one in texts])
    return {"texts": list(code), "codes": packed(codes, "i4")}


def overview(comparison: Comparison, instances: Instances | None) -> dict[str, str]:
    """Return the counts of bags and instances."""
    sets, flags = comparison.ood_sets.tolist(), comparison.is_ood
    facts = {"bags": f"{len(sets):,}"}
    if flags.in_distribution.any():
        facts |= _by_class(comparison, flags.in_distribution, "known in distribution, ")
    if not flags.known.all():
        before = "distribution unknown, " if flags.known.any() else ""
        facts |= _by_class(comparison, ~flags.known, before)
        facts["not known to be in or out of distribution"] = f"{int((~flags.known).sum()):,}"
    for name in sorted(set(sets) - {""}):
        facts[f"known out of distribution, {name}"] = f"{sets.count(name):,}"
    if instances is not None:
        sizes = instances.totals
        facts["instances"] = f"{int(sizes.sum()):,}"
        facts["instances of a bag"] = f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}"
    return facts


def _by_class(comparison: Comparison, chosen: Bool[np.ndarray, "B"], before: str) -> dict[str, str]:
    labels, names = _values_or_unknown(comparison)[chosen], comparison.class_names
    facts = {f"{before}label {name}": f"{int((labels == number).sum()):,}" for number, name in enumerate(names)}
    if comparison.outcomes is not None:
        known = comparison.outcomes[chosen & comparison.outcomes.known]
        facts = {f"{before}labels": f"{len(known):,}" + _range_of(known)}
    unknown = int((labels < 0).sum())
    return {**facts, f"{before}label unknown": f"{unknown:,}"} if unknown else facts


def _range_of(outcomes: Outcomes) -> str:
    """Return the least and the highest number, and how many were observed where some were not."""
    if not len(outcomes):
        return ""
    events = "" if outcomes.observed.all() else f", {int(outcomes.observed.sum()):,} with an event"
    return f", {outcomes.values.min():.4g} to {outcomes.values.max():.4g}{events}"


def provenance(comparison: Comparison) -> dict[str, Any]:
    """Return what is known of the runs, as values of the template."""
    facts = [_list_facts(run) for run in comparison.runs]
    return {
        "runs": [{"title": r.title, "facts": f} for r, f in zip(comparison.runs, facts, strict=True)],
        "facts": list(dict.fromkeys(name for one in facts for name in one)),
        "silent": [run.title for run in comparison.runs if run.predictions.provenance == UNKNOWN],
    }


def _list_facts(run: Run) -> dict[str, str]:
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
