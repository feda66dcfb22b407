"""Bags and a label table are joined by name; what is in one alone is left out and said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.bags.names import key_of, places_of
from miue.common.errors import DataError
from miue.io.labels.label_table import LabelTable
from miue.io.splits.splits import Splits, check_splits


@dataclass(frozen=True)
class LeftOut:
    """A bag that is not in the dataset.

    Attributes:
        bag: its id.
        reason: why.
        is_bad: whether something is wrong with it, unlike a file that the label table does not list.
    """

    bag: str
    reason: str
    is_bad: bool = True


def match(labels: LabelTable, names: Sequence[str], where: str) -> tuple[dict[str, int], list[LeftOut]]:
    """Return the row of each bag that the table lists, in its order, and what is in one of the two alone.

    Args:
        labels: the table.
        names: of the bags.
        where: where they are, for messages.

    Raises:
        DataError: a name of the table that may be that of two bags, or two of one bag.
    """
    places = places_of(labels.ids, names, labels.source)
    rows = {names[place]: row for row, place in enumerate(places) if place is not None}
    unlisted = sorted(set(names) - set(rows))
    left_out = []
    for name, place in zip(labels.ids, places, strict=True):
        if place is None:
            near = _near(name, unlisted)
            hint = f"; there is {near!r}: did the id lose its zeros or gain a '.0'?" if near else ""
            left_out.append(LeftOut(name, f"listed in {labels.source!r}, but {where!r} has no such bag{hint}"))
    left_out += [LeftOut(name, f"a bag that {labels.source!r} does not list", is_bad=False) for name in unlisted]
    return rows, left_out


def with_labels(
    bags: BagDataset, labels: LabelTable, row_of: Mapping[str, int], classes: Sequence[str] = ()
) -> BagDataset:
    """Return ``bags`` with the classes, the patients and the first fold of a table.

    Args:
        bags: each of which the table lists.
        labels: the table.
        row_of: the row of each bag, as ``match`` returns them.
        classes: their order; the first is the negative one. Sorted by name if not specified.

    Raises:
        DataError: a class that is not among those specified, or splits that cannot be used.
    """
    names = labels.class_names(classes)
    rows = [row_of[name] for name in bags.ids]
    index = {name: number for number, name in enumerate(names)}
    texts = [labels.labels[row] for row in rows]
    labelled = replace(
        bags,
        labels=Labels.of([index[text] if text else None for text in texts]),
        class_names=names,
        patients=tuple(labels.patients[row] for row in rows) if labels.has_patients else None,
    )
    if not labels.folds:
        return labelled
    first = next(iter(labels.folds.values()))
    labelled = replace(labelled, splits=tuple(first[row] for row in rows))
    check_splits(labelled, labels.source)
    return labelled


def describe_labels(bags: BagDataset, columns: Mapping[str, str]) -> str:
    """Return in one line which columns told labels and patients, and of how many bags.

    Args:
        bags: with these labels and patients.
        columns: the names of the columns, by what they mean: label, patient.

    >>> import numpy as np
    >>> bags = BagDataset.from_arrays([np.ones((1, 2))] * 3, [0, 1, None], class_names=["normal", "tumor"])
    >>> describe_labels(bags, {"label": "diagnosis"})
    "labels: column 'diagnosis' (normal 1, tumor 1, unknown 1; negative class: normal), patients: no column"
    """
    said = (
        f"labels: column {columns['label']!r} ({counts_of_classes(bags)})"
        if "label" in columns
        else "labels: none"
    )
    if "patient" not in columns:
        return f"{said}, patients: no column"
    return f"{said}, patients: column {columns['patient']!r} ({len(set(bags.patients or bags.ids)):,})"


def counts_of_classes(bags: BagDataset) -> str:
    """Return how many bags have each class, and which class is the negative one.

    >>> import numpy as np
    >>> counts_of_classes(BagDataset.from_arrays([np.ones((1, 2))] * 2, [0, 1], class_names=["no", "yes"]))
    'no 1, yes 1; negative class: no'
    """
    known = bags.labels.values[bags.labels.known]
    names = bags.class_names or tuple(str(number) for number in range(bags.num_classes))
    counts = [f"{name} {int((known == number).sum()):,}" for number, name in enumerate(names)]
    unknown = len(bags) - len(known)
    counts += [f"unknown {unknown:,}"] if unknown else []
    return f"{', '.join(counts)}; negative class: {names[0]}"


def splits_of(labels: LabelTable) -> Splits | None:
    """Return the folds that a label table holds, None where it has none."""
    if not labels.folds:
        return None
    folds = [dict(zip(labels.ids, fold, strict=True)) for fold in labels.folds.values()]
    return Splits(labels.source, tuple({name: s for name, s in fold.items() if s} for fold in folds))


def refuse_or_skip(where: str, count: int, left_out: Sequence[LeftOut], *, skip_bad: bool) -> None:
    """Raise unless there are bags and, where bad ones may not be skipped, none that is bad.

    Raises:
        DataError: which bags cannot be used and why, at most three of them.
    """
    bad = [one for one in left_out if one.is_bad]
    if bad and not skip_bad:
        shown = "; ".join(f"{one.bag}: {one.reason}" for one in bad[:3])
        raise DataError(
            item=repr(where),
            wanted="bags that can all be used",
            got=f"{len(bad)} that cannot ({shown}{'; …' if bad[3:] else ''})",
            fix="mend them, or pass --skip-bad to go on without them; 'miue inspect FOLDER' lists all",
        )
    if not count:
        reason = left_out[0].reason if left_out else "the folder is empty"
        raise DataError(
            item=repr(where),
            wanted="at least one bag",
            got=f"none of {len(left_out)} ({reason})",
            fix="check the folder and the ids of the label table",
        )


def _near(name: str, others: Iterable[str]) -> str | None:
    """Return the id that ``name`` would be if a spreadsheet had made a number of it."""
    plain = key_of(name).removesuffix(".0").lstrip("0")
    return next((other for other in others if key_of(other).lstrip("0") == plain), None) if plain else None
