"""Columns of tables: their names, what they say of bags or instances, and where they say what they cannot.

Every table goes through here: stores, long tables, tables of labels and of predictions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float64, Int64

from miue.bags.cells import UNKNOWN_WORDS, cell_name, is_number, known_text, row_name, whole_number
from miue.bags.classes import by_their_names, check_classes, known_labels
from miue.bags.known import Coords, Labels, OodFlags, Outcomes, Slides
from miue.common.errors import DataError, unknown_name
from miue.common.numbers import LARGEST_COORD, MOST_EXACT

T = TypeVar("T")

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
TRUE, FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")
SPLIT_WORDS = ("train", "val", "test", "calibration")
SPLIT_NAMES = {
    "": "",
    "nan": "",
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
    "calibration": "calibration",
}


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


@dataclass(frozen=True, eq=False)
class ItemColumns:
    """What is known of n items beside their features or their predictions.

    Attributes:
        labels: class of each item, where known.
        is_ood: whether each item is out of distribution, as far as that is known.
        ood_sets: where an out-of-distribution item comes from, "" for none.
        patients: of each item, "" where unknown; None where no patient is known.
        coords: position of each item, None where none has any.
        patch_sizes: side of each item's patches in level-0 pixels, 0 where unknown; None where all are.
        outcomes: numbers that the labels are intervals of, of a target that has them; else None.
        slides: of each instance, where bags hold several; None elsewhere.
    """

    labels: Labels
    is_ood: OodFlags
    ood_sets: np.ndarray
    patients: np.ndarray | None = None
    coords: Coords | None = None
    patch_sizes: Int64[np.ndarray, "n"] | None = None
    outcomes: Outcomes | None = None
    slides: Slides | None = None

    @classmethod
    def unknown(cls, count: int) -> ItemColumns:
        """Return the columns of ``count`` items of which nothing is known."""
        return cls(Labels.unknown(count), OodFlags.unknown(count), np.full(count, "", object))

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, rows: Any) -> ItemColumns:
        """Return the columns of the items in the given rows."""
        known = {name: column[rows] for name, column in self.columns().items() if column is not None}
        return replace(self, **known)

    def columns(self) -> dict[str, Any]:
        """Return every column by its name."""
        return {one.name: getattr(self, one.name) for one in fields(ItemColumns)}

    @classmethod
    def concatenate(cls, parts: Sequence[ItemColumns]) -> ItemColumns:
        """Return the columns of all parts, one after the other; what one part lacks is unknown for its items."""
        sizes = [len(part) for part in parts]
        return cls(
            labels=Labels.concatenate([part.labels for part in parts]),
            is_ood=OodFlags.concatenate([part.is_ood for part in parts]),
            ood_sets=np.concatenate([part.ood_sets for part in parts]),
            patients=_filled([p.patients for p in parts], sizes, lambda n: np.full(n, "", object), np.concatenate),
            coords=_filled([p.coords for p in parts], sizes, Coords.unknown, Coords.concatenate),
            patch_sizes=_filled(
                [p.patch_sizes for p in parts], sizes, lambda n: np.zeros(n, np.int64), np.concatenate
            ),
            outcomes=_filled([p.outcomes for p in parts], sizes, Outcomes.unknown, Outcomes.concatenate),
            slides=_filled([p.slides for p in parts], sizes, Slides.unknown, Slides.concatenate),
        )


def _filled(
    columns: Sequence[T | None],
    sizes: Sequence[int],
    unknown: Callable[[int], T],
    concatenate: Callable[[list[T]], T],
) -> T | None:
    """Return one column of all parts, unknown for the parts without it; None where no part has it."""
    if all(column is None for column in columns):
        return None
    return concatenate(
        [unknown(n) if column is None else column for column, n in zip(columns, sizes, strict=True)]
    )


def read_item_columns(columns: Mapping[str, Any], table: str, labels: Labels | None = None) -> ItemColumns:
    """Return what the columns of a table say of its rows.

    Args:
        columns: text of each row under is_ood, ood_set, patient, patch_size and slide, numbers under x and y, as
            far as the table has them, and at least one other.
        table: its name, for messages.
        labels: of the rows.

    Raises:
        DataError: a cell that says none of what it can say.
    """
    count = len(next(iter(columns.values())))
    nothing = np.full(count, "", object)
    flags = read_flags(columns["is_ood"], table) if "is_ood" in columns else OodFlags.unknown(count)
    is_ood, ood_sets = with_named_sets(flags, columns.get("ood_set", nothing), table)
    patients = np.array([known_text(str(text)) for text in columns.get("patient", nothing)], object)
    return ItemColumns(
        labels=Labels.unknown(count) if labels is None else labels,
        is_ood=is_ood,
        ood_sets=ood_sets,
        patients=patients if (patients != "").any() else None,
        coords=read_coords(columns["x"], columns["y"], table) if {"x", "y"} <= set(columns) else None,
        patch_sizes=whole_numbers(columns["patch_size"], table, "patch_size") if "patch_size" in columns else None,
        outcomes=read_outcomes(columns, table) if "outcome" in columns else None,
        slides=Slides.of([*map(known_text, map(str, columns["slide"]))]) if "slide" in columns else None,
    )


def numbers_in_cells(cells: Sequence[str], table: str, column: str) -> Float64[np.ndarray, "n"]:
    """Return the numbers in a column of text, NaN where a cell is empty or says that nothing is known.

    Raises:
        DataError: a cell that holds something else, such as a number with a unit.
    """
    texts = [known_text(cell.strip()) for cell in cells]
    for row, text in enumerate(texts):
        if text and not (is_number(text) and np.isfinite(float(text))):
            raise DataError(
                item=f"table {table!r}, {row_name(table, row)}, column {column!r}",
                wanted="a number without a unit, or empty where unknown",
                got=repr(text),
                fix="correct the cell, or name another column",
            )
    return np.array([float(text) if text else np.nan for text in texts], np.float64)


def read_outcomes(columns: Mapping[str, Any], table: str) -> Outcomes:
    """Return the numbers of a column, and of another, where there is one, whether each was observed.

    Args:
        columns: numbers under outcome, NaN where unknown; 0 or 1, as text, under observed.
        table: its name, for messages.

    Raises:
        DataError: an event that is neither, or none beside a number.
    """
    outcomes = Outcomes.of(columns["outcome"])
    if "observed" not in columns:
        return outcomes
    events = read_flags(columns["observed"], table, "observed")
    missing = np.flatnonzero(outcomes.known & ~events.known)
    if len(missing):
        raise DataError(
            item=f"table {table!r}, {row_name(table, missing[0])}, column of events",
            wanted="1 for an event, or 0 for the end of observation",
            got="an empty cell beside a time",
            fix="fill the cell, or empty the time",
        )
    return replace(outcomes, observed=events.values | ~outcomes.known)


def read_instance_columns(
    columns: Mapping[str, Any],
    table: str,
    names: Sequence[str],
    flags: OodFlags,
    order: Int64[np.ndarray, "M"] | None = None,
) -> ItemColumns:
    """Return what is known of the instances of bags.

    Args:
        columns: of a table text under instance_label, numbers under x and y; of a store instance_labels,
            instance_labelled, instance_is_ood, instance_ood_known, coords and located; as far as there are any.
        table: the name of the table or the store, for messages.
        names: those of the classes.
        flags: whether the instances are out of distribution, where the columns do not say so.
        order: the row of each instance in the table; None where the order is the same.

    Raises:
        DataError: a label that is no class, or one number of two for a position.
    """
    total = len(flags)
    labels, coords = Labels.unknown(total), None
    if "instance_label" in columns:
        labels = read_classes(columns["instance_label"], table, "instance_label", names)
    elif "instance_labels" in columns:
        labels = Labels(columns["instance_labels"], columns["instance_labelled"])
        check_classes(labels, f"instance_labels.npy of {table!r}", len(names))
    if {"x", "y"} <= set(columns):
        coords = read_coords(columns["x"], columns["y"], table)
    elif "coords" in columns:
        coords = Coords(columns["coords"], columns.get("located", np.ones(total, bool)))
    if order is not None:
        labels, coords = labels[order], None if coords is None else coords[order]
    known = columns.get("instance_ood_known", flags.known)
    is_ood = OodFlags(columns.get("instance_is_ood", flags.values) & known, known)
    return ItemColumns(labels, is_ood, np.full(total, "", object), coords=coords)


def split_name(text: str) -> str:
    """Return "train", "validation", "test", "calibration" or "" for what tables call them.

    Raises:
        ConfigError: another word.
    """
    word = text.strip().lower()
    if word not in SPLIT_NAMES:
        raise unknown_name("split", text, SPLIT_WORDS)
    return SPLIT_NAMES[word]


def read_classes(
    values: Any, table: str, column: str, names: Sequence[str] = (), num_classes: int | None = None
) -> Labels:
    """Return labels from a column with names of classes or their numbers; an empty cell is an unknown label.

    Where a class has a number for its name, and not its own, cells are names alone: with the classes 1 and 2, a
    cell of 0 is none of them, and not the first.

    Args:
        values: the column, text.
        table: its name, for messages.
        column: the name of the column, likewise.
        names: those of the classes; numbers alone are read without.
        num_classes: how many there are; as many as names, at least two, if None.

    Raises:
        DataError: a cell that is neither.
    """
    distinct, places = np.unique(np.asarray(values, object).astype(str), return_inverse=True)
    count = max(2, len(names)) if num_classes is None else num_classes
    numbers = np.full(len(distinct), -1, np.int64)
    by_number = are_their_numbers(names)
    cells = distinct.tolist()
    words = by_their_names(known_labels(cells, table, names) if names else map(known_text, cells), names)
    for position, (text, word) in enumerate(zip(cells, words, strict=True)):
        if word:
            number = list(names).index(word) if word in names else whole_number(word) if by_number else None
            if number is None or not 0 <= number < count:
                index = f"a class index from 0 to {count - 1}, " if by_number else ""
                known_as = "names or numbers" if by_number else "names"
                use = f"use the {known_as} of the classes" if names else "use their numbers, or name the classes"
                raise DataError(
                    item=cell_name(table, places, position, column),
                    wanted=f"{_one_of(names)}{index}or empty where unknown",
                    got=repr(text),
                    fix=f"{use}; mark out-of-distribution rows with is_ood",
                )
            numbers[position] = number
    return Labels(np.maximum(numbers, 0)[places], (numbers >= 0)[places])


def are_their_numbers(names: Sequence[str]) -> bool:
    """Return whether no class has the number of another, or of none, for its name.

    >>> are_their_numbers(["0", "1"]), are_their_numbers(["no", "yes"]), are_their_numbers(["1", "2"])
    (True, True, False)
    """
    found = [whole_number(name) for name in names]
    return all(number in (None, place) for place, number in enumerate(found))


def read_flags(values: Any, table: str, column: str = "is_ood") -> OodFlags:
    """Return which cells of a column say yes and which no; an empty one says neither.

    Args:
        values: the column, text or truth values.
        table: its name, for messages.
        column: the name of the column, likewise.

    Raises:
        DataError: a cell that holds something else.
    """
    distinct, places = np.unique(np.asarray(values).astype(str), return_inverse=True)
    words = [text.strip().lower() for text in distinct.tolist()]
    for position, word in enumerate(words):
        if word not in (*TRUE, *FALSE, *UNKNOWN_WORDS):
            raise DataError(
                item=cell_name(table, places, position, column),
                wanted="true, false, or empty where unknown",
                got=repr(str(distinct[position])),
                fix="write true or false, or empty the cell",
            )
    return OodFlags.of([None if word in UNKNOWN_WORDS else word in TRUE for word in words])[places]


def with_named_sets(flags: OodFlags, names: Sequence[str] | np.ndarray, table: str) -> tuple[OodFlags, np.ndarray]:
    """Return flags and names of out-of-distribution sets that agree with each other.

    A named set says that an item is out of distribution where its flag is unknown; "ood" is the set of an item
    that is out of distribution and names none.

    Args:
        flags: of the rows of a table.
        names: its column ``ood_set``.
        table: for messages.

    Raises:
        DataError: a set is named for a row that is said to be in distribution.
    """
    words = {name: known_text(str(name)) for name in set(names)}
    sets = np.array([words[name] for name in names], object)
    wrong = np.flatnonzero((sets != "") & flags.in_distribution)
    if len(wrong):
        raise DataError(
            item=f"table {table!r}, {row_name(table, wrong[0])}, column 'ood_set'",
            wanted="nothing where is_ood is false",
            got=repr(str(sets[wrong[0]])),
            fix="empty the cell, or write true into is_ood",
        )
    agreed = OodFlags(flags.values | (sets != ""), flags.known | (sets != ""))
    return agreed, np.where(agreed.out_of_distribution & (sets == ""), "ood", sets).astype(object)


def read_coords(x: Float64[np.ndarray, "n"], y: Float64[np.ndarray, "n"], table: str) -> Coords | None:
    """Return the positions in two columns of a table, None where they hold none.

    Args:
        x: in level-0 pixels, NaN where a cell is empty.
        y: likewise.
        table: its name, for messages.

    Raises:
        DataError: one cell of the two is empty, or a number is none that a pixel can have.
    """
    known = ~(np.isnan(x) & np.isnan(y))
    values = np.where(known[:, None], np.stack([x, y], 1), 0)
    wrong: np.ndarray = np.flatnonzero(~(np.abs(values) <= LARGEST_COORD).all(1))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            item=f"table {table!r}, {row_name(table, row)}, columns 'x' and 'y'",
            wanted="two numbers of pixels, at most 2^53 from 0, or two empty cells where the place is unknown",
            got=" and ".join("none" if np.isnan(one) else f"{one:g}" for one in (x[row], y[row])),
            fix=f"correct {len(wrong):,} rows that have neither" if len(wrong) > 1 else "correct the row",
        )
    return Coords(values.round().astype(np.int64), known) if known.any() else None


def read_splits_column(values: Sequence[str], table: str) -> tuple[str, ...]:
    """Return the split of each row.

    Raises:
        DataError: a word that is no split.
    """
    words = [text.strip().lower() for text in values]
    for row, word in enumerate(words):
        if word not in SPLIT_NAMES:
            error = unknown_name("split", values[row], SPLIT_WORDS)
            item = f"table {table!r}, {row_name(table, row)}, {error.item}"
            raise DataError(item=item, wanted=error.wanted, got=error.got, fix=error.fix)
    return tuple(SPLIT_NAMES[word] for word in words)


def whole_numbers(values: Any, table: str, column: str) -> Int64[np.ndarray, "n"]:
    """Return a column of whole numbers from 0 on.

    Raises:
        DataError: a cell that is none.
    """
    cells: np.ndarray = np.asarray(values)
    if cells.dtype.kind not in "iuf":
        found = [whole_number(str(value)) for value in values]
        cells = np.array([np.nan if number is None else number for number in found], np.float64)
    usable = (cells >= 0) & (np.abs(cells) <= MOST_EXACT) & (cells == np.floor(cells))
    if not usable.all():
        row = int(usable.argmin())
        got = values[row]
        raise DataError(
            item=f"table {table!r}, {row_name(table, row)}, column {column!r}",
            wanted="a whole number from 0 on",
            got=repr(got.item() if isinstance(got, np.generic) else got),
            fix="correct the cell",
        )
    return cells.astype(np.int64)


def _one_of(names: Sequence[str]) -> str:
    return f"one of {', '.join(names)}, " if names else ""
