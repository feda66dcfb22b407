"""The kinds of exports, each of which writes a file per slide from the slide's patches alone.

A new kind has a file of its own that writes one slide, and a function and an entry in ``KINDS`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from miue.calibration import describe_flags
from miue.common.errors import DataError, StorageError, one_of_two, unknown_name
from miue.common.values import checked
from miue.pathology.export.geojson import Selection, regions, squares, write_geojson
from miue.pathology.export.patches import (
    Patches,
    class_names,
    class_number,
    class_numbers,
    refuse_patches_beside,
)
from miue.pathology.export.values import write_geo_parquet, write_slide_arrays
from miue.pathology.slides import SlideFiles, bounds_origin, microns_per_pixel, open_slide, thumbnail
from miue.predictions import Predictions

WriteSlide = Callable[[Patches, Path, list[str] | None], int | None]
"""Writes the file of one slide, and returns its number of objects, None where it is left out.

A slide that does not serve is an error, or left out where a list is passed, which takes why.
"""


@dataclass(frozen=True)
class Kind:
    """One kind of export.

    Attributes:
        suffix: of its files.
        doing: what the progress bar says.
        writer: (predictions, options of the kind by name) → what writes a slide.
    """

    suffix: str
    doing: str
    writer: Callable[..., WriteSlide]

    @property
    def options(self) -> list[str]:
        """Names of the options that it takes."""
        return [name for name in signature(self.writer).parameters if name != "predictions"]


def all_values(
    write_file: Callable[[Path, Patches, Sequence[str], str], None], predictions: Predictions
) -> WriteSlide:
    """Return what writes all that is predicted of a slide's patches, into the file that ``write_file`` writes."""
    names, flags = class_names(predictions), describe_flags(predictions.provenance)
    return _writer(lambda patches, path, _: write_file(path, patches, names, flags))


@checked()
def overlays(
    predictions: Predictions,
    *,
    classes: Sequence[str] | None = None,
    threshold: float | None = None,
    merge: bool = False,
    slides: Path | None = None,
    bounds: tuple[int, int] = (0, 0),
) -> WriteSlide:
    """Return what writes a GeoJSON file for QuPath.

    Args:
        predictions: with instances that have coords.
        classes: only these, by name or number.
        threshold: least probability of a class; None for the predicted class.
        merge: unite neighboring patches of one class into regions.
        slides: folder of slides, whose OpenSlide bounds-x/y are subtracted.
        bounds: subtracted, where no slides are passed.

    Raises:
        ConfigError: a class that there is not, or both slides and bounds.
        StorageError: no folder of slides.
    """
    if slides is not None and bounds != (0, 0):
        raise one_of_two("--bounds with --slides")
    names = class_names(predictions)
    chosen = class_numbers(names, classes or names)
    selection, flags = Selection(names, chosen, threshold), describe_flags(predictions.provenance)

    def write(patches: Patches, path: Path, origin: tuple[int, int]) -> int:
        metadata = {
            "slide": patches.slide,
            "patch_size_level0": patches.size,
            "patch_size_from": patches.size_from,
            "bounds_subtracted": list(origin),
            "probabilities": "of each patch, not calibrated",
            "threshold": threshold,
            "classes": [names[number] for number in chosen],
            **({"flags": flags} if flags else {}),
        }
        return write_geojson(path, (regions if merge else squares)(patches, selection, origin), metadata)

    return _writer(write, slides, bounds_origin, bounds)


@checked()
def maps(predictions: Predictions, *, slides: Path | None = None) -> WriteSlide:
    """Return what writes an OME-TIFF: a channel for the probability of each class and for each uncertainty.

    Args:
        predictions: with instances that have coords.
        slides: folder of slides, whose size and pixel width the maps take.

    Raises:
        ConfigError: tifffile is not installed.
        StorageError: no folder of slides.
    """
    from miue.pathology.export.ome_tiff import SlideSize, write_ome_tiff

    names, flags = class_names(predictions), describe_flags(predictions.provenance)

    def size(slide: Any) -> SlideSize:
        return SlideSize(tuple(slide.dimensions), microns_per_pixel(slide))

    return _writer(lambda patches, path, of: write_ome_tiff(path, patches, names, of, flags), slides, size)


@checked()
def heatmaps(predictions: Predictions, *, class_name: str | None = None, slides: Path | None = None) -> WriteSlide:
    """Return what draws a PNG: probability, aleatoric and epistemic uncertainty, and distance side by side.

    Args:
        predictions: with instances that have coords.
        class_name: whose probability, by name or number; None for class 1 of two, else the predicted one.
        slides: folder of slides, drawn under the values.

    Raises:
        ConfigError: a class that there is not.
        StorageError: no folder of slides.
    """
    from miue.pathology.export.heatmap import (
        LONGEST,
        Slide,
        heatmap_figure,
        probability_layer,
        save_heatmap,
        uncertainty_layers,
    )

    names = class_names(predictions)
    layers = uncertainty_layers(predictions.instances) if predictions.instances else []
    bags = predictions.bags
    classes = dict(zip(map(str, bags.bag_ids), bags.class_in_question.tolist(), strict=True))
    if class_name is not None:
        classes = dict.fromkeys(classes, class_number(names, class_name))
    flags = describe_flags(predictions.provenance)

    def picture(slide: Any) -> Slide:
        return Slide(thumbnail(slide, LONGEST), tuple(slide.dimensions), microns_per_pixel(slide))

    def write(patches: Patches, path: Path, drawn: Slide | None) -> None:
        number = classes[patches.slide]
        panels = [probability_layer(names[number]), *layers]
        save_heatmap(heatmap_figure(patches, panels, number, drawn, flags), path)

    return _writer(write, slides, picture)


KINDS = {
    "arrays": Kind(".h5", "Writing arrays", partial(all_values, write_slide_arrays)),
    "geojson": Kind(".geojson", "Writing GeoJSON", overlays),
    "geoparquet": Kind(".parquet", "Writing tables", partial(all_values, write_geo_parquet)),
    "heatmap": Kind(".png", "Drawing", heatmaps),
    "ome-tiff": Kind(".ome.tiff", "Writing maps", maps),
}


def takes_slides(kind: str) -> bool:
    """Return whether an export reads the slides themselves, where a folder of them is passed."""
    return "slides" in KINDS[kind].options


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise unless all of ``kinds`` can be exported.

    Raises:
        ConfigError: the first that cannot.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("export", kind, KINDS)


def _writer(
    write: Callable[[Patches, Path, Any], int | None],
    slides: Path | None = None,
    read: Callable[[Any], Any] = microns_per_pixel,
    otherwise: Any = None,
) -> WriteSlide:
    """Return what writes a slide with what ``read`` takes from its file, where a folder of slides is passed.

    Args:
        write: (patches, path, what was read) → number of objects, None for one of each patch.
        slides: the folder.
        read: called with the opened slide.
        otherwise: passed in place of what was read, where there is no folder.

    Raises:
        StorageError: no such folder.
    """
    files = None if slides is None else SlideFiles.at(slides)

    def write_slide(patches: Patches, path: Path, skipped: list[str] | None) -> int | None:
        found = otherwise
        if files is not None:
            try:
                file = files.of_slide(patches.slide)
                with open_slide(file) as slide:
                    refuse_patches_beside(patches, file, slide.dimensions)
                    found = read(slide)
            except (DataError, StorageError) as error:
                if skipped is None:
                    raise
                skipped.append(str(error))
                return None
        count = write(patches, path, found)
        return len(patches) if count is None else count

    return write_slide
