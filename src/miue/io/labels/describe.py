"""What is said of labels: the columns that hold them, and of how many bags they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from miue.bags.column_names import BAG
from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.common.text import plural, visible


def describe_labels(bags: BagDataset, columns: Mapping[str, str]) -> str:
    """Return in one line which columns hold labels and patients, and of how many bags.

    Args:
        bags: with these labels and patients.
        columns: the names of the columns, by what they mean: label, patient, and bag_id where it was found by the
            names of the bags.

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
    if BAG in columns:
        text += f", names of bags: column {columns[BAG]!r}"
    if "patient" not in columns:
        return f"{text}, patients: no column"
    owners = bags.patients or bags.ids
    counts = Counter(owners)
    alone = sum(name == owner and counts[owner] == 1 for name, owner in zip(bags.ids, owners, strict=True))
    said = f"{len(counts):,}"
    if 0 < alone < len(bags):
        said += f" with those of {plural(alone, 'bag')} without a patient of another name"
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


def describe_patients_alike(bags: BagDataset) -> str:
    """Return which names of patients differ in case alone, which two patients hardly do; "" where none do.

    >>> import numpy as np
    >>> bags = BagDataset.from_arrays([np.ones((1, 2))] * 3, [0, 1, 1], patients=["P-1", "p-1", "P-2"])
    >>> describe_patients_alike(bags).partition(":")[0]
    "patients 'P-1' and 'p-1' differ in case alone and count as two"
    """
    of_word: dict[str, set[str]] = {}
    for patient in set(bags.patients or ()):
        of_word.setdefault(patient.casefold(), set()).add(patient)
    alike = sorted(sorted(names) for names in of_word.values() if len(names) > 1)
    if not alike:
        return ""
    more = f" ({len(alike):,} such names)" if len(alike) > 1 else ""
    return (
        f"patients {alike[0][0]!r} and {alike[0][1]!r} differ in case alone and count as two{more}: "
        "if they are one, write the name in one way, else its bags can be in several splits"
    )


def counts_of_classes(bags: BagDataset) -> str:
    """Return how many bags have each class, and which class is the negative one; names are on one line.

    >>> import numpy as np
    >>> counts_of_classes(BagDataset.from_arrays([np.ones((1, 2))] * 2, [0, 1], class_names=["no", "yes"]))
    'no 1, yes 1; negative class: no'
    >>> counts_of_classes(BagDataset.from_arrays([np.ones((1, 2))] * 2, [0, 1]))
    'class 0: 1, class 1: 1; negative class: 0'
    """
    known = bags.labels.values[bags.labels.known]
    names = [visible(name) for name in bags.class_names or map(str, range(bags.num_classes))]
    called = [f"class {name}:" if name.isdecimal() else name for name in names]  # before a number
    counts = [f"{name} {int((known == number).sum()):,}" for number, name in enumerate(called)]
    missing = len(bags) - len(known)
    counts += [f"without label {missing:,}"] if missing else []
    return f"{', '.join(counts)}; negative class: {names[0]}"
