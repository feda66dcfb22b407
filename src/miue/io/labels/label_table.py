"""Tables of labels as CLAM, Patho-Bench, MIREL and STAMP write them; every id is text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from unicodedata import normalize

from miue.bags.cells import check_formulas, known_text, row_name, text_of_formula
from miue.bags.classes import by_their_names, class_names, known_labels
from miue.bags.column_names import BAG, LABEL_COLUMNS, PATIENT_COLUMNS, lower_case, numbers_rows
from miue.bags.names import find_rows, named_twice, strip_endings, without_folder
from miue.bags.table_columns import read_splits_column
from miue.common.errors import DataError, first_repeated, missing_column, repeated, unknown_name
from miue.common.tables import read_text_columns
from miue.common.text import plural
from miue.io.tables.columns import check_meanings, find_column, how_to_specify

BAG_COLUMNS = (
    *("slide_id", "bag_id", "bag_name", "filename", "pathology_id", "slide", "wsi_id", "image_id", "video_id"),
    *("video", "id"),
)
FOLD = re.compile(r"fold_(\d+)")


@dataclass(frozen=True)
class LabelTable:
    """Labels, patients and folds of bags, one row each.

    Attributes:
        source: the file, for messages.
        ids: name of each bag, as the table writes it.
        labels: its class as the table writes it, which can be a word for an unknown one.
        patients: whose bag it is; the bag's own name where the table does not say.
        folds: "train", "validation", "test" or "" of each bag, for each ``fold_k`` of the table.
        columns: the names of the columns of the label and, where there is one, of the patient; that of the ids
            where it was found by the names of the bags.
        id_column: that of the ids, "" where there is none; that of the patient where no other names bags.
        repeats: how many rows were passed over since they say the same as others.
    """

    source: str
    ids: tuple[str, ...]
    labels: tuple[str, ...]
    patients: tuple[str, ...]
    folds: Mapping[int, tuple[str, ...]]
    columns: Mapping[str, str] = field(default_factory=dict)
    id_column: str = ""
    repeats: int = 0

    made_by: ClassVar[str] = (
        "write them as a table (a data frame by its to_csv) of bag_id and label; pass its path"
    )

    @property
    def is_of_patients(self) -> bool:
        """Whether the ids are the names of patients."""
        return self.id_column != "" and self.id_column == self.columns.get("patient")

    def class_names(self, order: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the classes in the specified order, else sorted; numbers by value.

        Raises:
            DataError: an order that leaves a class of the table out, fewer than two classes, or a word that can be
                a class or an unknown label.
        """
        return class_names(
            by_their_names(known_labels(self.labels, self.source, order), order), self.source, order
        )


def read_label_table(
    path: Path,
    columns: Mapping[str, str] | None = None,
    *,
    slide_table: Path | str | None = None,
    bag_names: Sequence[str] = (),
) -> LabelTable:
    """Return the labels of the table at ``path``; its columns are found by their names unless specified.

    Args:
        path: CSV, or text with tabs or semicolons between columns, or Parquet.
        columns: names of columns by what they mean: bag_id, label, patient.
        slide_table: STAMP's second table, PATIENT and FILENAME, where ``path`` has one row per patient.
        bag_names: those of the bags that are labeled: where no column is called as one of ids, or none of its
            cells is among them, the one that holds them is that of the ids.

    Raises:
        StorageError: missing or unreadable.
        DataError: columns that are not found, an empty or a repeated id, a patient without slides.
        ConfigError: a column that does not exist, or a meaning other than these three.
    """
    specified = columns or {}
    check_meanings(specified, (BAG, "label", "patient"))
    cells = _rows_of_bags(read_text_columns(path))
    named = _chosen(path, cells, specified.get("bag_id"), BAG_COLUMNS, "id")
    if named is None:
        _check_first_line(path, cells, bag_names)
    bags = named if "bag_id" in specified else _with_names(cells, named, bag_names)
    patients = _chosen(path, cells, specified.get("patient"), PATIENT_COLUMNS, "patient")
    labels = _chosen(path, cells, specified.get("label"), LABEL_COLUMNS, "label")
    labels = labels or _only_other(path, cells, bags, patients)
    folds = fold_columns(path, cells)
    used = {"label": labels, **({} if patients is None else {"patient": patients})}
    used |= {} if bags in (None, named) else {BAG: bags}
    facts = [labels, *folds.values()]
    if slide_table is not None:
        if patients is None:
            raise _no_column(path, "patient", PATIENT_COLUMNS, cells)
        once = _take(cells, _rows_that_differ(cells, [patients, *facts]))
        cells = _joined(path, once, patients, Path(slide_table))
        bags, patients = BAG_COLUMNS[0], PATIENT_COLUMNS[0]
    bags = bags or patients
    if bags is None:
        raise _no_column(path, "id", BAG_COLUMNS, cells)
    _check_filled(path, cells[bags])
    parts = {fold: read_splits_column(cells[name], str(path)) for fold, name in folds.items()}
    kept = _rows_that_differ(cells, [bags, *([patients] if patients else []), *facts])
    repeats, cells = len(cells[bags]) - len(kept), _take(cells, kept)
    ids = tuple(name.strip() for name in cells[bags])
    _check_ids(path, ids, bags)
    owners = ids if patients is None else tuple(map(known_text, cells[patients]))
    check_formulas(owners, "patient", repr(str(path)))
    return LabelTable(
        source=str(path),
        ids=ids,
        labels=tuple(map(str.strip, cells[labels])),
        patients=tuple(patient or bag for patient, bag in zip(owners, ids, strict=True)),
        folds={fold: tuple(names[row] for row in kept) for fold, names in parts.items()},
        columns=used,
        id_column=bags,
        repeats=repeats,
    )


