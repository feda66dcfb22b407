"""A report of predictions: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miue.bags.dataset import BagDataset, check_dataset
from miue.common.errors import ConfigError, wrong_type
from miue.common.files import atomic_file
from miue.common.values import checked, several
from miue.evaluation.decisions import DecisionEvaluation
from miue.predictions.folder import Predictions, check_predictions
from miue.predictions.provenance import UNKNOWN
from miue.report.cases import find_cases
from miue.report.content import list_facts, overview, page_content
from miue.report.decisions_table import decisions_table, evaluate_outcomes
from miue.report.fitting import fitted_page, look_inside
from miue.report.groups_table import groups_table
from miue.report.instances_table import describe_negative_classes, instances_table
from miue.report.levels import EVALUATED, Level, Resampling, Track, evaluate_levels
from miue.report.pairs import compare_methods
from miue.report.runs import Comparison, compare, named_runs
from miue.report.verdict import Verdict, judge_run, shared_sentences

TITLE = "Predictions and how sure they are"
ONE_THOUSAND = Resampling()


@dataclass(frozen=True)
class ReportFile:
    """What was written.

    Attributes:
        bytes: size of the file.
        notes: what is missing or was left out, as the report says it.
        verdicts: what each of the predictions comes to.
    """

    bytes: int
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


def no_track(what: str, total: int) -> Callable[[int], None]:
    """Show no progress."""
    return lambda done: None


@checked(leave=("sources",))
def write_report(
    out: Path | str,
    sources: Sequence[tuple[str, Predictions]],
    *,
    names: Sequence[str] = (),
    store: BagDataset | None = None,
    groups: Mapping[str, Any] | None = None,
    title: str = TITLE,
    max_mb: float = 20.0,
    resampling: Resampling = ONE_THOUSAND,
    track: Track = no_track,
) -> ReportFile:
    """Write one HTML file about predictions, whole or not at all.

    Args:
        out: file to write; one that exists is replaced.
        sources: (where they come from, predictions), one for each trained model.
        names: of the methods, one for each; predictions of one name are its seeds.
        store: the bags that were predicted, for pictures of instances.
        groups: of each bag by its name, such as its hospital, as ``evaluate`` takes them: each is also shown by
            itself.
        title: heading of the page.
        max_mb: size that the file may have; fewer instances are shown until it fits.
        resampling: behind the intervals.
        track: called with the name of a step and its length; returns a function of the progress made.

    Raises:
        DataError: predictions that cannot be compared, or a store of other bags.
        ConfigError: something else than predictions, not as many names as predictions, groups that name none of
            the bags, or a report that cannot be made small enough.
        StorageError: the file cannot be written.
    """
    sources = _check_sources(sources)
    if store is not None:
        check_dataset(store, "store")
    if names and len(names) != len(sources):
        wanted, fix = f"one for each of {len(sources)} predictions", "name all or none"
        raise ConfigError(item="--name (in Python names)", wanted=wanted, got=str(len(names)), fix=fix)
    comparison = compare(named_runs(sources, names), store.class_names if store else ())
    inside = look_inside(comparison, store, max_mb)
    levels = evaluate_levels(comparison.shared, comparison.class_names, resampling, track)
    outcomes = evaluate_outcomes(comparison.shared)
    cases = [find_cases(run) for run in comparison.runs]
    answer = _answer(comparison, levels, outcomes)
    page = {
        "title": title,
        "notes": comparison.notes,
        "resamples": resampling.resamples,
        "created": _created_by(),
        "cases": cases,
        "decisions": decisions_table(comparison.shared, outcomes),
        "groups": groups_table(comparison.shared, groups, comparison.class_names),
        "overview": overview(comparison, inside.instances if inside else None),
        **answer,
        **_provenance(comparison),
    }
    html, notes = fitted_page(page, page_content(comparison, levels, cases), inside, max_mb=max_mb, track=track)
    with atomic_file(Path(out)) as temporary:
        temporary.write_bytes(html)
    return ReportFile(len(html), notes, tuple(answer["verdicts"]))


def _check_sources(sources: Any) -> list[tuple[str, Predictions]]:
    """Return the sources of a report as a list.

    Raises:
        ConfigError: none, or what is no pair of a name and Predictions.
    """
    listed = several(sources)
    fix = "pass [(name, predictions)], one pair for each"
    if listed is None or not listed:
        raise wrong_type("sources", "pairs of a name and Predictions", sources, fix)
    for number, pair in enumerate(listed, 1):
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise wrong_type(f"source {number}", "a pair of a name and Predictions", pair, fix)
        check_predictions(pair[1], f"source {pair[0]!r}")
    return [(name, predictions) for name, predictions in listed]


def _answer(
    comparison: Comparison, levels: dict[str, Level], outcomes: Sequence[DecisionEvaluation | None]
) -> dict[str, Any]:
    bags = levels["bags"]
    evaluated = zip(comparison.shared, bags.evaluations, bags.intervals, outcomes, strict=True)
    judged = [one is not None and bool(one.labeled) for level in levels.values() for one in level.evaluations]
    verdicts = [judge_run(run, one, by or {}, made) for run, one, by, made in evaluated if one is not None]
    return {
        "verdicts": verdicts,
        "shared": shared_sentences(verdicts),
        "detects": any(one is not None and one.ood and one.in_distribution for one in bags.evaluations),
        "differences": compare_methods(bags.differences),
        "pairs": {name: levels[name].pairs for name in EVALUATED if levels[name].pairs},
        "confusion": {name: levels[name].confusion for name in EVALUATED if levels[name].confusion is not None},
        "tables": {name: levels[name].table for name in EVALUATED if levels[name].table is not None},
        "labeled": any(judged),
        "instances_table": instances_table(comparison.shared, levels["instances"].evaluations),
        "negative_classes": describe_negative_classes(comparison.shared, comparison.class_names),
    }


def _provenance(comparison: Comparison) -> dict[str, Any]:
    facts = [list_facts(run) for run in comparison.runs]
    return {
        "runs": [{"title": r.title, "facts": f} for r, f in zip(comparison.runs, facts, strict=True)],
        "facts": list(dict.fromkeys(name for one in facts for name in one)),
        "silent": [run.title for run in comparison.runs if run.predictions.provenance == UNKNOWN],
    }


def _created_by() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"miue {importlib.metadata.version('miue')}, {now:%Y-%m-%d %H:%M} UTC"
