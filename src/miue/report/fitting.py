"""Making a page small enough: fewer instances and pictures of each bag until it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.bags.dataset import BagDataset
from miue.common.errors import ConfigError
from miue.common.text import plural
from miue.report.details import Instances, describe_scores, first_instances, instance_details, most_instances
from miue.report.levels import Track
from miue.report.page import render_page
from miue.report.pictures import check_store, instance_strips, with_coords_of
from miue.report.runs import Comparison

DETAIL = ((20_000, 12), (5_000, 8), (1_000, 8), (300, 6), (100, 4), (40, 2), (10, 0), (0, 0))
"""(instances, pictures) of each bag at most, tried in this order; the first is the limit of any page."""
MEGABYTE = 1_000_000
LEAST_BYTES = 20  # of an instance in a page, in base64: its position, label, flag, probability and uncertainty


@dataclass(frozen=True)
class Images:
    """A store of image bags and the row of each bag in it."""

    store: BagDataset
    rows: Int64[np.ndarray, "B"]


@dataclass(frozen=True)
class Inside:
    """What a reader may look into.

    Attributes:
        instances: of all bags, those that may be shown.
        scores: of each run, what the instances are colored by.
        details: how many instances and pictures of each bag to try.
        images: where their pictures come from.
        notes: what cannot be shown.
    """

    instances: Instances
    scores: Mapping[str, Any]
    details: Sequence[tuple[int, int]]
    images: Images | None = None
    notes: tuple[str, ...] = ()


def look_inside(comparison: Comparison, store: BagDataset | None, max_mb: float) -> Inside | None:
    """Return the instances of the runs with pictures and positions of ``store``, or None where no run has any.

    Only so many of each bag are kept as could fit into ``max_mb``.

    Raises:
        DataError: an instance twice, or a store of other bags.
    """
    counts = most_instances(comparison)
    details = [
        (cap, pictures)
        for cap, pictures in DETAIL
        if LEAST_BYTES * int(np.minimum(counts, cap).sum()) <= max_mb * MEGABYTE
    ]
    instances = first_instances(comparison, max([*(max(detail) for detail in details), 0]))
    if instances is None:
        return None
    inside = Inside(instances, describe_scores(comparison), details or DETAIL[-1:])
    if store is None:
        return inside
    rows = check_store(comparison, instances, store)
    inside = replace(inside, instances=with_coords_of(instances, store, rows))
    if len(store.instance_shape) == 3:
        return replace(inside, images=Images(store, rows))
    return replace(inside, notes=("The store holds features, not images, so no picture of an instance is shown.",))


def fitted_page(
    page: Mapping[str, Any], content: Mapping[str, Any], inside: Inside | None, *, max_mb: float, track: Track
) -> tuple[bytes, tuple[str, ...]]:
    """Return the page with as many instances and pictures as fit into ``max_mb``, and its notes.

    Raises:
        ConfigError: it does not fit even without instances.
    """
    size = 0
    for cap, pictures in inside.details if inside is not None else DETAIL[-1:]:
        notes, full = list(page["notes"]), dict(content)
        if inside is not None:
            full["instances"] = {**instance_details(inside.instances, cap), **inside.scores}
            notes += [*inside.notes, *_left_out(inside, cap, max_mb)]
        html = render_page({**page, "notes": notes}, full)
        size = len(html)
        if size <= max_mb * MEGABYTE and inside is not None and inside.images is not None:
            notes += _fewer_pictures(pictures, max_mb)
            if pictures:
                full["pictures"] = _pictures(inside, inside.images, pictures, track)
            html = render_page({**page, "notes": notes}, full)
        if len(html) <= max_mb * MEGABYTE:
            return html, tuple(notes)
    bags, sets = len(content["bags"]["id"]), plural(len(content["runs"]), "set")
    tenths = ceil(10 * size / MEGABYTE)  # rounded up: a size above the limit never reads as the limit
    raise ConfigError(
        item="the report",
        wanted=f"at most {max_mb:g} MB (--max-mb, in Python max_mb)",
        got=f"{tenths / 10:.1f} MB for {plural(bags, 'bag')} and {sets} of predictions without any instance",
        fix=f"pass --max-mb {int(size / MEGABYTE) + 1}, or report fewer predictions at a time",
    )


def _pictures(inside: Inside, images: Images, per_bag: int, track: Track) -> dict[str, Any]:
    step = track(f"pictures, {per_bag} of each bag", len(images.rows))
    return instance_strips(inside.instances, images.store, images.rows, per_bag=per_bag, step=step)


def _left_out(inside: Inside, cap: int, max_mb: float) -> list[str]:
    totals = inside.instances.totals
    hidden, bags = int(np.maximum(totals - cap, 0).sum()), int((totals > cap).sum())
    if not hidden:
        return []
    because, remedy = (f"To stay below {max_mb:g} MB, at", " A higher --max-mb shows more.")
    if cap == DETAIL[0][0]:  # the limit of any page
        because, remedy = "At", ""
    return [
        f"{because} most {cap:,} instances of each bag are listed, the most uncertain and the most probable "
        f"first: {hidden:,} of {int(totals.sum()):,} instances, of {plural(bags, 'bag')}, are not. Metrics, "
        f"curves and distributions are of all of them.{remedy}"
    ]


def _fewer_pictures(pictures: int, max_mb: float) -> list[str]:
    if pictures == DETAIL[0][1]:
        return []
    shown = f"at most {pictures} pictures" if pictures else "no pictures"
    return [
        f"To stay below {max_mb:g} MB, {shown} of each bag are shown instead of {DETAIL[0][1]}. "
        "A higher --max-mb shows more."
    ]
