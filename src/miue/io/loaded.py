"""Bags on their way from files to a dataset, with what was left out and what is to be said about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from miue.bags import BagDataset, Labels
from miue.common.errors import DataError
from miue.common.text import PrintsAsTable, ResultTable, plural, visible
from miue.io.splits import Splits


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


@dataclass(frozen=True, repr=False)
class LoadedBags(PrintsAsTable):
    """Bags, and what was said or done about them.

    Attributes:
        bags: the dataset.
        left_out: bags that are not in it, and why.
        notes: what to know of the files that they were read from.
        drawn: how the splits came about, where they were drawn.
        folds: those of the label table, of the bags that are in the dataset.
        label_columns: the columns that hold labels and patients, by what they mean; None of a store.
    """

    bags: BagDataset
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: str = ""
    folds: Splits | None = None
    label_columns: Mapping[str, str] | None = None

    @property
    def labels(self) -> str:
        """In one line, which columns hold labels and patients, and of how many of these bags; "" of a store."""
        return "" if self.label_columns is None else describe_labels(self.bags, self.label_columns)

    def tables(self) -> Iterator[ResultTable]:
        """Return the bags of each split, and what was said of them."""
        left_out = f"{plural(len(self.left_out), 'bag')} left out (left_out says why)" if self.left_out else ""
        notes = (self.labels, self.drawn, *self.notes, left_out)
        for table in self.bags.tables():
            yield replace(table, notes=(*table.notes, *filter(None, notes)))

    @property
    def note(self) -> str:
        """How the splits were drawn, and how many of these bags are in each; "" where none were."""
        if not self.drawn or not any(self.bags.splits):
            return self.drawn
        splits = self.bags.splits
        counts = ", ".join(f"{name} {splits.count(name):,}" for name in ("train", "validation", "test"))
        return f"{self.drawn}: {counts} bags"


def refuse_or_skip(where: str, count: int, left_out: Sequence[LeftOut], *, skip_bad: bool) -> None:
    """Raise unless there are bags and, where bad ones may not be skipped, none that is bad.

    Raises:
        DataError: which bags cannot be used and why, at most three of them.
    """
    bad = [entry for entry in left_out if entry.is_bad]
    if bad and not skip_bad:
        shown = "; ".join(f"{entry.bag}: {entry.reason}" for entry in bad[:3])
        raise DataError(
            item=repr(where),
            wanted="bags that can all be used",
            got=f"{len(bad)} that cannot ({shown}{'; …' if bad[3:] else ''})",
            fix="mend them, or go on without them (skip_bad=True)",
        )
    if not count:
        first = next(iter([*bad, *left_out]), None)
        reason = f"{first.bag}: {first.reason}" if first else "the folder is empty"
        raise DataError(
            item=repr(where),
            wanted="at least one bag",
            got=f"none of {len(bad or left_out)} ({reason})",
            fix="check the folder and the ids of the label table",
        )


def describe_labels(bags: BagDataset, columns: Mapping[str, str]) -> str:
    """Return in one line which columns hold labels and patients, and of how many bags.

    Args:
        bags: with these labels and patients.
        columns: the names of the columns, by what they mean: label, patient.

    >>> import numpy as np
    >>> bags = BagDataset.from_arrays([np.ones((1, 2))] * 3, [0, 1, None], class_names=["normal", "tumor"])
    >>> describe_labels(bags, {"label": "diagnosis"})
    "labels: column 'diagnosis' (normal 1, tumor 1, without label 1; negative class: normal), patients: no column"
    """
    text = (
        f"labels: column {columns['label']!r} ({counts_of_classes(bags)})"
        if "label" in columns
        else "labels: none"
    )
    if "patient" not in columns:
        return f"{text}, patients: no column"
    owners = bags.patients or bags.ids
    said = f"{len(set(owners)):,}"
    if differ := _of_several_classes(owners, bags.labels):
        said += f"; {differ:,} with bags of different classes"
    return f"{text}, patients: column {columns['patient']!r} ({said})"


def _of_several_classes(owners: Sequence[str], labels: Labels) -> int:
    """Return how many patients have bags of different classes, as in a cohort of normal and tumor slides."""
    classes: dict[str, set[int]] = {}
    for owner, label, known in zip(owners, labels.values.tolist(), labels.known.tolist(), strict=True):
        if known:
            classes.setdefault(owner, set()).add(label)
    return sum(len(of_one) > 1 for of_one in classes.values())


def counts_of_classes(bags: BagDataset) -> str:
    """Return how many bags have each class, and which class is the negative one; names are on one line.

    >>> import numpy as np
    >>> counts_of_classes(BagDataset.from_arrays([np.ones((1, 2))] * 2, [0, 1], class_names=["no", "yes"]))
    'no 1, yes 1; negative class: no'
    >>> bags = BagDataset.from_arrays([np.ones((1, 2))] * 2)
    >>> counts_of_classes(bags.with_label_sets([[1, 0], [1, None]], ["ER", "HER2"]))
    'ER 2 of 2, HER2 0 of 1'
    >>> counts_of_classes(BagDataset.from_arrays([np.ones((1, 2))] * 2, [0, 1]))
    'class 0: 1, class 1: 1; negative class: 0'
    """
    if parts := bags.by_label():
        some = {name: one.labels.counts(2) for name, one in parts.items()}
        return ", ".join(f"{name} {yes:,} of {no + yes:,}" for name, (no, yes) in some.items())
    known = bags.labels.values[bags.labels.known]
    if bags.outcomes is not None and len(known):
        values, events = (
            bags.outcomes.values[bags.outcomes.known],
            int(bags.outcomes.observed[bags.outcomes.known].sum()),
        )
        of_events = f", {plural(events, 'event')}" if events < len(values) else ""
        return f"{plural(len(values), 'number')} from {values.min():g} to {values.max():g}{of_events}"
    names = [visible(name) for name in bags.class_names or map(str, range(bags.num_classes))]
    called = [f"class {name}:" if name.isdecimal() else name for name in names]  # before a number
    counts = [f"{name} {int((known == number).sum()):,}" for number, name in enumerate(called)]
    missing = len(bags) - len(known)
    counts += [f"without label {missing:,}"] if missing else []
    return f"{', '.join(counts)}; negative class: {names[0]}"
