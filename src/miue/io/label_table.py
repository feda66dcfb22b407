"""Tables of labels as CLAM, Patho-Bench, MIREL, STAMP and people write them, and arrays of torchmil."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from miue.bags.cells import known_text, row_name
from miue.bags.classes import by_their_names, class_names, known_labels
from miue.bags.columns import BAG, LABEL_COLUMNS, PATIENT_COLUMNS, lower_case, numbers_rows, read_splits_column
from miue.bags.names import named_twice, strip_endings
from miue.common.errors import DataError, first_repeated, lacking, missing_column, repeated, unknown_name
from miue.common.tables import read_text_columns
from miue.common.text import plural
from miue.io.columns import check_meanings, find_column, how_to_specify
from miue.io.formats.base import refusing
from miue.io.formats.numpy_files import UNREADABLE, memory_mapped
from miue.io.verdicts import is_of_verdicts, labels_of_verdicts
from miue.settings import ReadFile

BAG_COLUMNS = (
    *("slide_id", "bag_id", "bag_name", "filename", "pathology_id", "slide", "wsi_id", "image_id", "video_id"),
    *("video", "id"),
)
FOLD = re.compile(r"fold_(\d+)")
OF_DSMIL = "0"
"""The column of paths in the lists that DSMIL writes, which has no other name."""


@dataclass(frozen=True)
class LabelTable(ReadFile):
    """Labels, patients and folds of bags, one row each.

    Attributes:
        source: the file, for messages.
        ids: name of each bag, as the table writes it.
        labels: its class as the table writes it, which can be a word for an unknown one.
        patients: whose bag it is; the bag's own name where the table does not say.
        folds: "train", "validation", "test" or "" of each bag, for each ``fold_k`` of the table.
        columns: the names of the columns of the label and, where there is one, of the patient.
        id_column: that of the ids, "" where there is none; that of the patient where no other names bags.
        events: whether the time that is the label ends with an event, as the table writes it; none without.
        cells: text of every column, by which slides can become one bag.
    """

    source: str
    ids: tuple[str, ...]
    labels: tuple[str, ...]
    patients: tuple[str, ...]
    folds: Mapping[int, tuple[str, ...]]
    columns: Mapping[str, str] = field(default_factory=dict)
    id_column: str = ""
    events: tuple[str, ...] = ()
    cells: Mapping[str, Sequence[str]] = field(default_factory=dict)

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
        known = by_their_names(known_labels(self.labels, self.source, order), order)
        return class_names(known, self.source, order)


def read_label_table(
    path: Path,
    columns: Mapping[str, str] | None = None,
    *,
    slide_table: Path | str | None = None,
    covariates: Sequence[str] = (),
) -> LabelTable:
    """Return the labels of the table at ``path``; its columns are found by their names unless specified.

    Args:
        path: CSV, or text with tabs or semicolons between columns, or Parquet.
        columns: names of columns by what they mean: bag_id, label, event, patient.
        slide_table: STAMP's second table, PATIENT and FILENAME, where ``path`` has one row per patient.
        covariates: columns that are no labels; a table of these needs none.

    Raises:
        StorageError: missing or unreadable.
        DataError: columns that are not found, an empty or a repeated id, a patient without slides.
        ConfigError: a column that does not exist, or another meaning.
    """
    specified = columns or {}
    check_meanings(specified, (BAG, "label", "event", "patient"))
    cells = read_text_columns(path)
    if is_of_verdicts(list(cells)):
        cells = labels_of_verdicts(cells)
    bags = _chosen(path, cells, specified.get(BAG), BAG_COLUMNS, "id")
    patients = _chosen(path, cells, specified.get("patient"), PATIENT_COLUMNS, "patient")
    labels = _chosen(path, cells, specified.get("label"), LABEL_COLUMNS, "label")
    event = specified.get("event")
    if event is not None and event not in cells:
        raise unknown_name("event column", event, cells)
    labels = labels or _only_other(path, cells, covariates, bags, patients, event)
    folds = fold_columns(path, cells)
    used = {what: name for what, name in (("label", labels), ("patient", patients)) if name is not None}
    if slide_table is not None:
        if patients is None:
            raise _no_column(path, "patient", PATIENT_COLUMNS, cells)
        cells = _joined(path, cells, patients, Path(slide_table))
        bags, patients = BAG_COLUMNS[0], PATIENT_COLUMNS[0]
    bags = bags or patients or (OF_DSMIL if OF_DSMIL in cells else None)
    if bags is None:
        raise _no_column(path, "id", BAG_COLUMNS, cells)
    ids = tuple(map(str.strip, cells[bags]))
    _check_ids(path, ids, bags)
    owners = ids if patients is None else tuple(map(known_text, cells[patients]))
    return LabelTable(
        source=str(path),
        ids=ids,
        labels=("",) * len(ids) if labels is None else tuple(map(str.strip, cells[labels])),
        patients=tuple(patient or bag for patient, bag in zip(owners, ids, strict=True)),
        folds={fold: read_splits_column(cells[name], str(path)) for fold, name in folds.items()},
        columns=used,
        id_column=bags,
        events=() if event is None else tuple(map(str.strip, cells[event])),
        cells=cells,
    )


def fold_columns(path: Path, columns: Iterable[str]) -> dict[int, str]:
    """Return the columns ``fold_0``, …, in order, else the column ``split`` as the only fold."""
    names = list(columns)
    folds = {int(match[1]): name for name in names if (match := FOLD.fullmatch(lower_case(name)))}
    split = find_column(names, ("split",), str(path))
    return dict(sorted(folds.items())) if folds or split is None else {0: split}


def read_label_arrays(folder: Path) -> LabelTable:
    """Return the labels of bags from arrays ``<bag>.npy`` of one whole number each; the bags have no patients.

    Raises:
        DataError: no such arrays, or one that is damaged or holds something else.
    """
    files = label_arrays_in(folder)
    labels = []
    for path in files:
        numbers = read_label_array(path)
        if numbers.size != 1:
            raise _no_label(path, "the label of a bag: one whole number", f"an array of shape {numbers.shape}")
        labels.append(str(numbers.item()))
    ids = tuple(path.stem for path in files)
    return LabelTable(str(folder), ids, tuple(labels), ids, {}, {"label": folder.name})


def label_arrays_in(folder: Path) -> list[Path]:
    """Return the arrays of labels in a folder, one for each bag.

    Raises:
        DataError: there is none.
    """
    files = sorted(folder.glob("*.npy"))
    if not files:
        fix = "pass a table (CSV, Parquet), or the folder of the arrays"
        raise lacking(f"labels {str(folder)!r}", "a table, or a folder with an array <bag>.npy for each bag", fix)
    return files


def read_label_array(path: Path) -> Int64[np.ndarray, "..."]:
    """Return the labels in an array.

    Raises:
        DataError: it is damaged, or holds no whole numbers.
    """
    with refusing(path, "a whole .npy array of numbers", *UNREADABLE, fix="write this array again"):
        numbers = np.array(memory_mapped(path))
    if numbers.dtype.kind not in "iufb" or not (np.isfinite(numbers) & (numbers == np.floor(numbers))).all():
        raise _no_label(path, "labels that are whole numbers", f"values of type {numbers.dtype}")
    return numbers.astype(np.int64)


def _chosen(
    path: Path, columns: Iterable[str], specified: str | None, known: Sequence[str], what: str
) -> str | None:
    """Return the specified column, else the first of the known names that is there."""
    if specified is not None:
        if specified not in columns:
            raise unknown_name(f"{what} column", specified, columns)
        return specified
    return find_column(columns, known, str(path))


def _only_other(
    path: Path, columns: Mapping[str, list[str]], covariates: Sequence[str], *taken: str | None
) -> str | None:
    """Return the one column that is neither id, patient, fold nor index: the task of Patho-Bench.

    None where there are covariates alone.
    """
    others = [
        name
        for name in columns
        if name not in (*taken, *covariates)
        and not numbers_rows(name)
        and lower_case(name) != "split"
        and not FOLD.fullmatch(lower_case(name))
    ]
    if len(others) == 1:
        return others[0]
    if covariates and not others:
        return None
    raise _no_column(path, "label", LABEL_COLUMNS, others or columns)


def _joined(
    path: Path, columns: Mapping[str, list[str]], patients: str, slide_table: Path
) -> dict[str, list[str]]:
    """Return one row per slide: what the table says of its patient."""
    slides = read_text_columns(slide_table)
    owner = find_column(slides, PATIENT_COLUMNS, str(slide_table))
    files = find_column(slides, BAG_COLUMNS, str(slide_table))
    if owner is None or files is None:
        what, known = ("patient", PATIENT_COLUMNS) if owner is None else ("id", BAG_COLUMNS)
        raise _no_column(slide_table, what, known, slides)
    names, owners = (list(map(str.strip, column)) for column in (columns[patients], slides[owner]))
    row_of = {patient: row for row, patient in enumerate(names)}
    if (twice := first_repeated(names)) is not None:
        raise repeated(f"patient {twice!r} of {str(path)!r}", "one row per patient", names.count(twice))
    if without := sorted(set(names) - set(owners)):
        raise DataError(
            item=f"patient {without[0]!r} of {str(path)!r}",
            wanted=f"a slide in {str(slide_table)!r}",
            got=f"none, for {plural(len(without), 'patient')}",
            fix="add their slides, or take them out of the table",
        )
    kept = [(slide, row_of[one]) for slide, one in zip(slides[files], owners, strict=True) if one in row_of]
    joined = {name: [values[row] for _, row in kept] for name, values in columns.items()}
    joined[PATIENT_COLUMNS[0]] = [names[row] for _, row in kept]
    joined[BAG_COLUMNS[0]] = [slide for slide, _ in kept]
    return joined


def _check_ids(path: Path, ids: Sequence[str], column: str) -> None:
    """Raise unless each row names a bag of its own."""
    keys = list(map(strip_endings, ids))
    if "" in keys:
        item = f"table {str(path)!r}, {row_name(str(path), keys.index(''))}"
        raise DataError(item=item, wanted="the name of a bag", got="nothing", fix="fill the cell")
    if (twice := named_twice(ids)) is not None:
        item = f"bag {twice!r} of {str(path)!r}, column {column!r}"
        raise repeated(item, "one row", keys.count(strip_endings(twice)), "keep one of them, or name each slide")


def _no_column(path: Path, what: str, known: Sequence[str], columns: Iterable[str]) -> DataError:
    wanted = f"a column for the {what}, such as {', '.join(known[:3])}"
    empty = "; of bags without a label its cells are empty" if what == "label" else ""
    how = how_to_specify(BAG if what == "id" else what)
    return missing_column(f"table {str(path)!r}", wanted, columns, f"pass {how}{empty}")


def _no_label(path: Path, wanted: str, got: str) -> DataError:
    return DataError(item=f"labels {str(path)!r}", wanted=wanted, got=got, fix="write this array again")
