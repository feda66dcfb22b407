"""Making a page small enough: fewer instances and pictures of each bag until it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.bags import BagDataset
from miue.common.errors import ConfigError
from miue.common.text import plural, render_page
from miue.report.instances import (
    Instances,
    check_store,
    first_instances,
    instance_details,
    instance_strips,
    most_instances,
    with_coords_of,
)
from miue.report.levels import Track
from miue.report.runs import Comparison

TEMPLATE = Path(__file__).parent / "page" / "report.html.j2"
SCRIPTS = ("data.js", "choices.js", "figures.js", "coverage.js", "bags.js", "bag.js", "start.js")
DETAIL = ((20_000, 12), (5_000, 8), (1_000, 8), (300, 6), (100, 4), (40, 2), (10, 0), (0, 0))
"""(instances, pictures) of each bag at most, tried in this order; the first is the limit of any page."""
MEGABYTE = 1_000_000
LEAST_BYTES = 20  # of an instance in a page, in base64: its position, label, flag, probability and uncertainty


@dataclass(frozen=True)
class Inside:
    """What a reader may look into.

    Attributes:
        instances: of all bags, those that may be shown; None where no run has any.
        details: how many instances and pictures of each bag to try.
        images: a store of image bags for pictures of them, and the row of each bag in it.
        absent: what cannot be shown of them.
    """

    instances: Instances | None
    details: Sequence[tuple[int, int]]
    images: tuple[BagDataset, Int64[np.ndarray, "B"]] | None = None
    absent: tuple[str, ...] = ()


def look_inside(comparison: Comparison, store: BagDataset | None, max_mb: float) -> Inside:
    """Return the instances of the runs with pictures and positions of ``store``.

    Only so many of each bag are kept as could fit into ``max_mb``.

    Raises:
        DataError: an instance twice, or a store of other bags.
    """
    counts, room = most_instances(comparison), max_mb * MEGABYTE
    details = [one for one in DETAIL if LEAST_BYTES * int(np.minimum(counts, one[0]).sum()) <= room]
    instances = first_instances(comparison, max([*(max(one) for one in details), 0]))
    if instances is None:
        return Inside(None, DETAIL[-1:])
    inside = Inside(instances, details or DETAIL[-1:])
    if store is None:
        return inside
    rows = check_store(comparison, instances, store)
    inside = replace(inside, instances=with_coords_of(instances, store, rows))
    if len(store.instance_shape) == 3:
        return replace(inside, images=(store, rows))
    return replace(inside, absent=("pictures of instances (the store holds features, not images)",))


def fitted_page(
    values: Mapping[str, Any],
    content: Mapping[str, Any],
    comparison: Comparison,
    inside: Inside,
    *,
    max_mb: float,
    track: Track,
) -> tuple[bytes, tuple[str, ...]]:
    """Return the page with as many instances and pictures as fit into ``max_mb``, and its notes.

    Args:
        values: of the template, but for its notes.
        content: what the figures are drawn from, but for instances and pictures.
        comparison: runs on the same bags, with their notes.
        inside: the instances and pictures.
        max_mb: size that the page may have.
        track: as ``write_report`` takes it.

    Raises:
        ConfigError: it does not fit even without instances.
    """
    limit, size = max_mb * MEGABYTE, 0
    absent = "; ".join([*comparison.absent, *inside.absent])
    absent = f"Not in the data, and so not shown: {absent}." if absent else ""
    values = {**values, "absent": absent}
    for cap, pictures in inside.details:
        notes, data = list(comparison.notes), dict(content)
        if inside.instances is not None:
            data["instances"] = instance_details(inside.instances, cap, comparison.runs)
            notes += _left_out(inside.instances.totals, cap, max_mb)
        html = render_page(TEMPLATE, {**values, "notes": notes}, data, SCRIPTS)
        size = len(html)
        if size <= limit and inside.instances is not None and inside.images is not None:
            store, rows = inside.images
            if pictures < DETAIL[0][1]:
                shown = f"at most {pictures} pictures" if pictures else "no pictures"
                fewer = f"{shown} of each bag are shown instead of {DETAIL[0][1]}"
                notes.append(f"To stay below {max_mb:g} MB, {fewer}. A higher limit shows more.")
            if pictures:
                step = track(f"pictures, {pictures} of each bag", len(rows))
                data["pictures"] = instance_strips(inside.instances, store, rows, per_bag=pictures, step=step)
            html = render_page(TEMPLATE, {**values, "notes": notes}, data, SCRIPTS)
        if len(html) <= limit:
            return html, tuple(filter(None, (absent, *notes)))
    bags, sets = plural(len(comparison.bag_ids), "bag"), plural(len(comparison.runs), "set")
    tenths = ceil(10 * size / MEGABYTE)  # rounded up: a size above the limit never reads as the limit
    raise ConfigError(
        item="the report",
        wanted=f"at most {max_mb:g} MB",
        got=f"{tenths / 10:.1f} MB for {bags} and {sets} of predictions without any instance",
        fix=f"pass max_mb={int(size / MEGABYTE) + 1}, or report fewer predictions at a time",
    )


def _left_out(totals: Int64[np.ndarray, "B"], cap: int, max_mb: float) -> list[str]:
    hidden, bags = int(np.maximum(totals - cap, 0).sum()), int((totals > cap).sum())
    if not hidden:
        return []
    because, remedy = (f"To stay below {max_mb:g} MB, at", " A higher limit shows more.")
    if cap == DETAIL[0][0]:  # the limit of any page
        because, remedy = "At", ""
    return [
        f"{because} most {cap:,} instances of each bag are listed, the most uncertain and the most probable "
        f"first: {hidden:,} of {int(totals.sum()):,} instances, of {plural(bags, 'bag')}, are not. Metrics, "
        f"curves and distributions are of all of them.{remedy}"
    ]
