"""A report of predictions: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from miue.bags.dataset import BagDataset
from miue.common.errors import ConfigError
from miue.common.files import atomic_file
from miue.evaluation.bootstrap import Step, bootstrap_intervals, patients_by_bag
from miue.evaluation.evaluate import evaluate_level
from miue.evaluation.evaluation import LevelEvaluation
from miue.predictions.folder import Predictions
from miue.predictions.provenance import UNKNOWN
from miue.predictions.table import PredictionTable
from miue.report.content import LEVELS, Levels, facts_of, overview, page_content
from miue.report.decisions_table import decisions_table
from miue.report.fitting import Track, fitted_page, look_inside
from miue.report.metrics_table import MetricsTable, metrics_table
from miue.report.runs import Run, compare, named_runs

TITLE = "Predictions and how sure they are"


@dataclass(frozen=True)
class ReportFile:
    """What was written.

    Attributes:
        bytes: size of the file.
        notes: what is missing or was left out, as the report says it.
    """

    bytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Resampling:
    """How the intervals of a report are made.

    Attributes:
        resamples: how often bags are drawn.
        seed: of the draws.
    """

    resamples: int = 1000
    seed: int = 0


ONE_THOUSAND = Resampling()


def no_track(what: str, total: int) -> Step:
    """Show nothing of what takes long."""
    return lambda done: None


def write_report(
    out: Path | str,
    found: Sequence[tuple[str, Predictions]],
    *,
    names: Sequence[str] = (),
    store: BagDataset | None = None,
    title: str = TITLE,
    max_mb: float = 20.0,
    resampling: Resampling = ONE_THOUSAND,
    track: Track = no_track,
) -> ReportFile:
    """Write one HTML file about ``found`` to ``out``, whole or not at all.

    Args:
        out: file to write; one that is there is replaced.
        found: (where they come from, predictions), one for each trained model.
        names: of the methods, one for each; predictions of one name are its seeds.
        store: the bags that were predicted, for pictures of instances.
        title: heading of the page.
        max_mb: size that the file may have; fewer instances are shown until it fits.
        resampling: behind the intervals.
        track: told what begins and how many steps it has; returns what is called with the steps done.

    Raises:
        DataError: predictions that cannot be set side by side, or a store of other bags.
        ConfigError: not as many names as predictions, or a report that cannot be made small enough.
        StorageError: the file cannot be written.
    """
    if names and len(names) != len(found):
        wanted, fix = f"one for each of {len(found)} predictions", "name all or none"
        raise ConfigError(item="--name", wanted=wanted, got=str(len(names)), fix=fix)
    comparison = compare(named_runs(found, names), store.class_names if store else ())
    inside = look_inside(comparison, store)
    levels = _evaluated(comparison.shared, track)
    facts = [facts_of(run) for run in comparison.runs]
    page = {
        "title": title,
        "notes": comparison.notes,
        "runs": [{"title": r.title, "facts": f} for r, f in zip(comparison.runs, facts, strict=True)],
        "facts": list(dict.fromkeys(name for one in facts for name in one)),
        "silent": [run.title for run in comparison.runs if run.predictions.provenance == UNKNOWN],
        "overview": overview(comparison, inside.instances if inside else None),
        "decisions": decisions_table(comparison.shared),
        "tables": _metrics_tables(comparison.shared, levels, resampling, track),
        "resamples": resampling.resamples,
        "made": _made_by(),
    }
    html, notes = fitted_page(page, page_content(comparison, levels), inside, max_mb=max_mb, track=track)
    with atomic_file(Path(out)) as temporary:
        temporary.write_bytes(html)
    return ReportFile(len(html), notes)


def _tables(runs: Sequence[Run]) -> dict[str, list[PredictionTable | None]]:
    return {level: [getattr(run.predictions, level) for run in runs] for level in LEVELS}


def _evaluated(runs: Sequence[Run], track: Track) -> Levels:
    step = track("evaluation", len(runs) * len(LEVELS))
    found: dict[str, list[LevelEvaluation | None]] = {}
    for level, tables in _tables(runs).items():
        found[level] = []
        for table in tables:
            found[level].append(evaluate_level(table) if table else None)
            step(1)
    return found


def _metrics_tables(runs: Sequence[Run], levels: Levels, how: Resampling, track: Track) -> dict[str, MetricsTable]:
    there = sum(one is not None for evaluations in levels.values() for one in evaluations)
    step = track("intervals", how.resamples * there)
    patients = [patients_by_bag(run.predictions.bags) for run in runs]
    made = {}
    for level, tables in _tables(runs).items():
        intervals = [
            bootstrap_intervals(table, of_bags, resamples=how.resamples, seed=how.seed, step=step)
            if table
            else None
            for table, of_bags in zip(tables, patients, strict=True)
        ]
        if any(levels[level]):
            made[level] = metrics_table(runs, levels[level], intervals)
    return made


def _made_by() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"miue {importlib.metadata.version('miue')}, {now:%Y-%m-%d %H:%M} UTC"
