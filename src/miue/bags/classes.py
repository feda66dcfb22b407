"""Names of classes, in their order, and labels that are numbers of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from shlex import quote
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator

from miue.bags.cells import (
    POSSIBLE_CLASSES,
    UNKNOWN_WORDS,
    alike_names,
    is_missing,
    is_number,
    known_text,
    meaning_of,
    one_form,
    refuse_quantities,
    sorted_names,
)
from miue.bags.known import Labels
from miue.bags.rows import plain_values
from miue.common.errors import ConfigError, DataError, first_repeated, unknown_name
from miue.common.text import plural
from miue.targets import BETWEEN

LabelSequence = Collection[Any]
"""Class indices from 0, or names of classes, None where unknown: a list, array, tensor or column of a frame."""
NEGATIVE_NAMES = {
    *("negative", "neg", "normal", "benign", "healthy", "control", "controls", "ctrl", "background"),
    *("none", "no", "absent", "false", "wildtype", "wt", "mss", "pmmr", "unremarkable"),
}
"""What the class without findings is usually called: lower case, without spaces and signs."""


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if (twice := first_repeated(names)) is not None:
        raise ValueError(f"the class {twice!r} twice")
    return names


ClassNames = Annotated[tuple[str, ...], AfterValidator(_each_once)]
"""Names of classes as files keep them: bags of two of one name would be counted as those of one class."""


def numbered_classes(count: int) -> tuple[str, ...]:
    """Return the names of so many classes that have none, their numbers.

    >>> numbered_classes(3)
    ('0', '1', '2')
    """
    return tuple(map(str, range(count)))


def names_or_numbers(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the names of classes, or the numbers of so many where there are no names."""
    return tuple(names) or numbered_classes(count)


