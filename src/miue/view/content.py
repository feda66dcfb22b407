"""What the page shows: the worklist, the prediction of a bag, and the values of the patches of its slides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from miue.bags import BagDataset, Coords
from miue.bags.classes import numbered_classes
from miue.calibration import describe_flags, worklist
from miue.common.errors import MiueError
from miue.io import CANNOT_TELL
from miue.pathology.export.heatmap import Layer, probability_layer, uncertainty_layers
from miue.pathology.export.patches import (
    Patches,
    PatchSizes,
    class_names,
    patch_sizes,
    patches_by_slide,
    refuse_patches_beside,
)
from miue.pathology.slides import SlideFiles
from miue.predictions import Predictions, PredictionTable, describe_scores, uncertainty_column
from miue.settings import Limits
from miue.targets import IntervalTarget, Target
from miue.view.mosaic import Mosaic, store_rows
from miue.view.slides import Kept, SlideTiles, Source
from miue.view.verdicts import VerdictFile

BAGS_KEPT = 4  # whose patches are kept
COLORS = 256  # of a color map


@dataclass(frozen=True)
class Picture:
    """One slide of a bag, with what is predicted of its patches.

    Attributes:
        name: of the slide.
        patches: of the slide; None without any that can be drawn.
        source: its file, or its images; None where it cannot be shown.
        problem: why the slide or its patches cannot be shown, "" where they can.
    """

    name: str
    patches: Patches | None
    source: Source | None = None
    problem: str = ""


class Content:
    """Predictions as the page asks for them, bag after bag.

    Args:
        predictions: of bags, and of their instances where there are any.
        verdicts: what people said of the bags.
        title: of the page.
        slides: folder of the slides; None draws patches alone.
        store: the bags that were predicted, for images and positions of their instances.
        patch_size: side of a patch in level-0 pixels; None for what ``patch_sizes`` returns.

    Raises:
        StorageError: no folder of slides.
        ConfigError: OpenSlide is not installed.
    """

    def __init__(
        self,
        predictions: Predictions,
        verdicts: VerdictFile,
        *,
        title: str = "predictions",
        slides: Path | None = None,
        store: BagDataset | None = None,
        patch_size: int | None = None,
    ) -> None:
        self.predictions, self.verdicts, self.title, self.patch_size = predictions, verdicts, title, patch_size
        self.ids = predictions.bags.bag_ids.astype(str).tolist()
        self.files = None if slides is None else SlideFiles.at(slides)
        self.store = store
        self.has_images = store is not None and len(store.instance_shape) == 3
        self.tiles = SlideTiles() if slides is not None or self.has_images else None
        self._pictures: Kept[list[Picture]] = Kept(BAGS_KEPT)
        self._reading = RLock()

    @property
    def choices(self) -> list[str]:
        """The labels among which a verdict chooses; none where labels are numbers."""
        bags, known = self.predictions.bags, self.predictions.provenance.classes
        if isinstance(bags.target, IntervalTarget):
            return []
        count = bags.distribution.num_classes
        return list(known if len(known) == count else numbered_classes(count))

    @cached_property
    def overview(self) -> dict[str, Any]:
        """What the page shows of all bags."""
        with self._reading:
            listed = worklist(self.predictions, Limits())
            layers = layers_of(self.predictions)
        row_of = {name: row for row, name in enumerate(self.ids)}
        cases = [
            {name: finite(value) if isinstance(value, float) else value for name, value in row.items()}
            | {"bag": row_of[row[listed.per]], "name": row[listed.per]}
            for row in listed.rows
        ]
        return {
            "title": self.title,
            "person": self.verdicts.person,
            "file": str(self.verdicts.path),
            "per": listed.per,
            "order": listed.order,
            "warning": listed.warning,
            "flags": listed.flags,
            "classes": class_names(self.predictions),
            "choices": self.choices,
            "cannotTell": CANNOT_TELL,
            "cases": cases,
            "layers": [
                {
                    "column": one.column,
                    "title": one.title,
                    "unit": one.unit,
                    "range": one.range,
                    "map": one.colormap,
                }
                for one in layers
            ],
            "columns": describe_columns(self.predictions),
            "maps": {one.colormap: colors_of(one.colormap) for one in layers},
        }

    def bag(self, row: int) -> dict[str, Any]:
        """Return what the page shows of a bag beside its patches."""
        table = self.predictions.bags.subset(np.array([row]))
        decisions, names = table.decisions, class_names(self.predictions)
        shown = table.probabilities[0]
        if decisions is not None and decisions.calibrated is not None:
            shown = decisions.calibrated.probabilities.numpy()[0]
        sets = None if decisions is None else decisions.prediction_sets
        described = describe_scores(table.uncertainty_names)
        target = table.target
        bounds = target.bounds(sets) if target is not None and sets is not None else {}
        return {
            "name": self.ids[row],
            "patient": "" if table.patients is None else str(table.patients[0]),
            "probabilities": shown.tolist(),
            "isCalibrated": decisions is not None and decisions.calibrated is not None,
            "predicted": int(shown.argmax()),
            "question": int(table.class_in_question[0]),
            "decision": None if decisions is None else str(decisions.decision[0]),
            "reason": "" if decisions is None else str(decisions.reason[0]),
            "set": None if sets is None else [names[number] for number in np.flatnonzero(sets[0])],
            "values": {name: finite(values[0]) for name, values in {**table.predicted_values(), **bounds}.items()},
            "uncertainties": [
                {"name": name, "value": finite(values[0]), **described[name]}
                for name, values in table.uncertainties().items()
            ],
            "pictures": [self._describe(one) for one in self.pictures(row)],
        }

    def pictures(self, row: int) -> list[Picture]:
        """Return the slides of a bag."""
        with self._reading:
            return self._pictures.get(row, lambda: self._make_pictures(row))

    def tile(self, row: int, number: int, level: int, column: int, tile_row: int) -> bytes | None:
        """Return a tile of a slide of a bag as JPEG, None where there is none."""
        source = self._source(row, number)
        return None if source is None or self.tiles is None else self.tiles.tile(source, level, column, tile_row)

    def patch(self, row: int, number: int, patch: int) -> bytes | None:
        """Return the picture of a patch as JPEG, None where there is none."""
        source, pictures = self._source(row, number), self.pictures(row)
        patches = pictures[number].patches if source is not None else None
        if source is None or self.tiles is None or patches is None or patch >= len(patches):
            return None
        x, y = patches.coords[patch].tolist()
        return self.tiles.patch(source, x, y, patches.size)

    def values(self, row: int, number: int) -> bytes | None:
        """Return what is known of the n patches of a slide: x, y and instance as int32, then float32 columns.

        All numbers are little-endian, n of each after another, in the order of ``describe_columns``.
        """
        pictures = self.pictures(row)
        patches = pictures[number].patches if number < len(pictures) else None
        if patches is None:
            return None
        integers = [patches.coords[:, 0], patches.coords[:, 1], patches.instance]
        columns = columns_of(patches, self.predictions)
        arrays = [one.astype("<i4") for one in integers] + [one.astype("<f4") for one in columns.values()]
        return b"".join(one.tobytes() for one in arrays)

    def _source(self, row: int, number: int) -> Source | None:
        pictures = self.pictures(row)
        return pictures[number].source if number < len(pictures) else None

    def _describe(self, picture: Picture) -> dict[str, Any]:
        patches = picture.patches
        described: dict[str, Any] = {
            "name": picture.name,
            "problem": picture.problem,
            "count": 0 if patches is None else len(patches),
            "patchSize": None if patches is None else patches.size,
            "sizeFrom": "" if patches is None else patches.size_from,
            "isFlagged": patches is not None and patches.flagged is not None,
            "isSlide": picture.source is not None,
        }
        if picture.source is not None and self.tiles is not None:
            return described | self.tiles.pyramid(picture.source).to_json()
        if patches is None:
            return described
        width, height = (patches.coords.max(0) + patches.size).tolist()
        return described | {"width": width, "height": height, "micronsPerPixel": None}

    def _make_pictures(self, row: int) -> list[Picture]:
        name, table = self.ids[row], self.predictions.instances
        instances = None if table is None else table.of_bags([name])
        if not instances:
            return [self._with_slide(Picture(name, None))]
        own = replace(self.predictions, bags=self.predictions.bags.subset(np.array([row])), instances=instances)
        try:
            own, mosaic = self._placed(own, name)
            if mosaic is not None:
                (patches,) = patches_by_slide(own, patch_sizes(own, mosaic.side))
                return [Picture(name, patches, mosaic if mosaic.store is not None else None)]
            own = own.per_slide()
            every = list(patches_by_slide(own, self._sizes(own)))
        except MiueError as error:
            return [self._with_slide(Picture(name, None, problem=str(error)))]
        return [self._with_slide(Picture(one.slide, one)) for one in every]

    def _placed(self, own: Predictions, name: str) -> tuple[Predictions, Mosaic | None]:
        """Return a bag whose instances have places, and what shows those that have none of their own."""
        assert own.instances is not None
        table = PredictionTable.concatenate(list(own.instances.parts()))
        number = np.arange(len(table)) if table.instance is None else table.instance
        has_places = table.coords is not None and table.coords.known.any()
        if self.store is not None and self.has_images:
            mosaic = Mosaic.of_images(name, number, self.store)
        elif has_places:
            return own, None
        elif self.store is not None and self.store.coords is not None:
            coords = self.store.coords[store_rows(name, number, self.store)]
            return replace(own, instances=replace(table, coords=coords)), None
        else:
            mosaic = Mosaic(len(table))
        return replace(own, instances=replace(table, coords=Coords.of(mosaic.places), slides=None)), mosaic

    def _sizes(self, own: Predictions) -> PatchSizes:
        """Return the patch sizes of a bag's slides, for which all others are read where it alone does not tell."""
        sizes = patch_sizes(own, self.patch_size)
        if all(size is not None for size, _ in sizes.values()):
            return sizes
        return self._all_sizes

    @cached_property
    def _all_sizes(self) -> PatchSizes:
        return patch_sizes(self.predictions.per_slide(), self.patch_size)

    def _with_slide(self, picture: Picture) -> Picture:
        """Return a picture with the file of its slide, or why there is none; no slide has patches beside it."""
        if self.files is None or self.tiles is None:
            return picture
        try:
            path = self.files.of_slide(picture.name)
            size = self.tiles.pyramid(path).slide.dimensions
            if picture.patches is not None:
                refuse_patches_beside(picture.patches, path, size)
        except MiueError as error:
            return replace(picture, problem=picture.problem or str(error))
        return replace(picture, source=path)


