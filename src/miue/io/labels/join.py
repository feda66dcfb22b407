"""Bags and a label table are joined by name; what is in one alone is left out and listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import ne

from miue.bags.classes import by_their_names, known_labels
from miue.bags.names import barcode_of_patient, hints_at, match_names, patients_in_names, strip_endings
from miue.bags.table_columns import read_classes
from miue.common.errors import ConfigError, DataError
from miue.common.text import plural
from miue.io.labels.label_table import LabelTable
from miue.io.loaded import FoundBags, LeftOut, LoadedBags
from miue.io.splits.splits import Splits


def label_bags(found: FoundBags, table: LabelTable | None, classes: Sequence[str] = ()) -> LoadedBags:
    """Return the bags that a table lists, with its classes, patients and folds; all bags without a table.

    Args:
        found: the bags.
        table: their labels; None for bags with labels of their own, or without any.
        classes: order of the classes; the first is the negative one. Sorted by name if empty.

    Raises:
        ConfigError: a table for bags that have labels.
        DataError: a name that may be that of two bags, a class that is not among those specified, a table of
            patients alone, or bags that cannot be used.
    """
    if table is None:
        return replace(found.read(found.ids, (), classes), label_columns=found.label_columns)
    if found.has_labels:
        raise ConfigError(
            item=f"label table {table.source!r}",
            wanted="bags without labels",
            got=f"{found.path!r}, which has labels of its own",
            fix="leave out --labels (in Python labels), or remove the labels from the bags",
        )
    row_of, left_out, by_patient = _match(table, found.ids, found.path)
    table = replace(table, labels=by_their_names(known_labels(table.labels, table.source, classes), classes))
    names = table.class_names(classes)
    loaded = found.read(list(row_of), left_out, names)
    bags = loaded.bags
    rows = [row_of[name] for name in bags.ids]
    labels = read_classes([table.labels[row] for row in rows], table.source, "label", names)
    patients = tuple(
        table.patients[row] if by_patient or table.patients[row] != table.ids[row] else name
        for name, row in zip(bags.ids, rows, strict=True)
    )
    are_known = any(map(ne, map(strip_endings, patients), map(strip_endings, bags.ids)))
    bags = replace(bags, labels=labels, class_names=names, patients=patients if are_known else None)
    folds = tuple(
        {name: fold[row] for name, row in zip(bags.ids, rows, strict=True) if fold[row]}
        for fold in table.folds.values()
    )
    return replace(
        loaded,
        bags=bags,
        notes=(
            *loaded.notes,
            *_describe_repeats(table),
            *([_describe_patients(table, row_of)] if by_patient else []),
        ),
        folds=Splits(table.source, folds) if folds else loaded.folds,
        label_columns=table.columns,
    )


def with_patients_of_barcodes(loaded: LoadedBags) -> LoadedBags:
    """Return bags without stated patients with those that names of TCGA begin with, and a note that says so."""
    bags = loaded.bags
    barcodes = list(map(barcode_of_patient, bags.ids))
    is_stated = bags.patients is not None or "patient" in (loaded.label_columns or {})
    if is_stated or all(
        barcode in ("", strip_endings(name)) for barcode, name in zip(barcodes, bags.ids, strict=True)
    ):
        return loaded
    count, found = len(barcodes) - barcodes.count(""), len({*barcodes} - {""})
    note = (
        f"patients: {plural(found, 'TCGA barcode')} that the names of {plural(count, 'bag')} begin with "
        "(--patients none, in Python patients='none', turns this off)"
    )
    patients = tuple(barcode or name for barcode, name in zip(barcodes, bags.ids, strict=True))
    return replace(loaded, bags=replace(bags, patients=patients), notes=(*loaded.notes, note))


def _match(labels: LabelTable, names: Sequence[str], where: str) -> tuple[dict[str, int], list[LeftOut], bool]:
    """Return the row of each bag that the table lists, in its order, and what is in one of the two alone.

    Of a table of patients, bags are listed whose names begin with that of their patient; the last value says
    whether they are.

    Raises:
        DataError: a name that may be that of two bags, or a table of patients in which bags do not find theirs.
    """
    bag_rows = match_names(labels.ids, names, labels.source)
    rows = {names[bag_row]: row for row, bag_row in enumerate(bag_rows) if bag_row is not None}
    by_patient = not rows and labels.is_of_patients
    if by_patient:
        rows = _rows_of_patients(labels, names, where)
    listed = set(rows.values())
    unlisted = sorted(set(names) - set(rows))
    missing = [name for row, name in enumerate(labels.ids) if row not in listed]
    no_such = f"listed in {labels.source!r}, but {where!r} has no such bag"
    hints = zip(missing, hints_at(missing, unlisted), strict=True)
    left_out = [LeftOut(name, f"{no_such}{hint}") for name, hint in hints]
    left_out += [LeftOut(name, f"a bag that {labels.source!r} does not list", is_bad=False) for name in unlisted]
    return rows, left_out, by_patient


def _describe_repeats(labels: LabelTable) -> list[str]:
    """Return that rows were passed over which say the same as others, if there were any."""
    if not labels.repeats:
        return []
    say = "says the same as another" if labels.repeats == 1 else "say the same as others"
    return [f"{labels.source!r} has {plural(labels.repeats, 'row')} that {say}; they count once"]


def _describe_patients(labels: LabelTable, rows: Mapping[str, int]) -> str:
    """Return which bags were found by their patients."""
    first = next(iter(rows))
    return (
        f"{labels.source!r} lists patients; {plural(len(rows), 'bag')} whose names begin with one of them are "
        f"taken for theirs, such as {first!r} for that of {labels.ids[rows[first]]!r}"
    )


def _rows_of_patients(labels: LabelTable, names: Sequence[str], where: str) -> dict[str, int]:
    """Return the row of the patient with whose name the name of each bag begins, in the order of the table.

    Raises:
        DataError: no bag whose name does, or one that begins with the names of two.
    """
    found = dict(zip(names, patients_in_names(names, labels.ids), strict=True))
    several = next((name for name, rows in found.items() if len(rows) > 1), None)
    if several is None and any(found.values()):
        row_of = {name: rows[0] for name, rows in found.items() if rows}
        return dict(sorted(row_of.items(), key=lambda pair: pair[1]))
    hint = next(filter(None, hints_at(labels.ids, names)), "") if several is None else ""
    got = f"only patients (column {labels.id_column!r}), such as {labels.ids[0]!r}{hint}"
    if several is not None:
        both = " and ".join(repr(labels.ids[row]) for row in found[several][:2])
        got = f"{got}, and {several!r} begins with {both}"
    raise DataError(
        item=f"label table {labels.source!r}",
        wanted=f"names of the bags of {where!r}, such as {names[0]!r}",
        got=got,
        fix="say which bags are whose: a table of patients and bags (PATIENT, FILENAME) as --slide-table, in "
        "Python slide_table=, or a column slide_id",
    )
