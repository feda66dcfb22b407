"""One file for each slide: patch by patch as arrays or squares, as QuPath overlays, as heatmaps and maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from miue.calibration import describe_flags
from miue.common.arguments import checked
from miue.common.errors import DataError, StorageError, one_of_two, unknown_name
from miue.common.files import atomic_folder, write_json
from miue.common.folder_kinds import EXPORT
from miue.common.plural import plural
from miue.common.progress import tracked
from miue.pathology.export.geo_parquet import write_geo_parquet
from miue.pathology.export.geojson import Selection, regions, squares, write_geojson
from miue.pathology.export.patches import (
    Patches,
    class_names,
    class_number,
    class_numbers,
    file_names,
    patches_by_slide,
)
from miue.pathology.export.slide_arrays import write_slide_arrays
from miue.pathology.slides import SlideFiles, bounds_origin, microns_per_pixel, open_slide, thumbnail
from miue.predictions.folder import Predictions, check_predictions

FORMAT = "miue-export"
VERSION = 1


@dataclass(frozen=True)
class Export:
    """How a folder of one file per slide is written.

    Attributes:
        patch_size: side of a patch in level-0 pixels; None for what the slide's file specifies, else its grid
            step, else that of all other slides where they agree; a slide without any of these is left out.
        skip_bad: go on after a slide that fails, instead of an error for the first.
        overwrite: replace the folder.
        progress: show a bar.
    """

    patch_size: int | None = None
    skip_bad: bool = False
    overwrite: bool = False
    progress: bool = False


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        slides: files.
        objects: patches or regions in them.
        left_out: why slides were left out, one line each.
    """

    slides: int
    objects: int
    left_out: tuple[str, ...]


def write_arrays(predictions: Predictions, out: Path, how: Export) -> Written:
    """Write one HDF5 file per slide: coords, probabilities and uncertainties of its patches.

    Raises:
        DataError: instances without coords, or a slide without a patch size; nothing was written.
    """
    names, flags = class_names(predictions), describe_flags(predictions.provenance)

    def write(patches: Patches, path: Path, skipped: list[str] | None) -> int:
        write_slide_arrays(path, patches, names, flags)
        return len(patches)

    return _write_each(predictions, out, how, ".h5", "Writing arrays", write)


@checked()
def write_overlays(
    predictions: Predictions,
    out: Path,
    how: Export,
    *,
    classes: Sequence[str] | None = None,
    threshold: float | None = None,
    merge: bool = False,
    slides: Path | None = None,
    bounds: tuple[int, int] = (0, 0),
) -> Written:
    """Write one GeoJSON file per slide for QuPath.

    Args:
        predictions: with instances that have coords.
        out: the folder.
        how: see ``Export``.
        classes: only these, by name or number.
        threshold: least probability of a class; None for the predicted class.
        merge: unite neighboring patches of one class into regions.
        slides: folder of slides, whose OpenSlide bounds-x/y are subtracted.
        bounds: subtracted, where no slides are passed.

    Raises:
        ConfigError: a class that there is not, or both slides and bounds.
        DataError, StorageError: a slide that fails; nothing was written.
    """
    if slides is not None and bounds != (0, 0):
        raise one_of_two("--bounds with --slides")
    names = class_names(predictions)
    chosen = class_numbers(names, classes or names)
    files = None if slides is None else SlideFiles.at(slides)
    selection, flags = Selection(names, chosen, threshold), describe_flags(predictions.provenance)

    def write(patches: Patches, path: Path, skipped: list[str] | None) -> int | None:
        origin = bounds if files is None else _of_slide(files, patches, skipped, bounds_origin)
        if origin is None:
            return None
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

    return _write_each(predictions, out, how, ".geojson", "Writing GeoJSON", write)