def layers_of(predictions: Predictions) -> list[Layer]:
    """Return what can be drawn over a slide: as on a heatmap, and the numbers that a target predicts."""
    table = predictions.instances
    if not table:
        return []
    probabilities = [
        replace(probability_layer(name), column=f"p_{number}")
        for number, name in enumerate(class_names(predictions))
    ]
    return [*_target_layers(table), *probabilities, *uncertainty_layers(table)]


def _target_layers(table: PredictionTable) -> list[Layer]:
    layers = []
    for name, values in target_values(table.target, table.probabilities).items():
        low, high = float(values.min()), float(values.max())
        ends = (low, high if high > low else low + 1)
        layers.append(Layer(name, name.replace("_", " ").capitalize(), name.replace("_", " "), ends, "viridis"))
    return layers


def describe_columns(predictions: Predictions) -> list[dict[str, str]]:
    """Return name, heading and meaning of each number that is known of a patch, as ``columns_of`` returns them."""
    table = predictions.instances
    if not table:
        return []
    described = describe_scores(table.uncertainty_names)
    names = class_names(predictions)
    columns = [(f"p_{number}", f"p({name})", "") for number, name in enumerate(names)]
    columns += [(uncertainty_column(name), name, described[name]["text"]) for name in table.uncertainty_names]
    columns += [(name, name, "") for name in target_values(table.target, table.head.probabilities)]
    shown = [{"name": name, "title": title.replace("_", " "), "text": text} for name, title, text in columns]
    return [*shown, {"name": "flagged", "title": "flagged", "text": describe_flags(predictions.provenance)}]


