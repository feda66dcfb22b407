"""The patches of a slide as arrays in one HDF5 file, laid out as TRIDENT lays out its features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from miue.common.hdf5_files import atomic_hdf5
from miue.pathology.export.patches import Patches


def write_slide_arrays(path: Path, patches: Patches, class_names: Sequence[str], flags: str = "") -> None:
    """Write the n patches of a slide, whole or not at all.

    Datasets: ``coords`` (n, 2), top left corners in level-0 pixels, with TRIDENT's attribute
    ``patch_size_level0``; ``probabilities`` (n, C) with the names of the classes as ``classes``; and one of n
    for each measure and distance score, by its column name, higher where less certain, float32. Where instances
    were calibrated, ``flagged`` with the promise as an attribute.

    Args:
        path: the file.
        patches: what is said of each.
        class_names: C names.
        flags: by which rule patches were flagged and what is promised, in words.

    Raises:
        StorageError: the file cannot be written.
    """
    with atomic_hdf5(path) as file:
        file.attrs["slide"] = patches.slide
        coords = file.create_dataset("coords", data=patches.coords, compression="gzip", shuffle=True)
        coords.attrs["patch_size_level0"] = patches.size
        coords.attrs["patch_size_from"] = patches.size_from
        for name, values in {"probabilities": patches.probabilities, **patches.uncertainties}.items():
            small = values.astype(np.float32)
            file.create_dataset(name, data=small, compression="gzip", shuffle=True)
        if patches.flagged is not None:
            file.create_dataset("flagged", data=patches.flagged, compression="gzip").attrs["promise"] = flags
        file["probabilities"].attrs["classes"] = json.dumps(list(class_names))
