"""The patches of each slide with positions, sizes and predictions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.bags import Coords
from miue.bags.cells import one_form
from miue.bags.classes import numbered_classes
from miue.common.errors import DataError, first_few, unknown_name
from miue.common.tasks import ALL, Shard
from miue.common.text import plural, shortened
from miue.io.formats import grid_step
from miue.predictions import Predictions, PredictionTable, uncertainty_column

SPECIFIED, FROM_FILE, FROM_GRID = "specified", "stated by the features' file", "step of the grid of coords"
FROM_OTHERS = "the one step of all other slides' grids"
LONGEST_NAME = 240  # bytes of a file name: file systems take 255, and its half-written file has a longer one


@dataclass(frozen=True)
class Patches:
    """The n patches of one slide.

    Attributes:
        slide: the slide's id.
        instance: number of each patch in its bag.
        coords: top left corner of each patch in level-0 pixels.
        size: side of a patch in level-0 pixels.
        size_from: how the side is known.
        probabilities: expected class probabilities.
        uncertainties: measures and scores by column name, higher where less certain.
        flagged: whether each patch is flagged, None where instances were not calibrated.
    """

    slide: str
    instance: Int64[np.ndarray, "n"]
    coords: Int64[np.ndarray, "n 2"]
    size: int
    size_from: str
    probabilities: Float64[np.ndarray, "n C"]
    uncertainties: dict[str, Float64[np.ndarray, "n"]]
    flagged: Bool[np.ndarray, "n"] | None = None

    def __len__(self) -> int:
        return len(self.coords)


PatchSizes = Mapping[str, tuple[int | None, str]]
"""The side of a patch of each slide in level-0 pixels, None where unknown, and how it is known."""


def patch_sizes(predictions: Predictions, patch_size: int | None = None) -> PatchSizes:
    """Return the patch size of each slide.

    Args:
        predictions: of bags and instances, with coords.
        patch_size: of every slide; None takes what the slide's file specifies, else its grid step, else the size
            of all other slides where these agree.

    Raises:
        DataError: no instances or no coords.
    """
    table, bags = predictions.instances, predictions.bags
    if table is None or all(part.coords is None for part in table.parts()):
        raise DataError(
            item="the predictions",
            wanted="instances with a position: columns x and y in level-0 pixels",
            got="no instances" if table is None else "instances without x and y",
            fix="predict from bags that carry coords, or add the columns to the instance table; "
            "'miue predict --format csv' writes all values of instances without a position",
        )
    of_files = np.zeros(len(bags), np.int64) if bags.patch_sizes is None else bags.patch_sizes
    of_file = dict(zip(bags.bag_ids.astype(str).tolist(), of_files.tolist(), strict=True))
    stated: dict[str, tuple[int | None, str]] = {
        slide: (patch_size or of_file[slide], SPECIFIED if patch_size else FROM_FILE)
        for slide in table.bag_sizes()
        if patch_size or of_file[slide]
    }
    steps: dict[str, tuple[int | None, str]] = {
        slide: (None if of.coords is None else grid_step(of.coords.values[of.coords.known]), FROM_GRID)
        for slide, of in table.of_bags([one for one in table.bag_sizes() if one not in stated]).by_bag()
    }
    sizes = stated | steps
    known = {step for step, _ in sizes.values() if step is not None}
    if len(known) == 1:
        others = next(iter(known)), FROM_OTHERS
        sizes = {slide: others if step is None else (step, how) for slide, (step, how) in sizes.items()}
    return sizes


def patches_by_slide(
    predictions: Predictions,
    sizes: PatchSizes | None = None,
    skipped: list[str] | None = None,
    unsized: list[str] | None = None,
    shard: Shard = ALL,
) -> Iterator[Patches]:
    """Yield the patches of each slide, in the order of the bags.

    Args:
        predictions: of bags and instances, with coords.
        sizes: of patches; None for what ``patch_sizes`` returns.
        skipped: takes why a slide without all its coords was left out, instead of an error for the first such.
        unsized: takes why a slide whose patch size is unknown was left out, instead of an error likewise.
        shard: of the bags.

    Raises:
        DataError: no instances or no coords; a slide whose patch size is unknown, where its turn comes.
    """
    sizes = patch_sizes(predictions) if sizes is None else sizes
    known = {step for step, _ in sizes.values() if step is not None}
    for slide, of_slide in _instances_of(predictions, shard).by_bag():
        step, size_from = sizes[slide]
        coords = of_slide.coords or Coords.unknown(len(of_slide))
        unknown = int((~coords.known).sum())
        if unknown or step is None:
            error = (
                _without_coords(slide, unknown, len(coords))
                if unknown
                else _unknown_size(slide, len(coords), known)
            )
            reasons = skipped if unknown else unsized
            if reasons is None:
                raise error
            reasons.append(str(error))
            continue
        yield Patches(
            slide=slide,
            instance=np.arange(len(of_slide)) if of_slide.instance is None else of_slide.instance,
            coords=coords.values,
            size=step,
            size_from=size_from,
            probabilities=of_slide.probabilities,
            uncertainties={
                uncertainty_column(name): np.asarray(values, np.float64)
                for name, values in of_slide.uncertainties().items()
            },
            flagged=of_slide.flagged,
        )


def refuse_patches_beside(patches: Patches, path: Path, size: tuple[int, int]) -> None:
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


def _instances_of(predictions: Predictions, shard: Shard) -> PredictionTable:
    table, slides = predictions.instances, predictions.bags.bag_ids.astype(str).tolist()
    assert table is not None
    if shard == ALL:
        return table.in_order(slides)
    chosen = shard.share(slides)
    return table.of_bags(chosen).in_order(chosen)


def class_names(predictions: Predictions) -> list[str]:
    """Return a name for every class: those the model was trained with, else "class 0", "class 1", …"""
    count = predictions.bags.distribution.num_classes
    known = predictions.provenance.classes
    names = known if len(known) == count else numbered_classes(count)
    return [f"class {name}" if name.isdigit() else name for name in names]


def class_numbers(names: list[str], chosen: Sequence[str]) -> list[int]:
    """Return the numbers of the classes chosen, in order; of one whose name has a comma, by its parts.

    A command takes several names between commas, so that this one comes in parts.

    Raises:
        ConfigError: no such class.

    >>> class_numbers(["normal", "Adenocarcinoma, NOS"], ["Adenocarcinoma", "NOS"])
    [1]
    """
    whole = one_form(", ".join(chosen))
    return sorted({class_number(names, name) for name in ([whole] if whole in map(one_form, names) else chosen)})


def class_number(names: list[str], name: str) -> int:
    """Return the number of the class called ``name``, or numbered so.

    A class that is called by a number is found by its name: of grades 1 to 3, "2" is the second.

    Raises:
        ConfigError: no such class.

    >>> class_number(["class 1", "class 2", "class 3"], "2"), class_number(["normal", "benign", "tumor"], "2")
    (1, 2)
    """
    forms = list(map(one_form, names))
    for called in map(one_form, (name, f"class {name}")):
        if called in forms:
            return forms.index(called)
    if name.isdigit() and int(name) < len(names):
        return int(name)
    raise unknown_name("class", name, names)


def file_names(slides: list[str], suffix: str) -> dict[str, str]:
    """Return a file name for each slide: its id, with "_" for what no file name should hold.

    Slides that would share a file, on a file system of any kind, get the beginning of their id's digest as well.

    Raises:
        DataError: an id that is too long for a file name.

    >>> file_names(["a/../b", "007", "x", "X"], ".png").values()
    dict_values(['a_.._b.png', '007.png', 'x_2d711642.png', 'X_4b68ab38.png'])
    """
    names = {
        slide: "".join(c if c.isalnum() or c in " ._-+()" else "_" for c in slide).lstrip(". ") or "_"
        for slide in slides
    }
    length = 8
    while (twice := Counter(name.lower() for name in names.values())).total() > len(twice):
        for slide, name in names.items():
            if twice[name.lower()] > 1:
                names[slide] = f"{name}_{hashlib.sha256(slide.encode()).hexdigest()[:length]}"
        length *= 2
    for slide, name in names.items():
        if (size := len((name + suffix).encode())) > LONGEST_NAME:
            raise DataError(
                item=f"slide {shortened(slide)!r}",
                wanted=f"an id that with {suffix!r} is a file name of at most {LONGEST_NAME} bytes",
                got=f"{size} bytes",
                fix="shorten it in the tables",
            )
    return {slide: name + suffix for slide, name in names.items()}


def _without_coords(slide: str, unknown: int, count: int) -> DataError:
    return DataError(
        item=f"slide {slide!r}",
        wanted="a position of every patch",
        got=f"{unknown:,} of {count:,} patches without",
        fix="predict from features with coords, or leave the slide out (--skip-bad goes on and lists it)",
    )


def _unknown_size(slide: str, count: int, others: set[int]) -> DataError:
    got = f"{count} patches on no grid" if count > 1 else "one patch"
    if others:
        got += f", beside slides with patches of {first_few(map(str, sorted(others)))} level-0 pixels"
    return DataError(
        item=f"slide {slide!r}",
        wanted="patches on a grid, two of one row or column at least, or other slides of one patch size",
        got=got,
        fix="pass --patch-size with the side of a patch in level-0 pixels",
    )
