"""The instances of each bag, for a look into it: the first, as many as fit, and small pictures of some."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped
from PIL import Image

from miue.bags import BagDataset, Coords
from miue.bags.images import to_pixels
from miue.calibration import describe_flags
from miue.common.errors import DataError
from miue.common.text import plural
from miue.evaluation import detection_score
from miue.predictions import PART_ROWS, PredictionTable, color_range
from miue.report.runs import Comparison, Run
from miue.report.summaries import packed

TILE = 40  # pixels at most, of an instance's longer side
GRAYS = 16  # levels kept of a gray picture
OTHER_STORE = "pass the bags that were predicted as store=BAGS"


@dataclass(frozen=True)
class Instances:
    """The first instances of every bag that any of R runs predicts, bag after bag.

    Attributes:
        bag: row of each instance's bag.
        position: position of each instance in its bag.
        place: of each instance in its bag, flagged ones first, then the most uncertain and the most probable.
        label: class of each instance, −1 where no run knows it.
        is_out: whether a run knows that it is out of distribution.
        probability: for each run the probability of the class in question: of class 1 of two, else of the
            bag's predicted class; where labels are numbers, what is predicted first of them; NaN where lacking.
        uncertainty: for each run its score of OOD instances; NaN where lacking.
        flagged: for each run whether an instance is flagged.
        flags: for each run how many instances of each bag are flagged.
        slide: of each instance, by its place among ``slides``; −1 where bags do not hold several.
        coords: position of each instance in its slide.
        totals: of each bag, how many instances there are in all.
        highest: of each bag, the highest position of an instance; −1 without any.
        slides: names of all slides that bags hold.
    """

    bag: Int64[np.ndarray, "N"]
    position: Int64[np.ndarray, "N"]
    place: Int64[np.ndarray, "N"]
    label: Int64[np.ndarray, "N"]
    is_out: Bool[np.ndarray, "N"]
    probability: Float64[np.ndarray, "R N"]
    uncertainty: Float64[np.ndarray, "R N"]
    flagged: Bool[np.ndarray, "R N"]
    flags: Int64[np.ndarray, "R B"]
    slide: Int64[np.ndarray, "N"]
    coords: Coords
    totals: Int64[np.ndarray, "B"]
    highest: Int64[np.ndarray, "B"]
    slides: tuple[str, ...] = ()

    def first(self, keep: int) -> Instances:
        """Return at most ``keep`` instances of each bag."""
        kept = np.flatnonzero(self.place < keep)
        columns = {name: getattr(self, name)[..., kept] for name in COLUMNS}
        return replace(self, **columns, coords=self.coords[kept])

    @classmethod
    def concatenate(cls, parts: Sequence[Instances]) -> Instances:
        """Return the instances of all parts, which are of different bags."""
        columns = {name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in COLUMNS}
        return cls(
            **columns,
            flags=np.sum([part.flags for part in parts], axis=0),
            coords=Coords.concatenate([part.coords for part in parts]),
            totals=np.sum([part.totals for part in parts], axis=0),
            highest=np.max([part.highest for part in parts], axis=0),
            slides=parts[0].slides,
        )


COLUMNS = ("bag", "position", "place", "label", "is_out", "probability", "uncertainty", "flagged", "slide")


def most_instances(comparison: Comparison) -> Int64[np.ndarray, "B"]:
    """Return of each bag the largest number of instances that a run has of it; nothing is read."""
    counts = np.zeros(len(comparison.bag_ids), np.int64)
    for run in comparison.runs:
        sizes = run.predictions.instances.bag_sizes() if run.predictions.instances else {}
        counts = np.maximum(counts, [sizes.get(str(name), 0) for name in comparison.bag_ids])
    return counts


def first_instances(comparison: Comparison, keep: int) -> Instances | None:
    """Return at most ``keep`` instances of each bag of all runs on common rows, or None where no run has any.

    Some bags after another are read.

    Raises:
        DataError: an instance twice.
    """
    counts = most_instances(comparison)
    if not counts.any():
        return None
    groups = np.split(np.arange(len(counts)), np.flatnonzero(np.diff(counts.cumsum() // PART_ROWS)) + 1)
    tables = [run.predictions.instances for run in comparison.runs if run.predictions.instances is not None]
    held = (of_bag for table in tables for of_bag in table.slides_of_bags().values())
    slides = tuple(dict.fromkeys(slide for of_bag in held for slide in of_bag))
    parts = [_instances_of(comparison, bags, slides) for bags in groups if counts[bags].any()]
    return Instances.concatenate([part.first(keep) for part in parts])


def _instances_of(comparison: Comparison, bags: Int64[np.ndarray, "b"], slides: tuple[str, ...]) -> Instances:
    """Return all instances of some bags, of which ``slides`` are all slides."""
    bag_row = {str(comparison.bag_ids[row]): int(row) for row in bags}
    tables = [_in_memory(run.predictions.instances, bag_row) for run in comparison.runs]
    keys = [_keys(table, bag_row, run.source) for run, table in zip(comparison.runs, tables, strict=True)]
    union = np.unique(np.concatenate(keys))
    bag, position = union >> 32, union & 0xFFFFFFFF
    shape = (len(tables), len(union))
    probability, uncertainty, flagged = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, bool)
    label, is_out = np.full(len(union), -1, np.int64), np.zeros(len(union), bool)
    coords, slide = Coords.unknown(len(union)), np.full(len(union), -1, np.int64)
    number = {name: place for place, name in enumerate(slides)}
    for run, table in enumerate(tables):
        if table is None:
            continue
        at = np.searchsorted(union, keys[run])
        if table.has_classes:
            predicted = comparison.runs[run].predictions.bags.class_in_question[comparison.rows[run][bag[at]]]
            probability[run, at] = table.probabilities[np.arange(len(at)), predicted]
        else:
            probability[run, at] = next(iter(table.predicted_values().values()))
        uncertainty[run, at] = table.uncertainty(detection_score(table))
        if table.flagged is not None:
            flagged[run, at] = table.flagged
        known = table.labels.known & (label[at] < 0)
        label[at[known]] = table.labels.values[known]
        is_out[at] |= table.is_ood.out_of_distribution
        if table.slides is not None:
            of_names = [number.get(name, -1) for name in (*table.slides.names, "")]
            slide[at] = np.array(of_names)[table.slides.numbers]
        if table.coords is not None:
            theirs = Coords.unknown(len(union))
            theirs.values[at], theirs.known[at] = table.coords.values, table.coords.known
            coords = coords.completed_by(theirs)
    count, highest = len(comparison.bag_ids), np.full(len(comparison.bag_ids), -1, np.int64)
    np.maximum.at(highest, bag, position)
    return Instances(
        bag,
        position,
        _order_to_show(bag, uncertainty, probability, np.any(flagged, axis=0)),
        label,
        is_out,
        probability,
        uncertainty,
        flagged,
        np.stack([np.bincount(bag[of_run], minlength=count) for of_run in flagged]),
        slide,
        coords,
        np.bincount(bag, minlength=count),
        highest,
        slides,
    )


def _in_memory(table: PredictionTable | None, bags: dict[str, int]) -> PredictionTable | None:
    """Return the instances of some bags, whose columns are all read once; None without any."""
    chosen = table.of_bags(bags) if table else None
    return PredictionTable.concatenate(list(chosen.parts())) if chosen else None


def _keys(table: PredictionTable | None, bag_row: dict[str, int], source: str) -> Int64[np.ndarray, "n"]:
    """Return the bag of each instance and its position in it as one number."""
    if table is None:
        return np.zeros(0, np.int64)
    rows = table.rows_of_bags()
    bag = rows.places(bag_row)
    position = table.instance if table.instance is not None else _rank_in_bag(bag, np.zeros(len(bag)))
    keys: np.ndarray = (bag << 32) | position
    distinct, counts = np.unique(keys, return_counts=True)
    if counts.max() > 1 or position.min() < 0:
        at = int(np.flatnonzero(keys == distinct[counts.argmax()])[-1])
        raise DataError(
            item=f"instance {position[at]} of bag {str(table.bag_ids[at])!r} in predictions {source!r}",
            wanted="each instance of a bag once, numbered from 0",
            got=f"{counts.max()} rows" if counts.max() > 1 else "a negative number",
            fix="correct the column 'instance', or drop it: then rows count in their order",
        )
    return keys


def _order_to_show(
    bag: Int64[np.ndarray, "N"],
    uncertainty: Float64[np.ndarray, "R N"],
    probability: Float64[np.ndarray, "R N"],
    any_flag: Bool[np.ndarray, "N"],
) -> Int64[np.ndarray, "N"]:
    """Return the place of each instance in its bag when the most uncertain and the most probable come first.

    The first run that has the instance decides; the two orders take turns. What a run flags comes before the rest.
    """
    ranks = []
    for values in (uncertainty, probability):
        first = np.isnan(values).argmin(0)
        ranks.append(_rank_in_bag(bag, -values[first, np.arange(len(bag))]))
    order = np.minimum(2 * ranks[0], 2 * ranks[1] + 1).astype(np.float64)
    return _rank_in_bag(bag, np.where(any_flag, order - 2 * len(bag) - 1, order))


def _rank_in_bag(bag: Int64[np.ndarray, "N"], values: Float64[np.ndarray, "N"]) -> Int64[np.ndarray, "N"]:
    """Return the place of each value among those of its bag, equal ones in their order."""
    order = np.lexsort((values, bag))
    ordered = bag[order]
    rank = np.empty(len(bag), np.int64)
    rank[order] = np.arange(len(bag)) - np.searchsorted(ordered, ordered)
    return rank


def instance_details(instances: Instances, cap: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Return at most ``cap`` instances of each bag, packed, with how many there are in all.

    With them is of each run the score of out-of-distribution instances, both ends of its color scale, and by which
    rule instances were flagged with what promise, "" where they were not.
    """
    shown = instances.first(cap)
    coords, located = shown.coords, instances.coords.known.any()
    tables = [run.predictions.instances or None for run in runs]
    return {
        "cap": cap,
        "total": packed(shown.totals, "i4"),
        "starts": packed(np.searchsorted(shown.bag, np.arange(len(shown.totals) + 1)), "i4"),
        "position": packed(shown.position, "i4"),
        "label": packed(shown.label, "i2"),
        "isOod": packed(shown.is_out, "u1"),
        "slides": list(instances.slides),
        "slide": packed(shown.slide, "i4") if instances.slides else None,
        "located": packed(coords.known, "u1") if located else None,
        "x": packed(coords.values[:, 0], "i4") if located else None,
        "y": packed(coords.values[:, 1], "i4") if located else None,
        "runs": [table and _run_details(shown, number, table) for number, table in enumerate(tables)],
        "span": _span(shown, tables),
        "measures": [table and detection_score(table) for table in tables],
        "ranges": [table and color_range(table, detection_score(table)) for table in tables],
        "promises": [describe_flags(run.predictions.provenance) for run in runs],
    }