def write_geo_tables(predictions: Predictions, out: Path, how: Export) -> Written:
    """Write one GeoParquet table per slide: the squares of its patches with all that is predicted of them.

    Raises:
        DataError: instances without coords, or a slide without a patch size; nothing was written.
    """
    names, flags = class_names(predictions), describe_flags(predictions.provenance)

    def write(patches: Patches, path: Path, skipped: list[str] | None) -> int:
        write_geo_parquet(path, patches, names, flags)
        return len(patches)

    return _write_each(predictions, out, how, ".parquet", "Writing tables", write)


@checked()
def write_maps(predictions: Predictions, out: Path, how: Export, *, slides: Path | None = None) -> Written:
    """Write one OME-TIFF per slide: a channel for the probability of each class and for each uncertainty.

    Args:
        predictions: with instances that have coords.
        out: the folder.
        how: see ``Export``.
        slides: folder of slides, whose size and pixel width the maps take.

    Raises:
        ConfigError: tifffile is not installed.
        DataError, StorageError: a slide that fails; nothing was written.
    """
    from miue.pathology.export.ome_tiff import SlideSize, write_ome_tiff

    names, flags = class_names(predictions), describe_flags(predictions.provenance)
    files = None if slides is None else SlideFiles.at(slides)

    def size(slide: Any) -> SlideSize:
        return SlideSize(tuple(slide.dimensions), microns_per_pixel(slide))

    def write(patches: Patches, path: Path, skipped: list[str] | None) -> int | None:
        of_slide = None if files is None else _of_slide(files, patches, skipped, size)
        if files is not None and of_slide is None:
            return None
        write_ome_tiff(path, patches, names, of_slide, flags)
        return len(patches)

    return _write_each(predictions, out, how, ".ome.tiff", "Writing maps", write)