def _check_first_line(path: Path, columns: Iterable[str], bag_names: Sequence[str]) -> None:
    """Raise if a list of files without names of columns is read as a table: its first line would be lost.

    Raises:
        DataError: a column is called as a bag, or as a file of one, perhaps with a class behind it.
    """
    wanted = set(map(strip_endings, bag_names))
    for column in columns:
        names = {column.strip(), *column.split()[:1], *column.rsplit(maxsplit=1)[:1]}
        if any(without_folder(name) in wanted or strip_endings(name) != normalize("NFC", name) for name in names):
            raise DataError(
                item=f"table {str(path)!r}",
                wanted="a first line with the names of columns",
                got=f"{column!r}, the name of a bag",
                fix="write a line such as bag_id,label above it, and a comma, semicolon or tab between columns",
            )


def _rows_of_bags(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the columns without rows that are of no bag.

    These are empty ones, as spreadsheets leave below a table, names of columns that are repeated, as in joined
    tables, and the two rows below the names in clinical tables of TCGA: other names, and codes. Of a formula that
    is a text alone, as ="007", a cell is that text.
    """
    columns = {name: list(map(text_of_formula, cells)) for name, cells in columns.items()}
    rows = [[cell.strip() for cell in cells] for cells in zip(*columns.values(), strict=True)]
    heading = [name.strip() for name in columns]
    codes = [cell for cell in (rows[1] if len(rows) > 1 else []) if cell]
    first = 2 if codes and all(cell.startswith("CDE_ID:") for cell in codes) else 0
    return _take(
        columns, [row for row, cells in enumerate(rows) if row >= first and any(cells) and cells != heading]
    )


def _rows_that_differ(columns: Mapping[str, list[str]], used: Sequence[str]) -> list[int]:
    """Return the rows without those whose used columns say the same as an earlier row's.

    Clinical tables have a row for each treatment of a patient, or visit.
    """
    facts = zip(*([cell.strip() for cell in columns[name]] for name in used), strict=True)
    first: dict[tuple[str, ...], int] = {}
    return [row for row, fact in enumerate(facts) if first.setdefault(fact, row) == row]


def _take(columns: Mapping[str, list[str]], rows: Sequence[int]) -> dict[str, list[str]]:
    """Return some rows of the columns."""
    return {name: [cells[row] for row in rows] for name, cells in columns.items()}


def fold_columns(path: Path, columns: Iterable[str]) -> dict[int, str]:
    """Return the columns ``fold_0``, …, in order, else the column ``split`` as the only fold."""
    names = list(columns)
    folds = {int(match[1]): name for name in names if (match := FOLD.fullmatch(lower_case(name)))}
    split = find_column(names, ("split",), str(path))
    return dict(sorted(folds.items())) if folds or split is None else {0: split}


def _chosen(
    path: Path, columns: Iterable[str], specified: str | None, known: Sequence[str], what: str
) -> str | None:
    """Return the specified column, else the first of the known names that is there."""
    if specified is not None:
        if specified not in columns:
            raise unknown_name(f"{what} column", specified, columns)
        return specified
    return find_column(columns, known, str(path))


def _only_other(path: Path, columns: Mapping[str, list[str]], *taken: str | None) -> str:
    """Return the one column that is neither id, patient, fold nor index: the task of Patho-Bench."""
    others = [
        name
        for name in columns
        if name not in taken
        and not numbers_rows(name)
        and lower_case(name) != "split"
        and not FOLD.fullmatch(lower_case(name))
    ]
    if len(others) == 1:
        return others[0]
    raise _no_column(path, "label", LABEL_COLUMNS, others or columns)


def _with_names(columns: Mapping[str, list[str]], named: str | None, bag_names: Sequence[str]) -> str | None:
    """Return the column called as one of ids if a cell of it is the name of a bag, else the one that holds names.

    A column that holds a name twice is none of ids. With no such column, or two that hold as many names, the one
    called so is returned.
    """
    wanted = set(map(strip_endings, bag_names))
    if not wanted:
        return named
    found = {
        name: sum(strip_endings(cell) in wanted or without_folder(cell) in wanted for cell in cells)
        for name, cells in columns.items()
        if name == named or named_twice(cells) is None
    }
    most = max(found.values(), default=0)
    holding = [name for name, count in found.items() if count == most > 0]
    return named if found.get(named or "") or len(holding) != 1 else holding[0]


def _joined(
    path: Path, columns: Mapping[str, list[str]], patients: str, slide_table: Path
) -> dict[str, list[str]]:
    """Return one row per slide: what the table says of its patient."""
    slides = {name: list(map(text_of_formula, cells)) for name, cells in read_text_columns(slide_table).items()}
    owner = find_column(slides, PATIENT_COLUMNS, str(slide_table))
    files = find_column(slides, BAG_COLUMNS, str(slide_table))
    if owner is None or files is None:
        what, known = ("patient", PATIENT_COLUMNS) if owner is None else ("id", BAG_COLUMNS)
        raise _no_column(slide_table, what, known, slides)
    names, owners = (list(map(str.strip, column)) for column in (columns[patients], slides[owner]))
    row_of = {patient: row for row, patient in enumerate(names)}
    if (twice := first_repeated(names)) is not None:
        wanted = "one row per patient, or several that say the same"
        raise repeated(f"patient {twice!r} of {str(path)!r}", wanted, names.count(twice))
    kept = [
        (slide, row_of[patient]) for slide, patient in zip(slides[files], owners, strict=True) if patient in row_of
    ]
    without = sorted(set(names) - set(owners))
    if without:
        raise DataError(
            item=f"patient {without[0]!r} of {str(path)!r}",
            wanted=f"a slide in {str(slide_table)!r}",
            got=f"none, for {plural(len(without), 'patient')}",
            fix="add their slides, or take them out of the table",
        )
    joined = {name: [values[row] for _, row in kept] for name, values in columns.items()}
    joined[PATIENT_COLUMNS[0]] = [names[row] for _, row in kept]
    joined[BAG_COLUMNS[0]] = [slide for slide, _ in kept]
    return joined


def _check_filled(path: Path, names: Sequence[str]) -> None:
    keys = list(map(strip_endings, names))
    if "" in keys:
        raise DataError(
            item=f"table {str(path)!r}, {row_name(str(path), keys.index(''))}",
            wanted="the name of a bag",
            got="nothing",
            fix="fill the cell",
        )


def _check_ids(path: Path, ids: Sequence[str], column: str) -> None:
    twice = named_twice(ids)
    if twice is not None:
        item = f"bag {twice!r} of {str(path)!r}, column {column!r}"
        own = f"in a column slide_id or the one of {how_to_specify(BAG)}"
        fix = f"keep one of them; a patient's slides need names of their own, {own}"
        rows = f"{len(find_rows(twice, ids))}"
        counts = Counter(normalize("NFC", name) for name in ids)
        others = sum(count > 1 for name, count in counts.items() if name != twice)
        if others:
            rows += f", and several for {plural(others, 'other bag')}"
        raise repeated(item, "one row, or several that say the same", rows, fix)


def _no_column(path: Path, what: str, known: Sequence[str], columns: Iterable[str]) -> DataError:
    wanted = f"a column for the {what}, such as {', '.join(known[:3])}"
    empty = "; of bags without a label its cells are empty" if what == "label" else ""
    how = how_to_specify(BAG if what == "id" else what)
    return missing_column(f"table {str(path)!r}", wanted, columns, f"pass {how}{empty}")