def _span(shown: Instances, tables: Sequence[PredictionTable | None]) -> list[float]:
    """Return both ends of the scale of ``probability``, which are those of all shown numbers where it is one."""
    if all(table is None or table.head.has_classes for table in tables):
        return [0.0, 1.0]
    return [float(np.nanmin(shown.probability)), float(np.nanmax(shown.probability))]


def _run_details(shown: Instances, run: int, table: PredictionTable) -> dict[str, Any]:
    has_flags = table.head.flagged is not None
    return {
        "probability": packed(shown.probability[run], "f4"),
        "uncertainty": packed(shown.uncertainty[run], "f4"),
        "flagged": packed(shown.flagged[run], "u1") if has_flags else None,
        "flags": packed(shown.flags[run], "i4") if has_flags else None,
    }


def check_store(comparison: Comparison, instances: Instances, store: BagDataset) -> Int64[np.ndarray, "B"]:
    """Return the row of each bag in the store.

    Raises:
        DataError: a predicted bag is not in the store, or has fewer instances there.
    """
    row_of = {name: row for row, name in enumerate(store.ids)}
    missing = [name for name in comparison.bag_ids if name not in row_of]
    if missing:
        wanted, got = "every predicted bag in the store", f"{plural(len(missing), 'bag')} that it lacks"
        raise DataError(item=f"bag {missing[0]!r}", wanted=wanted, got=got, fix=OTHER_STORE)
    rows = np.array([row_of[name] for name in comparison.bag_ids], np.int64)
    beyond = np.flatnonzero(instances.highest >= store.sizes[rows])
    if len(beyond):
        item = f"instance {instances.highest[beyond[0]]} of bag {comparison.bag_ids[beyond[0]]!r}"
        wanted = f"one of the {store.sizes[rows[beyond[0]]]} instances that the store has of it"
        raise DataError(item=item, wanted=wanted, got="none there", fix=OTHER_STORE)
    return rows


