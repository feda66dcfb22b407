"""A report of predictions: one HTML file that opens anywhere, without a network."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset
from miue.errors import ConfigError
from miue.evaluation.bootstrap import bootstrap_intervals
from miue.evaluation.evaluate import evaluate_level
from miue.files import atomic_file
from miue.predictions import Predictions, PredictionTable
from miue.report.details import Instances, all_instances, instance_details, telling_first
from miue.report.metrics_table import MetricsTable, metrics_table
from miue.report.page import render_page
from miue.report.pictures import check_store, instance_strips, with_coords_of
from miue.report.runs import Comparison, Run, compare, named_runs
from miue.report.summaries import described_measures, level_summary, packed

DETAIL = ((20_000, 12), (5_000, 8), (1_000, 8), (300, 6), (100, 4), (40, 2), (10, 0), (0, 0))
MEGABYTE = 1_000_000

Track = Callable[[str, int], Callable[[int], None]]


@dataclass(frozen=True)
class ReportFile:
    """What was written.

    Attributes:
        bytes: size of the file.
        notes: what is missing or was left out, as the report says it.
    """

    bytes: int
    notes: tuple[str, ...]


def write_report(
    out: Path,
    found: Sequence[tuple[str, Predictions]],
    *,
    names: Sequence[str] = (),
    store: BagDataset | None = None,
    title: str = "Predictions and how sure they are",
    max_mb: float = 20.0,
    resamples: int = 1000,
    seed: int = 0,
    track: Track = lambda what, total: lambda done: None,
) -> ReportFile:
    """Write one HTML file about ``found`` to ``out``, whole or not at all.

    Args:
        out: file to write; one that is there is replaced.
        found: (where they come from, predictions), one for each trained model.
        names: of the methods, one for each; predictions of one name are its seeds.
        store: the bags that were predicted, for pictures of instances.
        title: heading of the page.
        max_mb: size that the file may have; fewer instances are shown until it fits.
        resamples: bootstrap resamples of bags behind the intervals.
        seed: of the resamples.
        track: told what begins and how many steps it has; returns what is called with the steps done.

    Raises:
        DataError: predictions that cannot be set side by side, or a store of other bags.
        ConfigError: not as many names as predictions, or a report that cannot be made small enough.
        StorageError: the file cannot be written.
    """
    if names and len(names) != len(found):
        raise ConfigError(
            item="--name",
            wanted=f"one for each of {len(found)} predictions",
            got=str(len(names)),
            fix="name all or none",
        )
    comparison = compare(named_runs(found, names), store.class_names if store else ())
    content = _content(comparison)
    tables = _metrics(comparison.shared, resamples, seed, track)
    html, notes = _fitted_page(comparison, content, tables, store, title, max_mb, resamples, track)
    with atomic_file(out) as temporary:
        temporary.write_bytes(html)
    return ReportFile(len(html), notes)


def _metrics(runs: Sequence[Run], resamples: int, seed: int, track: Track) -> dict[str, MetricsTable]:
    of_level: dict[str, list[PredictionTable | None]] = {
        "bags": [run.predictions.bags for run in runs],
        "instances": [run.predictions.instances for run in runs],
    }
    step = track(
        "intervals", resamples * sum(table is not None for tables in of_level.values() for table in tables)
    )
    made = {}
    for level, tables in of_level.items():
        evaluations = [evaluate_level(table) if table else None for table in tables]
        intervals = [
            bootstrap_intervals(table, resamples=resamples, seed=seed, step=step) if table else None
            for table in tables
        ]
        if any(evaluations):
            made[level] = metrics_table(runs, evaluations, intervals)
    return made


def _content(comparison: Comparison) -> dict[str, Any]:
    """Return everything but instances: what the page's figures and its table of bags are drawn from."""
    tables = [t for run in comparison.runs for t in (run.predictions.bags, run.predictions.instances) if t]
    instances = [run.predictions.instances for run in comparison.shared]
    labels, sets = _known_of_bags(comparison)
    set_names = list(dict.fromkeys(sets))
    return {
        "classes": list(comparison.class_names),
        "measures": described_measures(tables),
        "runs": [{"title": run.title, "name": run.name} for run in comparison.runs],
        "levels": {
            "bags": [level_summary(run.predictions.bags) for run in comparison.shared],
            "instances": [table and level_summary(table) for table in instances],
        },
        "bags": {
            "id": [str(name) for name in comparison.bag_ids],
            "label": packed(labels, "i2"),
            "sets": set_names,
            "set": packed(np.array([set_names.index(name) for name in sets]), "i2"),
            "shared": packed(np.all([rows >= 0 for rows in comparison.rows], axis=0), "u1"),
        },
        "predictions": [_columns(run, rows) for run, rows in zip(comparison.runs, comparison.rows, strict=True)],
    }


def _known_of_bags(comparison: Comparison) -> tuple[np.ndarray, list[str]]:
    """Return the label (−1 unknown) and the out-of-distribution set ("" none) of every bag."""
    labels, sets = np.full(len(comparison.bag_ids), -1), np.full(len(comparison.bag_ids), "", object)
    for run, rows in zip(comparison.runs, comparison.rows, strict=True):
        table, there = run.predictions.bags, rows >= 0
        known = there & table.labels.known[rows]
        labels[known] = table.labels.values[rows[known]]
        sets[there] = table.ood_sets[rows[there]]
    return labels, [str(name) for name in sets]


