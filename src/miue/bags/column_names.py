"""Names of columns that mean something of a table's rows, and which columns are those of features."""

from __future__ import annotations

import re

OF_TCGA = ("submitter_id", "bcr_patient_barcode")  # what its clinical tables call a patient
BARCODE = "case_submitter_id"  # begins the names of slides; the case_id beside it in tables of the GDC is a UUID
PATIENT_COLUMNS = (BARCODE, "case_id", "patient_id", "patient", "case", *OF_TCGA)
LABEL_COLUMNS = ("label", "target", "class", "diagnosis")
BAG = "bag_id"
SPLIT = "split"
OF_BAGS = ("label", "patient", SPLIT, "is_ood", "ood_set")
TEXT = (BAG, "instance_label", *OF_BAGS)
COORDS = ("x", "y")
NAMES = {name: (name,) for name in (*TEXT, *COORDS)} | {
    BAG: (BAG, "slide_id"),
    "label": LABEL_COLUMNS,
    "patient": ("patient", *PATIENT_COLUMNS),
}
NO_FEATURES = {"instance", "fold"}.union(*NAMES.values())


def lower_case(name: str) -> str:
    """Return what the name of a column is compared by: lower case, words joined as names of ours are.

    >>> lower_case("Slide ID"), lower_case(" case-id ")
    ('slide_id', 'case_id')
    """
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def numbers_rows(name: str) -> bool:
    """Return whether a column is one that pandas and others write to number the rows.

    >>> [name for name in ("Unnamed: 0", "index", "", "__index_level_0__", "area") if numbers_rows(name)]
    ['Unnamed: 0', 'index', '', '__index_level_0__']
    """
    word = lower_case(name)
    return word in ("", "index") or word.startswith(("unnamed:", "__index_level_"))


def names_feature(name: str) -> bool:
    """Return whether a column without a meaning of its own, by its name, may be one of features.

    >>> [name for name in ("area", "Label", "instance_label", "Unnamed: 0", "x") if names_feature(name)]
    ['area']
    """
    return lower_case(name) not in NO_FEATURES and not numbers_rows(name)