@checked()
def write_heatmaps(
    predictions: Predictions, out: Path, how: Export, *, class_name: str | None = None, slides: Path | None = None
) -> Written:
    """Draw one PNG per slide: probability, aleatoric and epistemic uncertainty, and distance side by side.

    Args:
        predictions: with instances that have coords.
        out: the folder.
        how: see ``Export``.
        class_name: whose probability, by name or number; None for class 1 of two, else the predicted one.
        slides: folder of slides, drawn under the values.

    Raises:
        ConfigError: a class that there is not.
        DataError, StorageError: a slide that fails; nothing was written.
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
    files = None if slides is None else SlideFiles.at(slides)

    def picture(slide: Any) -> Slide:
        return Slide(thumbnail(slide, LONGEST), tuple(slide.dimensions), microns_per_pixel(slide))

    def write(patches: Patches, path: Path, skipped: list[str] | None) -> int | None:
        drawn = None if files is None else _of_slide(files, patches, skipped, picture)
        if files is not None and drawn is None:
            return None
        number = classes[patches.slide]
        panels = [probability_layer(names[number]), *layers]
        save_heatmap(heatmap_figure(patches, panels, number, drawn, flags), path)
        return len(patches)

    return _write_each(predictions, out, how, ".png", "Drawing", write)


KINDS: dict[str, Callable[..., Written]] = {
    "arrays": write_arrays,
    "geojson": write_overlays,
    "geoparquet": write_geo_tables,
    "heatmap": write_heatmaps,
    "ome-tiff": write_maps,
}


def takes_slides(kind: str) -> bool:
    """Return whether an export reads the slides themselves, where a folder of them is passed."""
    return "slides" in signature(KINDS[kind]).parameters


@checked()
def export(
    predictions: Predictions,
    out: Path | str,
    kind: str,
    *,
    patch_size: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> Written:
    """Write one file per slide, of one kind.

    Kinds are "arrays" (HDF5), "geojson" (overlays for QuPath), "geoparquet" (a table of squares), "heatmap" (PNG)
    and "ome-tiff" (maps of raw values).

    Args:
        predictions: with instances that have coords.
        out: the folder.
        kind: what is written.
        patch_size: side of a patch in level-0 pixels; None for that of the slide's file or its grid.
        skip_bad: go on after a slide that fails, instead of an error for the first.
        overwrite: replace the folder.
        progress: show a bar.
        options: of the kind: slides, classes, threshold, merge and bounds of "geojson" (``write_overlays``);
            slides and class_name of "heatmap" (``write_heatmaps``); slides of "ome-tiff" (``write_maps``).

    Raises:
        ConfigError: no predictions, no such kind, option or class, or an argument of another type.
        DataError, StorageError: a slide that fails; nothing was written.
    """
    check_predictions(predictions)
    check_kinds([kind])
    known = [name for name in signature(KINDS[kind]).parameters if name not in ("predictions", "out", "how")]
    for name in options:
        if name not in known:
            raise unknown_name(f"option of {kind}", name, known or ["none"])
    if isinstance(options.get("slides"), str):
        options["slides"] = Path(options["slides"])
    return KINDS[kind](predictions, Path(out), Export(patch_size, skip_bad, overwrite, progress), **options)


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise unless all of ``kinds`` can be exported.

    Raises:
        ConfigError: the first that cannot.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("export", kind, KINDS)


def _write_each(
    predictions: Predictions,
    out: Path,
    how: Export,
    suffix: str,
    doing: str,
    write: Callable[[Patches, Path, list[str] | None], int | None],
) -> Written:
    """Write each slide's file; ``write`` returns its number of objects, None where the slide is left out."""
    files = file_names([str(slide) for slide in predictions.bags.bag_ids], suffix)
    skipped: list[str] | None = [] if how.skip_bad else None
    counts: list[int] = []
    written: dict[str, str] = {}
    unsized: list[str] = []
    every: Iterator[Patches] = patches_by_slide(predictions, how.patch_size, skipped, unsized)
    with atomic_folder(out, EXPORT, overwrite=how.overwrite) as folder:
        for patches in tracked(every, doing, shown=how.progress, total=len(files)):
            count = write(patches, folder / files[patches.slide], skipped)
            if count is not None:
                counts.append(count)
                written[patches.slide] = files[patches.slide]
        left_out = (*(skipped or ()), *unsized)
        said = {
            "format": FORMAT,
            "version": VERSION,
            "slides": dict(sorted(written.items())),
            "left_out": left_out,
        }
        write_json(folder / EXPORT.shown_by[0], said)
        if not counts:
            raise DataError(
                item=f"{str(out)!r}",
                wanted="at least one slide to write",
                got=f"none ({left_out[0] if left_out else 'no bag has patches'})",
                fix="mend the slides, or the predictions",
            )
    return Written(len(counts), sum(counts), left_out)


def _of_slide(files: SlideFiles, patches: Patches, skipped: list[str] | None, read: Callable[[Any], Any]) -> Any:
    """Return what ``read`` takes from the slide of patches; None, and why in ``skipped``, where it does not serve.

    Raises:
        StorageError: there is no such slide, or it cannot be read.
        DataError: patches that do not lie on it.
    """
    try:
        path = files.of_slide(patches.slide)
        with open_slide(path) as slide:
            _refuse_patches_beside(patches, path, slide.dimensions)
            return read(slide)
    except (DataError, StorageError) as error:
        if skipped is None:
            raise
        skipped.append(str(error))
        return None


def _refuse_patches_beside(patches: Patches, path: Path, size: tuple[int, int]) -> None:
    """Raise where patches begin beyond the slide: it, or the unit of the coords, is another one.

    Patches that only end beyond it pass: some tools pad those at the margin.
    """
    beside = int((patches.coords >= size).any(1).sum())
    if beside:
        raise DataError(
            item=f"slide {patches.slide!r}",
            wanted=f"patches on the {size[0]} × {size[1]} level-0 pixels of {str(path)!r}",
            got=f"{beside:,} of {plural(len(patches), 'patch')} beside it",
            fix="check --slides, for another slide of this name, and the --mpp that coords in µm were read with",
        )