def with_coords_of(instances: Instances, store: BagDataset, rows: Int64[np.ndarray, "B"]) -> Instances:
    """Return the instances with the store's positions in the slide, where they have none of their own."""
    if store.coords is None:
        return instances
    of_store = store.coords[store.starts[rows[instances.bag]] + instances.position]
    return replace(instances, coords=instances.coords.completed_by(of_store))


def instance_strips(
    instances: Instances,
    store: BagDataset,
    rows: Int64[np.ndarray, "B"],
    *,
    per_bag: int,
    step: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Return a strip of pictures for each bag: its most uncertain and most probable instances, in their order.

    Args:
        instances: the first of each bag.
        store: image bags.
        rows: of each bag in the store.
        per_bag: pictures of one bag.
        step: called with the number of bags done.
    """
    chosen = np.flatnonzero(instances.place < per_bag)
    ends = np.searchsorted(instances.bag[chosen], np.arange(len(rows) + 1))
    height, width = store.instance_shape[:2]
    scale = min(1.0, TILE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    positions, pictures = [], []
    for bag, row in enumerate(rows.tolist()):
        of_bag = instances.position[chosen[ends[bag] : ends[bag + 1]]]
        images = np.asarray(store.instances[store.starts[row] + of_bag])
        positions.append(of_bag.tolist())
        pictures.append(_strip(images, size) if len(images) else "")
        step(1)
    return {"width": size[0], "height": size[1], "perBag": per_bag, "positions": positions, "pictures": pictures}


def _strip(images: Shaped[np.ndarray, "n H W channels"], size: tuple[int, int]) -> str:
    """Return the images side by side as a PNG data URI."""
    images = to_pixels(images)
    is_gray = images.shape[-1] == 1
    strip = Image.new("L" if is_gray else "RGB", (size[0] * len(images), size[1]))
    for place, image in enumerate(images):
        picture = Image.fromarray(image[..., 0] if is_gray else np.ascontiguousarray(image))
        tile = picture if picture.size == size else picture.resize(size, Image.Resampling.BILINEAR)
        strip.paste(tile, (place * size[0], 0))
    stream = io.BytesIO()
    strip.quantize(GRAYS if is_gray else 64).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