def _columns(run: Run, rows: np.ndarray) -> dict[str, Any]:
    """Return a run's predictions of all bags; NaN where it lacks one."""
    table, there = run.predictions.bags, rows >= 0
    probabilities = np.where(there[:, None], table.probabilities[rows], np.nan)
    measures = {name: np.where(there, values[rows], np.nan) for name, values in table.uncertainties().items()}
    return {
        "probabilities": packed(probabilities, "f4"),
        "measures": {name: packed(values, "f4") for name, values in measures.items()},
    }


def _fitted_page(
    comparison: Comparison,
    content: Mapping[str, Any],
    tables: Mapping[str, MetricsTable],
    store: BagDataset | None,
    title: str,
    max_mb: float,
    resamples: int,
    track: Track,
) -> tuple[bytes, tuple[str, ...]]:
    """Return the page with as many instances and pictures as fit, and its notes."""
    instances, notes, store_rows = all_instances(comparison), list(comparison.notes), None
    if store is not None and instances is not None:
        store_rows = check_store(comparison, instances, store)
        instances = with_coords_of(instances, store, store_rows)
        if len(store.instance_shape) != 3:
            notes.append("The store holds features, not images, so no picture of an instance is shown.")
            store_rows = None
    place = None if instances is None else telling_first(instances)
    abouts = [_about(run) for run in comparison.runs]
    size = 0
    for cap, pictures in DETAIL:
        said, full = list(notes), dict(content)
        if instances is not None and place is not None:
            full["instances"] = instance_details(instances, place, cap, len(comparison.bag_ids))
            said += _left_out(instances, place, cap, max_mb)
        page = {
            "title": title,
            "notes": said,
            "runs": abouts,
            "facts": list(dict.fromkeys(name for about in abouts for name in about["facts"])),
            "overview": _overview(comparison, instances),
            "tables": tables,
            "resamples": resamples,
            "made": _made_by(),
        }
        html = render_page(page, full)
        size = len(html)
        fits = size <= max_mb * MEGABYTE
        if (
            fits
            and store is not None
            and store_rows is not None
            and instances is not None
            and place is not None
            and pictures
        ):
            step = track(f"pictures, {pictures} of each bag", len(store_rows))
            full["pictures"] = instance_strips(instances, place, store, store_rows, per_bag=pictures, step=step)
            html = render_page(page, full)
            fits = len(html) <= max_mb * MEGABYTE
        if fits:
            return html, tuple(said)
        if instances is None:
            break
    raise ConfigError(
        item="the report",
        wanted=f"at most {max_mb:g} MB (--max-mb)",
        got=f"{size / MEGABYTE:.1f} MB for {len(comparison.bag_ids):,} bags and {len(comparison.runs)} predictions"
        " without any instance",
        fix=f"pass --max-mb {int(size / MEGABYTE) + 1}, or report fewer predictions at a time",
    )


def _left_out(instances: Instances, place: np.ndarray, cap: int, max_mb: float) -> list[str]:
    hidden = int((place >= cap).sum())
    if not hidden:
        return []
    bags = len(np.unique(instances.bag[place >= cap]))
    return [
        f"To stay below {max_mb:g} MB, at most {cap:,} instances of each bag are listed, the most uncertain and "
        f"the most probable first: {hidden:,} of {len(place):,} instances, of {bags:,} bags, are not. Metrics, "
        "curves and distributions are of all of them. A higher --max-mb shows more."
    ]


def _about(run: Run) -> dict[str, Any]:
    bags, instances = run.predictions.bags, run.predictions.instances
    known = {str(key): _readable(value) for key, value in run.predictions.about.items() if key != "classes"}
    return {
        "title": run.title,
        "facts": {
            "read from": run.source,
            "distribution": type(bags.distribution).__name__,
            "bags": f"{len(bags):,}",
            "instances": f"{len(instances):,}" if instances else "—, none predicted",
            **known,
        },
        "unsaid": not run.predictions.about,
    }


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_readable(one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_readable(one)}" for key, one in value.items()) or "—, none"
    return str(value)


def _overview(comparison: Comparison, instances: Instances | None) -> dict[str, str]:
    labels, sets = _known_of_bags(comparison)
    foreign = np.array([name != "" for name in sets])
    facts = {"bags": f"{len(labels):,}"}
    for number, name in enumerate(comparison.class_names):
        facts[f"in distribution, {name}"] = f"{int(((labels == number) & ~foreign).sum()):,}"
    unknown = int(((labels < 0) & ~foreign).sum())
    if unknown:
        facts["in distribution, label unknown"] = f"{unknown:,}"
    for name in sorted(set(sets) - {""}):
        facts[f"out of distribution, {name}"] = f"{sets.count(name):,}"
    if instances is not None:
        sizes = np.bincount(instances.bag, minlength=len(labels))
        facts["instances"] = f"{len(instances.bag):,}"
        facts["instances of a bag"] = f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}"
    return facts


def _made_by() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"miue {importlib.metadata.version('miue')}, {now:%Y-%m-%d %H:%M} UTC"
