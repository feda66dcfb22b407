"""Bags and their labels are joined by name; what is in one alone is left out and listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import ne
from pathlib import Path

import numpy as np

from miue.bags import PATIENT, BagDataset, Labels, Outcomes, disagreements, merge_bags
from miue.bags.cells import known_text
from miue.bags.classes import by_their_names, known_labels
from miue.bags.columns import BAG, numbers_in_cells, read_classes, read_outcomes
from miue.bags.names import barcode_of_patient, match_names, patients_in_names, strip_endings
from miue.common.errors import ConfigError, DataError, first_few, missing_column, unknown_name
from miue.common.tables import read_header, read_text_columns
from miue.common.text import plural
from miue.io.columns import how_to_specify
from miue.io.instance_labels import with_instance_labels, with_instance_labels_of_arrays
from miue.io.label_sets import read_label_sets
from miue.io.label_table import LabelTable, read_label_arrays, read_label_table
from miue.io.layouts.layout import Layout
from miue.io.layouts.table import named_id_column
from miue.io.loaded import LeftOut, LoadedBags, counts_of_classes, refuse_or_skip
from miue.io.splits import Splits
from miue.settings import LoadSettings
from miue.targets import TARGETS, IntervalTarget, MultiLabel, Ordinal, Target

SLIDE = "slide"
"""What a bag is of where it is of nothing else."""


def label_bags(found: Layout, given: LoadSettings) -> LoadedBags:
    """Return the bags that a table lists, with its classes, patients and folds; all bags without a table.

    Args:
        found: the bags.
        given: what is said of them: a table, or None for bags with labels of their own, or without any.

    Raises:
        ConfigError: a table for bags that have labels.
        DataError: a name that may be that of two bags, a class that is not among those specified, a table of
            patients alone, labels of instances of other bags, bags that cannot be used, or that cannot become one.
    """
    ids, table, owners = found.list(), _read_labels(given, found.path), None
    kind = TARGETS.get(given.task)
    if table is None:
        loaded = replace(found.open(ids, (), given.classes), label_columns=found.label_columns)
    elif found.has_labels:
        raise ConfigError(
            item=f"label table {table.source!r}",
            wanted="bags without labels",
            got=f"{str(found.path)!r}, which has labels of its own",
            fix="leave out the table, or remove the labels from the bags",
        )
    else:
        loaded, owners = _joined(found, ids, table, given)
    if given.covariates:
        loaded = _with_covariates(loaded, given.covariates, str(found.path), table.cells if table else ())
    if kind is not None and loaded.bags.target is None:
        loaded = replace(loaded, bags=loaded.bags.with_target(_of_classes(kind, loaded.bags.class_names)))
    if given.patients == "barcodes":
        loaded = _with_patients_of_barcodes(loaded)
    if given.instance_labels is not None:
        loaded = _with_instance_labels(loaded, given.instance_labels, given)
    per = given.bag_per
    if per is None or per == (loaded.bags.bag_per or SLIDE):
        return loaded
    return _merged(loaded, found, owners, given, list(table.cells) if table else [])


def _merged(
    loaded: LoadedBags, found: Layout, stated: Sequence[str] | None, given: LoadSettings, columns: Sequence[str]
) -> LoadedBags:
    """Return one bag for all bags of each owner; those that cannot become one are left out where they may be.

    Raises:
        ConfigError: bags that are of something else already, or a column that there is not.
        DataError: bags without an owner, or of one that differ.
    """
    bags, per, where = loaded.bags, given.bag_per or PATIENT, str(found.path)
    if bags.bag_per:
        wanted, fix = f"{bags.bag_per!r}, as {where!r} has them", "leave it out, or pass the slides"
        raise ConfigError(item="bag_per", wanted=wanted, got=repr(per), fix=fix)
    stated = _owners(loaded, found, given, columns) if stated is None else stated
    owners = dict(zip(bags.ids, stated, strict=True))
    named = bags.subset([row for row, name in enumerate(bags.ids) if owners[name]])
    differ = disagreements(named, [owners[name] for name in named.ids])
    bad = [LeftOut(name, f"no {per} is stated") for name in bags.ids if not owners[name]]
    bad += [LeftOut(f"{per} {owner}", f"bags that differ: {said}") for owner, said in differ.items()]
    alike = named.subset([row for row, name in enumerate(named.ids) if owners[name] not in differ])
    refuse_or_skip(where, len(alike), bad, skip_bad=given.skip_bad)
    merged = merge_bags(alike, [owners[name] for name in alike.ids], per=per)
    merged = merged.with_own_intervals(given.intervals)
    note = f"one bag per {per}: {plural(len(alike), 'bag')} became {len(merged):,}"
    return replace(loaded, bags=merged, left_out=(*loaded.left_out, *bad), notes=(*loaded.notes, note))


def _owners(loaded: LoadedBags, found: Layout, given: LoadSettings, columns: Sequence[str]) -> Sequence[str]:
    """Return of each bag what names the bag that it becomes part of, "" where that is unknown.

    Raises:
        ConfigError: a column that there is not.
        DataError: no patients.
    """
    bags = loaded.bags
    if given.bag_per != PATIENT:
        raise unknown_name("column of bag_per", given.bag_per, [SLIDE, PATIENT, *columns])
    if found.patients is not None:
        return [found.patients[name] for name in bags.ids]
    if given.patients == "barcodes" and any(barcodes := list(map(barcode_of_patient, bags.ids))):
        return barcodes
    wanted = "a column of patients in the label table, or TCGA barcodes that their names begin with"
    fix = f"pass labels with the patient of each slide ({how_to_specify(PATIENT)})"
    raise missing_column(f"the bags of {str(found.path)!r}", wanted, columns, fix)


def _read_labels(given: LoadSettings, bags: Path) -> LabelTable | None:
    """Return the table of labels, read where a path names it; a column of ids may be that of the bags alone."""
    labels = given.labels
    if isinstance(labels, Path) and not labels.is_dir():
        columns, is_of_sets = given.named_columns, TARGETS.get(given.task) is MultiLabel
        if is_of_sets and (of_labels := {*given.classes} & {*read_header(labels)}):
            columns["label"] = of_labels.pop()  # each label has a column of its own
        if named_id_column(bags, columns) and columns[BAG] not in read_header(labels):
            del columns[BAG]
        return read_label_table(labels, columns, slide_table=given.slide_table, covariates=given.covariates)
    if given.slide_table is not None:
        raise ConfigError(
            item="slide_table",
            wanted="a label table beside it",
            got="none" if labels is None else "a folder of arrays",
            fix="pass the label table, or leave that of the slides out",
        )
    if isinstance(labels, Path):
        return read_label_arrays(labels)
    assert labels is None or isinstance(labels, LabelTable)
    return labels


def _of_classes(kind: type[Target], names: tuple[str, ...]) -> Target:
    """Return the target of bags with labels of their own, which are classes in order.

    Raises:
        ConfigError: labels have to be numbers, or there are none.
    """
    if not issubclass(kind, Ordinal) or not names:
        item, fix = f"task {kind.model_fields['kind'].default!r}", "pass labels, and name the column of the label"
        raise ConfigError(item=item, wanted="a table of labels beside the bags", got="none", fix=fix)
    return Ordinal(grades=names)


def _joined(
    found: Layout, ids: Sequence[str], table: LabelTable, given: LoadSettings
) -> tuple[LoadedBags, list[str] | None]:
    """Return bags with what the table says of them, and of each the cell that names the bag it becomes part of."""
    row_of, left_out, by_patient = _match(table, ids, str(found.path))
    kind, classes = TARGETS.get(given.task), given.classes
    if kind is not None and issubclass(kind, IntervalTarget):
        loaded = found.open(list(row_of), left_out, ())
        rows = [row_of[name] for name in loaded.bags.ids]
        bags = replace(loaded.bags, outcomes=_outcomes(table, rows, kind)).with_intervals(kind, given.intervals)
    else:
        target: Target | None = None
        if kind is MultiLabel:
            table, target = read_label_sets(table, classes)
            names = target.class_names
        else:
            known = by_their_names(known_labels(table.labels, table.source, classes), classes)
            table = replace(table, labels=known)
            names = table.class_names(classes)
        loaded = found.open(list(row_of), left_out, names)
        rows = [row_of[name] for name in loaded.bags.ids]
        labels = read_classes([table.labels[row] for row in rows], table.source, "label", names)
        bags = replace(loaded.bags, labels=labels, class_names=names, target=target)
    patients = tuple(
        table.patients[row] if by_patient or table.patients[row] != table.ids[row] else name
        for name, row in zip(bags.ids, rows, strict=True)
    )
    are_known = any(map(ne, map(strip_endings, patients), map(strip_endings, bags.ids)))
    covariates = {
        name: tuple(known_text(table.cells[name][row]) for row in rows) for name in _covariates(table, given)
    }
    bags = replace(bags, patients=patients if are_known else None, covariates=covariates)
    folds = tuple(
        {name: fold[row] for name, row in zip(bags.ids, rows, strict=True) if fold[row]}
        for fold in table.folds.values()
    )
    column = table.columns.get(PATIENT) if given.bag_per == PATIENT else given.bag_per
    cells = table.cells.get(column or "")
    owners = None if cells is None else [known_text(cells[row]) for row in rows]
    labeled = replace(
        loaded,
        bags=bags,
        notes=(*loaded.notes, *([_describe_patients(table, row_of)] if by_patient else [])),
        folds=Splits(table.source, folds) if folds else loaded.folds,
        label_columns=table.columns,
    )
    return labeled, owners


def _with_covariates(loaded: LoadedBags, names: Sequence[str], where: str, columns: Iterable[str]) -> LoadedBags:
    """Return bags with these covariates alone, of which a column or a store has brought the values.

    Raises:
        DataError: one that there is not.
    """
    there = loaded.bags.covariates
    if any(name not in there for name in names):
        wanted, fix = f"covariates {', '.join(names)}", "pass labels=TABLE with these columns, or leave them out"
        found = [*there, *columns]
        raise missing_column(f"the bags of {where!r}", wanted, found or ["none"], fix)
    return replace(loaded, bags=replace(loaded.bags, covariates={name: there[name] for name in names}))


def _covariates(table: LabelTable, given: LoadSettings) -> list[str]:
    """Return the columns of covariates that the table has.

    Raises:
        ConfigError: the column of the label, of which nothing else can be learned.
    """
    taken = {table.columns.get("label"), given.event_column, table.id_column} - {None}
    if wrong := [name for name in given.covariates if name in taken]:
        wanted, fix = "columns beside the label, the event and the id", "leave it out"
        raise ConfigError(item="covariates", wanted=wanted, got=repr(wrong[0]), fix=fix)
    return [name for name in given.covariates if name in table.cells]


def _outcomes(table: LabelTable, rows: Sequence[int], kind: type[IntervalTarget]) -> Outcomes:
    """Return the numbers that are the labels in some rows.

    Raises:
        ConfigError: no column of events where times may have none.
        DataError: a cell that is no number, or an event that is neither 0 nor 1.
    """
    if kind.has_censoring and not table.events:
        item, wanted = f"label table {table.source!r}", "a column of events (1, or 0 where observation ended)"
        raise ConfigError(item=item, wanted=wanted, got="none named", fix="pass event_column=NAME")
    column = table.columns["label"]
    columns = {"outcome": numbers_in_cells([table.labels[row] for row in rows], table.source, column)}
    events = {"observed": np.array([table.events[row] for row in rows], object)} if table.events else {}
    return read_outcomes({**columns, **events}, table.source)


def _match(labels: LabelTable, names: Sequence[str], where: str) -> tuple[dict[str, int], list[LeftOut], bool]:
    """Return the row of each bag that the table lists, in its order, and what is in one of the two alone.

    Of a table of patients, bags are listed whose names begin with that of their patient; the last value says
    whether they are.
    """
    bag_rows = match_names(labels.ids, names, labels.source)
    rows = {names[bag_row]: row for row, bag_row in enumerate(bag_rows) if bag_row is not None}
    by_patient = not rows and labels.is_of_patients
    if by_patient:
        rows = _rows_of_patients(labels, names, where)
    listed = set(rows.values())
    no_such = f"listed in {labels.source!r}, but {where!r} has no such bag"
    left_out = [LeftOut(name, no_such) for row, name in enumerate(labels.ids) if row not in listed]
    unlisted = f"a bag that {labels.source!r} does not list"
    left_out += [LeftOut(name, unlisted, is_bad=False) for name in sorted(set(names) - set(rows))]
    return rows, left_out, by_patient


def _rows_of_patients(labels: LabelTable, names: Sequence[str], where: str) -> dict[str, int]:
    """Return the row of the patient with whose name the name of each bag begins, in the order of the table."""
    found = dict(zip(names, patients_in_names(names, labels.ids), strict=True))
    several = next((name for name, rows in found.items() if len(rows) > 1), None)
    if several is None and any(found.values()):
        row_of = {name: rows[0] for name, rows in found.items() if rows}
        return dict(sorted(row_of.items(), key=lambda pair: pair[1]))
    got = f"only patients (column {labels.id_column!r}), such as {labels.ids[0]!r}"
    if several is not None:
        both = " and ".join(repr(labels.ids[row]) for row in found[several][:2])
        got = f"{got}, and {several!r} begins with {both}"
    raise DataError(
        item=f"label table {labels.source!r}",
        wanted=f"names of the bags of {where!r}, such as {names[0]!r}",
        got=got,
        fix="say which bags are whose: by a slide_table of PATIENT and FILENAME, or a column slide_id",
    )


def _describe_patients(labels: LabelTable, rows: Mapping[str, int]) -> str:
    """Return which bags were found by their patients."""
    first = next(iter(rows))
    return (
        f"{labels.source!r} lists patients; {plural(len(rows), 'bag')} whose names begin with one of them are "
        f"taken for theirs, such as {first!r} for that of {labels.ids[rows[first]]!r}"
    )


def _with_patients_of_barcodes(loaded: LoadedBags) -> LoadedBags:
    """Return bags without stated patients with those that names of TCGA begin with, and a note that says so."""
    bags = loaded.bags
    barcodes = list(map(barcode_of_patient, bags.ids))
    is_stated = bags.patients is not None or "patient" in (loaded.label_columns or {})
    pairs = zip(barcodes, bags.ids, strict=True)
    if is_stated or all(barcode in ("", strip_endings(name)) for barcode, name in pairs):
        return loaded
    count, found = len(barcodes) - barcodes.count(""), len({*barcodes} - {""})
    note = (
        f"patients: {plural(found, 'TCGA barcode')} that the names of {plural(count, 'bag')} begin with "
        "(patients='none' turns this off)"
    )
    patients = tuple(barcode or name for barcode, name in zip(barcodes, bags.ids, strict=True))
    return replace(loaded, bags=replace(bags, patients=patients), notes=(*loaded.notes, note))


def _with_instance_labels(loaded: LoadedBags, table: Path, given: LoadSettings) -> LoadedBags:
    """Return bags with labels of their instances, of a table or a folder of arrays."""
    # bags without labels do not know their classes, which their instances may be named after
    named = loaded.bags if loaded.bags.class_names else replace(loaded.bags, class_names=given.classes)
    if table.is_dir():
        bags = with_instance_labels_of_arrays(named, table)
    else:
        bags = with_instance_labels(named, table, named_id_column(table, given.named_columns))
    return replace(loaded, bags=bags)


def read_labels_for(
    names: Sequence[str], path: Path, columns: Mapping[str, str], classes: Sequence[str], num_classes: int
) -> Labels:
    """Return the labels that a table has of bags, which are matched by name; unknown of those that it lacks.

    Args:
        names: of the bags.
        path: of the table.
        columns: names of its columns by what they mean.
        classes: names of the classes, none where they have numbers alone.
        num_classes: how many there are.

    Raises:
        StorageError, DataError: a table that cannot be used, or one of none of these bags.
        ConfigError: a column that does not exist.
    """
    table = read_label_table(path, columns)
    cells = [""] * len(names)
    rows = match_names(table.ids, names, table.source)
    for label, row in zip(table.labels, rows, strict=True):
        if row is not None:
            cells[row] = label
    if not any(cells):
        got, fix = f"none, but {first_few(map(repr, table.ids))}", "check the table, or name its column of bags"
        raise DataError(item=f"label table {table.source!r}", wanted="labels of these bags", got=got, fix=fix)
    return read_classes(cells, table.source, "label", classes, num_classes)


def with_labels_of_run(bags: BagDataset, splits: Path, classes: tuple[str, ...]) -> tuple[BagDataset, str]:
    """Return bags without labels with the labels and patients that a run lists, and one line that says so.

    Bags are matched by name, as it is written, else without the endings of files where that means one bag alone.
    One with another number of instances than the run lists may be another of the same name, and gets no label.

    Args:
        bags: of which none has a label.
        splits: the table that a training writes (bag_id, patient, label, fold_0).
        classes: of the model; a label of another name is unknown.

    Raises:
        StorageError: a table that cannot be read.
    """
    if not splits.exists():
        return bags, f"labels: none, and {str(splits)!r} is not there; pass labels to evaluate"
    listed = _listed(splits)
    rows = [listed.get(name) or listed.get(strip_endings(name)) or ("", "", "") for name in bags.ids]
    is_other = [known not in ("", str(size)) for (*_, known), size in zip(rows, bags.sizes, strict=True)]
    cells = [("", "") if other else row[:2] for other, row in zip(is_other, rows, strict=True)]
    numbers = [classes.index(label) if label in classes else None for _, label in cells]
    others = f"of {plural(sum(is_other), 'bag')} with another number of instances than in training"
    if not any(number is not None for number in numbers):
        of_others = f", but {others}" if any(is_other) else ""
        return (
            bags,
            f"labels: none, and {str(splits)!r} lists none for these bags{of_others}; pass labels to evaluate",
        )
    labeled = replace(bags, labels=Labels.of(numbers), class_names=classes)
    patients = tuple(patient for patient, _ in cells)  # "" of a bag that is not listed: not known
    pairs = zip(patients, bags.ids, strict=True)
    if bags.patients is None and any(p and strip_endings(p) != strip_endings(b) for p, b in pairs):
        labeled = replace(labeled, patients=patients)
    absent = sum(name not in listed and strip_endings(name) not in listed for name in bags.ids)
    said = f", none for {plural(absent, 'bag')} that it does not list" if absent else ""
    said += f", none {others}" if any(is_other) else ""
    text = f"labels: those that the training listed in {str(splits)!r} ({counts_of_classes(labeled)}{said})"
    return labeled, f"{text}; pass labels for others"


def _listed(splits: Path) -> Mapping[str, tuple[str, str, str]]:
    """Return patient, label and number of instances by the name of each bag.

    They are also found by the name without endings, where it is of one bag.
    """
    columns = read_text_columns(splits)
    facts = list(zip(columns["patient"], columns["label"], columns["instances"], strict=True))
    keys = Counter(map(strip_endings, columns["bag_id"]))
    by_key = {strip_endings(name): fact for name, fact in zip(columns["bag_id"], facts, strict=True)}
    by_key = {key: fact for key, fact in by_key.items() if keys[key] == 1}
    return {**by_key, **dict(zip(columns["bag_id"], facts, strict=True))}
