"""Readings of archives of known images, and of slides."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.commands_run import Case, run
from fuzzing.readings import Reading, by_expectation, digest


def archive(case: Case) -> dict[str, Any]:
    """Draw bags of the images, or read the features."""
    from miue.datasets.images import read_idx
    from miue.datasets.mnist import mnist_bags
    from miue.datasets.musk import musk_bags

    if case.name == "images.gz":
        return {"shape": list(read_idx(case.path).shape)}
    if case.name == "musk.npz":
        bags = musk_bags(case.folder, 1)
    else:
        bags = mnist_bags(case.folder, splits=["test"], sizes={"test": 6}, ood=[])
    return {"shape": list(bags.instances.shape), "sizes": digest(bags.sizes)}


def check_archive(case: Case, seen: Any, whole: Any) -> str:
    return by_expectation(case, seen, whole, True, seen["shape"] == whole["shape"])


def slide(case: Case) -> dict[str, Any]:
    """Cut the slide into patches."""
    from miue.io.formats import contents_of, read_rows
    from miue.pathology.tile_files import read_tiles

    run("data", "tile", case.path, "--out", case.folder / "tiles", "--quiet")
    path = case.folder / "tiles" / "slide.h5"
    found = contents_of(path)
    rows = read_rows(path, 0, found.size)
    return {"patches": found.size, "coords": len(read_tiles(path).coords), "finite": bool(np.isfinite(rows).all())}


def check_slide(case: Case, seen: Any, whole: Any) -> str:
    if not seen["finite"] or seen["patches"] != seen["coords"]:
        return f"features that are none: {seen}"
    return ""


ARCHIVES = (Reading(archive, check_archive),)
SLIDES = (Reading(slide, check_slide),)
