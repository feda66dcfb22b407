"""A report of predictions: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from miue.bags import BagDataset, check_dataset
from miue.common.errors import ConfigError, wrong_type
from miue.common.files import atomic_file
from miue.common.parts import BASELINES
from miue.common.values import check_value, checked, several
from miue.evaluation import evaluate_decisions
from miue.predictions import Predictions
from miue.report.content import find_cases, overview, page_content, provenance
from miue.report.differences import compare_methods, compare_with_baselines
from miue.report.fitting import fitted_page, look_inside
from miue.report.levels import Resampling, Track, evaluate_levels
from miue.report.runs import compare, named_runs
from miue.report.tables import decisions_table, groups_table, instances_table
from miue.report.verdict import Verdict, describe_negative_classes, guarantees, judge_run, shared_sentences

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
    view: str | None = None,
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
        view: address of a server of ``miue view``, to which each bag links.
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
        raise ConfigError(item="names", wanted=wanted, got=str(len(names)), fix=fix)
    if view is not None and re.fullmatch(r"https?://[^\s#]+", view) is None:
        wanted, fix = "an address that begins with http://", "copy the one that the server prints"
        raise ConfigError(item="view", wanted=wanted, got=repr(view), fix=fix)
    comparison = compare(named_runs(sources, names), store.class_names if store else ())
    shared, classes = comparison.shared, comparison.class_names
    inside = look_inside(comparison, store, max_mb)
    levels = evaluate_levels(shared, classes, resampling, track)
    cases = [find_cases(run) for run in comparison.runs]
    made = [(run.predictions.bags, run.predictions.bags.decisions, run.rules) for run in shared]
    outcomes = [evaluate_decisions(table, by, rules) if by else None for table, by, rules in made]
    bags = levels["bags"]
    judged = zip(shared, bags.of_runs, outcomes, strict=True)
    verdicts = [judge_run(run, level, outcome) for run, level, outcome in judged if level is not None]
    evaluations = [one for level in levels.values() for one in level.evaluations if one is not None]
    content = page_content(comparison, levels, cases) | {"view": view}
    values = {
        "title": title,
        "created": f"miue {version('miue')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "resamples": resampling.resamples,
        "cases": cases,
        "verdicts": verdicts,
        "shared": shared_sentences(verdicts),
        "differences": [
            *compare_with_baselines(
                bags.differences, {run.name for run in shared if run.predictions.provenance.method in BASELINES}
            ),
            *compare_methods(bags.differences),
        ],
        "levels": {name: level for name, level in levels.items() if level.table is not None},
        "measured": any(one.labeled for one in evaluations),
        "labeled": any(one.labeled and not one.is_numeric for one in evaluations),
        "has_classes": comparison.outcomes is None,
        "figures": [figure["title"] for figure in max(content["figures"], key=len)],
        "detects": any(one is not None and one.ood and one.in_distribution for one in bags.evaluations),
        "decisions": decisions_table(shared, outcomes),
        "guarantees": [
            (run.title, guarantees(rules))
            for run, (_, by, rules) in zip(shared, made, strict=True)
            if by and rules
        ],
        "groups": groups_table(shared, groups, classes),
        "instances_table": instances_table(shared, levels["instances"].evaluations),
        "negative_classes": describe_negative_classes(shared, classes),
        "overview": overview(comparison, inside.instances),
        **provenance(comparison),
    }
    html, notes = fitted_page(values, content, comparison, inside, max_mb=max_mb, track=track)
    with atomic_file(Path(out)) as temporary:
        temporary.write_bytes(html)
    return ReportFile(len(html), notes, tuple(verdicts))


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
        check_value(f"source {pair[0]!r}", pair[1], Predictions)
    return [(name, predictions) for name, predictions in listed]