def columns_of(patches: Patches, predictions: Predictions) -> dict[str, Float64[np.ndarray, "n"]]:
    """Return the numbers that are known of n patches, by name."""
    columns = {f"p_{number}": values for number, values in enumerate(patches.probabilities.T)}
    columns |= patches.uncertainties | target_values(predictions.bags.target, patches.probabilities)
    flagged = np.zeros(len(patches)) if patches.flagged is None else patches.flagged.astype(np.float64)
    return columns | {"flagged": flagged}


def target_values(
    target: Target | None, probabilities: Float64[np.ndarray, "n C"]
) -> dict[str, Float64[np.ndarray, "n"]]:
    """Return what probabilities of classes say of n labels that are more than classes; nothing of others."""
    return {} if target is None else target.columns(probabilities, None)


def colors_of(colormap: str) -> list[str]:
    """Return the colors of a map from its low to its high end, as CSS takes them."""
    from matplotlib import colormaps

    values: Int64[np.ndarray, "k 4"] = (colormaps[colormap](np.linspace(0, 1, COLORS)) * 255).round().astype(int)
    return ["#" + "".join(f"{part:02x}" for part in color[:3]) for color in values.tolist()]


def finite(value: float) -> float | None:
    """Return a number that JSON has, None for infinity and NaN."""
    return float(value) if np.isfinite(value) else None
