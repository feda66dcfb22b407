"""CAMELYON16's slides: their official names, classes and split, and what the challenge says of their outlines.

Reference: the README of the challenge's data; Ehteshami Bejnordi et al. 2017.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from miue.bags.names import strip_endings
from miue.common.errors import DataError, StorageError, not_readable
from miue.common.tables import read_text_columns
from miue.io import read_label_table

CLASSES = ("normal", "tumor")
REFERENCE, CHOSEN = "reference.csv", "slides.csv"
TRAINING = (
    *(f"normal_{number:03d}" for number in range(1, 161) if number != 86),  # 086 was renamed to tumor_111
    *(f"tumor_{number:03d}" for number in range(1, 112)),
)
TEST = tuple(f"test_{number:03d}" for number in range(1, 131) if number != 49)  # 049 is a duplicate
PARTLY_OUTLINED = frozenset(
    [f"tumor_{n:03d}" for n in (10, 15, 18, 20, 25, 29, 33, 34, 44, 46, 51, 54, 55, 56, 67, 79, 85, 92, 95, 110)]
    + ["test_114"]
)
"""Slides in which some tumor is not outlined: what lies outside the outlines is unknown there."""

WORDS = {"normal": 0, "tumor": 1, "tumour": 1, "0": 0, "1": 1}


@dataclass(frozen=True)
class Slides:
    """The slides of an experiment, in the official order.

    Attributes:
        training: class of each training slide, by its name.
        test: class of each test slide.
    """

    training: Mapping[str, int]
    test: Mapping[str, int]


def camelyon16_slides(folder: Path) -> Slides:
    """Return which slides are used and their classes.

    The classes of training slides are in their names, those of test slides in ``reference.csv``: the file of the
    challenge (name, class, type and size of the tumor, without a header) or any label table. ``slides.csv``
    (a column slide_id), where it is there, lists the slides to use; without it these are all 270 and 129.

    Raises:
        StorageError: no reference.csv.
        DataError: a test slide without a class, or a name in slides.csv that CAMELYON16 does not have.
    """
    chosen = _chosen(folder / CHOSEN)
    classes = _reference(folder / REFERENCE)
    test = [name for name in TEST if name in chosen]
    without = [name for name in test if name not in classes]
    if without:
        raise DataError(
            item=f"slide {without[0]!r}",
            wanted=f"its class, Normal or Tumor, in {str(folder / REFERENCE)!r}",
            got=f"none, for {len(without)} of {len(test)} test slides",
            fix=f"take the challenge's whole {REFERENCE}, or list the slides to use in {CHOSEN}",
        )
    return Slides(
        {name: int(name.startswith("tumor")) for name in TRAINING if name in chosen},
        {name: classes[name] for name in test},
    )


def _reference(path: Path) -> dict[str, int]:
    if not path.is_file():
        raise StorageError(
            item=f"{str(path)!r}",
            wanted="the classes of the test slides",
            got="no such file",
            fix="copy testing/reference.csv of the challenge's data (camelyon17.grand-challenge.org/Data) there",
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise not_readable(f"{str(path)!r}", "a readable CSV file", error, "copy the file again") from error
    if rows and re.fullmatch(r"test_\d{3}(\.tif)?", rows[0][0].strip().lower()):
        classes_by_name = [(row[0], row[1] if len(row) > 1 else "") for row in rows]
    else:
        table = read_label_table(path)
        classes_by_name = list(zip(table.ids, table.labels, strict=True))
    classes = {}
    for name, word in classes_by_name:
        if word.strip().lower() not in WORDS:
            raise DataError(
                item=f"slide {name!r} of {str(path)!r}",
                wanted="the class Normal or Tumor",
                got=repr(word),
                fix="correct the line",
            )
        classes[strip_endings(name).lower()] = WORDS[word.strip().lower()]
    return classes


def _chosen(path: Path) -> set[str]:
    if not path.is_file():
        return {*TRAINING, *TEST}
    columns = read_text_columns(path)
    if "slide_id" not in columns:
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="a column slide_id",
            got=f"columns {', '.join(columns)}",
            fix="name the column of the slides' names so",
        )
    names = [strip_endings(name) for name in columns["slide_id"]]
    unknown = [name for name in names if name not in {*TRAINING, *TEST}]
    if unknown:
        raise DataError(
            item=f"slide {unknown[0]!r} of {str(path)!r}",
            wanted="an official name, normal_001, tumor_001, test_001 and so on",
            got=f"{len(unknown)} others",
            fix="name slides as the challenge does (normal_086 and test_049 were withdrawn)",
        )
    return set(names)
