"""Nuclei-bags: real histology, a bag for each patient, and the truth of every instance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.datasets.images import find_archive, open_archive, read_strips

ARCHIVE = "crchisto_nuclei27.npz"
SIDE = 27
CLASS_NAMES = ("no tumour epithelium", "tumour epithelium")


def nuclei_bags(source: Path) -> BagDataset:
    """Return 98 patients as bags of H&E images of nuclei, positive where one is of tumor epithelium.

    Images are (27, 27, 3) bytes with a nucleus in the middle, at 20× (0.55 µm per pixel). A bag's id is the
    patient's; instance labels are known for every nucleus. There are no splits: 98 bags are few, and are best
    cross-validated.

    Derived from CRCHistoPhenotypes (Sirinukunwattana et al. 2016), which has 100 images of 9 patients; this
    is a repackaging of it for a course, with 20,280 nuclei, 98 patients and no image it could be joined to.

    Args:
        source: folder with ``crchisto_nuclei27.npz``: ``images_webp`` (lossless strips), ``images_webp_offsets``,
            ``patient_id`` and ``is_cancerous`` (20280,).

    Raises:
        StorageError: the file is not there, or is damaged.
    """
    with open_archive(find_archive(source, ARCHIVE, "images of nuclei")) as arrays:
        images = read_strips(arrays, "images", SIDE)
        patients, cancerous = arrays["patient_id"], arrays["is_cancerous"]
        if not len(images) == len(patients) == len(cancerous):
            raise ValueError(f"{len(images)} images, {len(patients)} patients and {len(cancerous)} labels")
        if not np.isin(cancerous, (0, 1)).all():
            raise ValueError("is_cancerous is neither 0 nor 1")
    ids = np.unique(patients)
    members = [np.flatnonzero(patients == patient) for patient in ids]
    return BagDataset.from_arrays(
        [images[chosen] for chosen in members],
        [int(cancerous[chosen].max()) for chosen in members],
        ids=[str(patient) for patient in ids],
        instance_labels=[cancerous[chosen].astype(np.int64) for chosen in members],
        class_names=CLASS_NAMES,
    )