def class_names(labels: Iterable[str], source: str, order: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the classes of labels in the order specified, else sorted; numbers by value.

    Raises:
        DataError: an order that leaves a class out, fewer than two classes, or without an order two that differ
            in case alone or are the same number, numbers that measure something, or several labels ("A;B" and A).
        ConfigError: an order with a class twice.
    """
    texts = [label for label in labels if label]
    present = sorted_names(texts)
    if len(set(order)) < len(order):
        raise ConfigError(
            item="the order of the classes",
            wanted="each class once",
            got=", ".join(order),
            fix=f"the labels of {source!r} are {', '.join(present)}",
        )
    left_out = next((name for name in present if order and name not in order), None)
    if left_out is not None:
        raise DataError(
            item=f"label {left_out!r} of {source!r}",
            wanted=f"one of the classes given: {_listed(order)}",
            got=f"{plural(texts.count(left_out), 'bag')} of this class",
            fix="name it as one of these, take these bags out of the table or, if no model has these classes yet, "
            "add it to the classes: classes=NAMES",
        )
    names = tuple(order or present)
    alike = alike_names(names)
    if alike is not None and not order:
        raise DataError(
            item=f"the classes of {source!r}",
            wanted="names that differ in more than case, or in how a number is written",
            got=" and ".join(f"{name!r} ({plural(texts.count(name), 'bag')})" for name in alike),
            fix="write the class in one way, or name both by classes=NAMES",
        )
    if len(names) < 2:
        raise DataError(
            item=f"label table {source!r}",
            wanted="at least two classes",
            got=", ".join(names) or "no label",
            fix="check the label column",
        )
    if not order:
        refuse_quantities(names, repr(source), "classes=NAMES")
        several = [name for name in names if BETWEEN in name and {*name.split(BETWEEN)} & {*names}]
        if several:
            fix = "predict several with task=multi-label; if these are classes, name all with classes=NAMES"
            raise DataError(item=f"label {several[0]!r} of {source!r}", wanted="one class", got="several", fix=fix)
    return names


def known_labels(labels: Iterable[str], source: str, classes: Sequence[str] = ()) -> tuple[str, ...]:
    """Return labels as a table writes them, "" for the words that stand for nothing.

    "none" and "unknown" can also be a class: they are one where ``classes`` names it, and an unknown label
    where it does not.

    Args:
        labels: cells of the table.
        source: the table, for messages.
        classes: names of the classes, empty where they are not known.

    Raises:
        DataError: one of these words where the classes are not known, .

    >>> known_labels([" low", "NA", "none"], "labels.csv", ["none", "low"])
    ('low', '', 'none')
    """
    texts, names = [label.strip() for label in labels], {name.casefold() for name in classes}
    doubtful = [text for text in texts if text.casefold() in POSSIBLE_CLASSES]
    if doubtful and not classes:
        word = doubtful[0]
        others = sorted({text for text in texts if known_text(text)} - {word})
        order = quoted_order([word, *others])
        raise DataError(
            item=f"label {word!r} of {source!r}",
            wanted="a class, or an empty cell where the label is unknown",
            got=f"{plural(texts.count(word), 'bag')}, of which it could mean either",
            fix=f"if it is a class, name all in their order: {order}; if it is none, empty these cells",
        )
    return tuple(text if text.casefold() in names else known_text(text) for text in texts)


def by_their_names(labels: Iterable[str], classes: Sequence[str]) -> tuple[str, ...]:
    """Return labels that write a class otherwise, as another number or truth value, by the name of the class.

    One file says 0, where another has 0.0 since some of its labels are unknown; and one True, another true; or
    letters with marks are in another form.

    >>> by_their_names(["0", "1.00", "", "2"], ["0.0", "1.0"])
    ('0.0', '1.0', '', '2')
    >>> by_their_names(["TRUE", "false"], ["False", "True"])
    ('True', 'False')
    """
    meant: dict[float | str, set[str]] = {}
    for name in classes:
        meant.setdefault(meaning_of(name), set()).add(name)
    only = {meaning: names.pop() for meaning, names in meant.items() if len(names) == 1}
    forms = {one_form(name): name for name in classes}

    def by_name(label: str) -> str:
        if label in classes:
            return label
        return only.get(meaning_of(label), label) if _is_value(label) else forms.get(one_form(label), label)

    return tuple(map(by_name, labels))


def _is_value(label: str) -> bool:
    """Return whether a label is a number or a truth value, which tables write in several ways."""
    return is_number(label) or label.lower() in ("true", "false")


def called_negative(names: Sequence[str]) -> list[str]:
    """Return the classes that are called as a negative one usually is, or "non-" and the name of another.

    >>> called_negative(["MSI", "MSS"]), called_negative(["tumor", "non-tumor"]), called_negative(["A", "B"])
    (['MSS'], ['non-tumor'], [])
    """
    plain = ["".join(filter(str.isalnum, name.casefold())) for name in names]
    denied = {prefix + name for name in plain for prefix in ("no", "non", "not")}
    return [name for name, text in zip(names, plain, strict=True) if text in NEGATIVE_NAMES | denied]


def likely_negative_class(names: Sequence[str]) -> str:
    """Return the class that is more likely meant as the negative one than the first, "" without.

    That is where one other class alone is called as a negative one is, or has such a word in its name, or a minus
    where another has a plus.

    >>> likely_negative_class(["cancer", "healthy"]), likely_negative_class(["normal", "tumor"])
    ('healthy', '')
    """
    likely = called_negative(names) or [name for name in names if _sounds_negative(name, names)]
    return likely[0] if len(likely) == 1 and likely[0] != names[0] else ""


def doubt_about_negative_class(names: Sequence[str]) -> str:
    """Return a sentence where the first class, the negative one, is unlikely to be meant as such; else "".

    >>> doubt_about_negative_class(["cancer", "healthy"])
    "the negative class is 'cancer', the first; if it is 'healthy', name that first: --classes healthy,cancer"
    """
    likely = likely_negative_class(names)
    if not likely:
        return ""
    order = quoted_order([likely, *(name for name in names if name != likely)])
    return f"the negative class is {names[0]!r}, the first; if it is {likely!r}, name that first: {order}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names) if any("," in name for name in names) else names)


def quoted_order(names: Sequence[str]) -> str:
    """Return the option that names classes in this order, as a shell takes it.

    >>> quoted_order(["normal", "Adenocarcinoma, NOS"])
    "--classes normal --classes 'Adenocarcinoma, NOS'"
    """
    if not any("," in name for name in names):
        return f"--classes {quote(','.join(names))}"
    return " ".join(f"--classes {quote(name)}" for name in names)


def _sounds_negative(name: str, names: Sequence[str]) -> bool:
    """Return whether a word of the name is that of a negative class, or it is "X-" beside "X+".

    >>> names = ["KRAS wildtype", "KRAS mutant", "HER2+", "HER2-"]
    >>> [name for name in names if _sounds_negative(name, names)]
    ['KRAS wildtype', 'HER2-']
    """
    words = set(re.split(r"[^a-z0-9]+", name.casefold()))
    return bool(words & NEGATIVE_NAMES) or (name.endswith("-") and f"{name[:-1]}+" in names)


def check_names_given(names: Sequence[str], count: int, where: str) -> None:
    """Raise unless there are as many names of classes as probabilities, each once; no name at all is let pass.

    Args:
        names: in the order of the probabilities.
        count: of the probabilities.
        where: they are, for messages.

    Raises:
        ConfigError: more or fewer names, or one twice.
    """
    if names and not len(set(names)) == len(names) == count:
        twice = first_repeated(names)
        raise ConfigError(
            item=quoted_order(names),
            wanted=f"{count} different names, one for each probability of {where}",
            got=plural(len(names), "name") if twice is None else f"{twice!r} twice",
            fix="pass --classes with each name once, in the order of the probabilities",
        )


def check_classes(labels: Labels, where: str, num_classes: int) -> None:
    """Raise unless all known labels are classes.

    Raises:
        DataError: one that is not.
    """
    wrong: np.ndarray = np.flatnonzero(labels.known & ((labels.values < 0) | (labels.values >= num_classes)))
    if len(wrong):
        raise DataError(
            item=f"label {wrong[0]} in {where}",
            wanted=f"a class index from 0 to {num_classes - 1}",
            got=str(labels.values[wrong[0]]),
            fix="correct the label, or make the file again",
        )


def read_labels(labels: LabelSequence, class_names: Sequence[str] = ()) -> tuple[Labels, tuple[str, ...]]:
    """Return labels as class indices, and the names of the classes where labels are names.

    Args:
        labels: class indices, or names of classes; None or NaN where unknown.
        class_names: the order of the classes; names are sorted if it is empty, numbers by value.

    Raises:
        DataError: names beside indices, a name that is not among ``class_names``, or a label that is no index;
            without ``class_names`` also a word that stands for nothing, or two names that are nearly the same.

    >>> labels, names = read_labels(["tumor", None, "normal"])
    >>> labels.values.tolist(), labels.known.tolist(), names
    ([1, 0, 0], [True, False, True], ('normal', 'tumor'))
    """
    values = [None if is_missing(value) else value for value in plain_values(labels)]
    present = [value for value in values if value is not None]
    texts = [isinstance(value, str) for value in present]
    if not any(texts):
        return Labels.of(values), read_class_names(class_names)
    if not all(texts):
        raise DataError(
            item="the labels",
            wanted="names of classes alone, or numbers alone",
            got=f"{present[texts.index(True)]!r} and {present[texts.index(False)]!r}",
            fix="write all labels in one way",
        )
    values = [None if value is None else one_form(value) for value in values]
    present = [value for value in values if value is not None]
    names = read_class_names(class_names) or _sorted_classes(values, present)
    unknown = next((value for value in present if value not in names), None)
    if unknown is not None:
        raise unknown_name("label", unknown, names)
    index = {name: number for number, name in enumerate(names)}
    return Labels.of([None if value is None else index[value] for value in values]), names


def _sorted_classes(values: Sequence[Any], present: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of labels that are names, in order."""
    nothing = next((name for name in present if name.strip().lower() in UNKNOWN_WORDS), None)
    if nothing is not None:
        raise DataError(
            item=f"label {values.index(nothing)}",
            wanted="the name of a class, or None where unknown",
            got=repr(nothing),
            fix="pass None, or, where this is a class, all names as class_names",
        )
    alike = alike_names(set(present))
    if alike is not None:
        raise DataError(
            item="the labels",
            wanted="names that differ in more than case, spaces, or how a number is written",
            got=" and ".join(f"{name!r} ({present.count(name)} times)" for name in alike),
            fix="write the class in one way, or name both in class_names",
        )
    names = tuple(sorted_names(present))
    refuse_quantities(names, "the bags", "class_names")
    return names


def read_class_names(names: Any) -> tuple[str, ...]:
    """Return the names of classes, none where they are not specified; letters with marks are in one form.

    Raises:
        DataError: what is no list of different texts.

    >>> read_class_names(["normal", "tumor"])
    ('normal', 'tumor')
    """
    read = plain_values(() if names is None else names, "class names", "class")
    names = tuple(one_form(name) if isinstance(name, str) else "" for name in read)
    if not all(map(str.strip, names)) or len(set(names)) < len(names):
        raise DataError(
            item="the class names",
            wanted="a different text for each class, none of them empty",
            got=", ".join(map(repr, read)),
            fix="name each class once, as texts, the negative one first",
        )
    return names
