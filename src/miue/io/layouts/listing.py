"""What each file of a folder holds, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags.arrays import check_bag, row_spans
from miue.common.errors import MiueError
from miue.common.text import tracked
from miue.io.formats.base import Contents, bag_file_name, bag_name
from miue.io.formats.child import contents_of, read_rows
from miue.io.layouts.files import FilesLayout


def describe_bag_files(layout: FilesLayout, *, read: bool = False) -> dict[str, Any]:
    """Return what each bag of a folder holds, and what is wrong with it, as JSON values.

    Args:
        layout: the folder.
        read: read all features too, to find those that are not finite and rows that are zero throughout.

    Raises:
        DataError: folders that make no single set of bags.
    """
    files = layout.find()
    twins = {path: paths for paths in files.by_id.values() for path in paths}
    described = []
    for path in tracked(list(twins), "reading" if read else "opening", shown=layout.progress):
        others = [bag_file_name(twin) for twin in twins[path] if twin != path]
        described.append(_described(path, layout.settings.microns_per_pixel, read, others))
    for name, what in (("shape", "features of shape"), ("encoder", "features of the encoder")):
        most_common = Counter(str(file[name]) for file in described if file["instances"]).most_common(1)
        for file in described:
            if file["instances"] and str(file[name]) != most_common[0][0]:
                file["problems"].append(
                    f"{what} {file[name] or 'unknown'}, most bags have {most_common[0][0] or 'unknown'}"
                )
    usable = [file for file in described if file["instances"] and not file["problems"]]
    sizes = [file["instances"] for file in usable]
    return {
        "kind": "bag files",
        "path": str(layout.path),
        "formats": dict(Counter(file["format"] for file in described if file["format"])),
        "encoders": dict(Counter(file["encoder"] for file in described if file["encoder"])),
        "patch scales": dict(Counter(file["patch scale"] for file in described if file["patch scale"])),
        "bags": len(files.by_id),
        "usable": len(usable),
        "instances": int(np.sum(sizes)),
        "bag sizes": {"min": min(sizes), "median": float(np.median(sizes)), "max": max(sizes)} if sizes else {},
        "features read": "all" if read else "none",
        **({"note": "; ".join(files.notes)} if files.notes else {}),
        "bag": described,
    }


def _described(path: Path, microns_per_pixel: float | None, read: bool, twins: list[str]) -> dict[str, Any]:
    """Return what a file holds as JSON values."""
    described: dict[str, Any] = {
        "bag": bag_name(path),
        "file": bag_file_name(path),
        "format": "",
        "encoder": "",
        "instances": 0,
        "shape": [],
        "dtype": "",
        "coords": "none",
        "patch size": None,
        "patch scale": "",
        "notes": [],
        "problems": [f"expected one file of this name, got {' and '.join(twins)} too"] if twins else [],
    }
    try:
        contents = contents_of(path, microns_per_pixel)
        described |= {
            "format": contents.format,
            "encoder": contents.extractor,
            "instances": contents.size,
            "shape": list(contents.instance_shape),
            "dtype": str(contents.dtype),
            "coords": "none" if contents.coords is None else "level-0 pixels",
            "patch size": contents.patch_size,
            "patch scale": contents.patch_scale,
            "notes": list(contents.notes),
        }
        if not contents.size:
            described["problems"].append("no instance (a slide without tissue, a video without a clip?)")
        elif read:
            zeros = _read_all(contents)
            if zeros:
                described["notes"].append(f"{zeros:,} of {contents.size:,} rows are exactly zero in every feature")
    except MiueError as error:
        described["problems"].append(f"expected {error.wanted}, got {error.got}; {error.fix}")
    return described


def _read_all(contents: Contents) -> int:
    """Read and check all features; return how many rows hold nothing but zeros."""
    zeros = 0
    for span in row_spans((contents.size, *contents.instance_shape), contents.dtype):
        rows = read_rows(contents.path, span.start, span.stop)
        check_bag(contents.id, rows, contents.instance_shape)
        zeros += int((~rows.reshape(len(rows), -1).any(1)).sum())
    return zeros
