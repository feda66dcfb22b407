"""Which column of a table of predictions is which, by the names that tools give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from miue.bags.cells import one_form
from miue.bags.classes import called_negative, known_labels
from miue.bags.columns import BARCODE, COORDS, OF_TCGA, lower_case, numbers_rows
from miue.common.errors import DataError, first_few, missing_column
from miue.common.tables import read_columns
from miue.distributions import MEASURES
from miue.predictions.decisions import CALIBRATED_PREFIX
from miue.predictions.decode import FACTS, OF_DECISIONS
from miue.predictions.table import SCORE_PREFIX

IDS = ("bag_id", "slide_id", "slide", "image_id", "wsi_id", "video_id", "video", "case_id", "filename", "id")
LABELS = ("label", "y", "y_true", "target", "true_label", "ground_truth")
POSITIVE = ("p", "prob", "probability", "y_prob", "y_score", "score")
"""Names of the probability of the second class, where it is the only one of two."""
PREDICTED = ("predicted", "prediction", "pred", "y_pred", "predicted_label", "predicted_class")
NO_CLASSES = ("value", "val", "threshold", "pred", "predicted", "max", "min", "mean", "std")
"""What follows a prefix in columns that are no probability of a class."""
PATIENTS = ("patient", "patient_id", "patientid", "subject", "subject_id", "case", BARCODE, "case_id", *OF_TCGA)
PREFIXES = ("p", "prob", "probability", "proba", "y_prob")
OURS = {*FACTS, *OF_DECISIONS, *COORDS, *MEASURES, *PREDICTED, "label", "instance", "slide", "training_part"}
"""Columns that mean something, or whose numbers are computed from others, besides those that are recognized."""


def recognize_columns(
    columns: Sequence[str], path: Path, classes: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the column of each of our names in a table, and the classes that its columns name.

    Args:
        columns: of the table.
        path: of the table, for messages.
        classes: names in order; else the columns say them.

    Raises:
        DataError: no column of ids or of probabilities.
    """
    lower = {lower_case(column): column for column in columns}
    bag_id = next((lower[name] for name in IDS if name in lower), None)
    if bag_id is None:
        wanted, fix = f"a column of ids: {', '.join(IDS)}", "rename the column of the ids"
        raise missing_column(f"table {str(path)!r}", wanted, columns, fix)
    names = {"bag_id": bag_id}
    has_places = {"x", "y"} <= lower.keys()  # then y is one of two coordinates
    label = next((lower[name] for name in LABELS if name in lower and not (has_places and name == "y")), None)
    if label is not None:
        names["label"] = label
    patient = next((lower[name] for name in PATIENTS if lower.get(name, bag_id) != bag_id), None)
    if patient is not None:
        names["patient"] = patient
    if any(re.fullmatch(r"alpha_\d+", column) for column in columns):
        return names, tuple(classes)
    taken = {bag_id, label, patient}
    numbered = [column for column in columns if re.fullmatch(r"p_\d+", column)]
    by_class = _by_class(numbered or [column for column in columns if column not in taken], classes)
    if classes and set(by_class) == set(classes):  # perhaps numbers: grades 1 to 3, in any order of the columns
        return names | {f"p_{c}": by_class[word] for c, word in enumerate(classes)}, tuple(classes)
    if by_class and all(word.isdecimal() for word in by_class):
        return names | {f"p_{word}": column for word, column in by_class.items()}, tuple(classes)
    if len(by_class) > 1:
        order = tuple(classes) or _negative_first(list(by_class))
        return names | {f"p_{c}": by_class[word] for c, word in enumerate(order)}, order
    positive = next((lower[name] for name in POSITIVE if name in lower), None)
    if positive is not None:
        predicted = next((lower[name] for name in PREDICTED if name in lower), None)
        if predicted is not None:
            _check_second_class(path, positive, predicted)
        return names | {"p_1": positive}, tuple(classes)
    if by_class:
        ((word, column),) = by_class.items()
        return names | {"p_1": column}, tuple(classes) or (f"not {word}", word)
    raise missing_column(
        f"table {str(path)!r}",
        "columns of probabilities: p_0, p_1, … or prob_0, …, p_CLASS of each class, or one of "
        f"{', '.join(POSITIVE)} for two classes"
        + (f", or a column of each class: {', '.join(map(repr, classes))}" if classes else ""),
        columns,
        "name the columns of the probabilities so; turn logits into probabilities first",
    )


def unread_columns(columns: Sequence[str], recognized: Iterable[str]) -> str:
    """Return which columns mean nothing here and how an uncertainty is named, "" where all mean something."""
    prefixes = rf"{SCORE_PREFIX}.+|{CALIBRATED_PREFIX}.+|(alpha|p)_\d+"
    others = [
        repr(column)
        for column in columns
        if not (column in OURS.union(recognized) or re.fullmatch(prefixes, column) or numbers_rows(column))
    ]
    name = f"an uncertainty of your own is a column {SCORE_PREFIX}NAME, higher where less certain"
    return f"not read: {first_few(others)} ({name})" if others else ""


def classes_of_labels(path: Path, column: str | None) -> tuple[str, ...]:
    """Return the two classes of a column of labels that are names; none where they are numbers.

    Raises:
        DataError: names whose order is not known.
    """
    if column is None:
        return ()
    words = set(known_labels(map(str, read_columns(path, {column})[column]), str(path))) - {""}
    if all(re.fullmatch(r"-?\d+(\.0*)?", word) for word in words):
        return ()
    order = _negative_first(sorted(words))
    if len(words) == 2 and len(called_negative(order)) == 1:
        return order
    raise DataError(
        item=f"table {str(path)!r}, column {column!r}",
        wanted="numbers of classes, or names whose order is known",
        got=", ".join(sorted(words)),
        fix="pass classes=NAMES in the order of the probabilities, the negative class first",
    )


def _check_second_class(path: Path, positive: str, predicted: str) -> None:
    """Raise unless the only probability can be that of the second of two classes.

    Raises:
        DataError: more than two classes are predicted, or each of two by high and by low probabilities, as where
            the probability is that of the predicted class.
    """
    cells = read_columns(path, {predicted})
    probabilities, found = cells[positive], cells[predicted].astype(str)
    if not np.issubdtype(probabilities.dtype, np.number):
        return  # which is said where they are read
    classes = np.unique(found)
    limits = [(probabilities[found == name].min(), probabilities[found == name].max()) for name in classes]
    overlap = len(classes) == 2 and max(low for low, _ in limits) < min(high for _, high in limits)
    if len(classes) > 2 or overlap:
        raise DataError(
            item=f"table {str(path)!r}, column {positive!r}",
            wanted="the probability of the second of two classes",
            got=f"{first_few(classes)} in column {predicted!r}"
            + (", each with low and high values" if overlap else ""),
            fix="write the probability of each class as a column p_CLASS",
        )


def _by_class(columns: Sequence[str], classes: Sequence[str]) -> Mapping[str, str]:
    """Return the column of each class's probability, by the class's name or number."""
    plain = {word: column for column in columns for word in classes if one_form(column) == word}
    if classes and len(plain) == len(classes):
        return plain
    candidates = []
    for prefix in PREFIXES:
        found = {
            match[1]: column
            for column in columns
            if (match := re.fullmatch(rf"{prefix}_(.+)", one_form(column.strip()), re.IGNORECASE))
            and match[1].lower() not in NO_CLASSES
        }
        if found and (not classes or set(classes) <= set(found) or all(word.isdecimal() for word in found)):
            candidates.append(found)
    return max(candidates, key=lambda found: (all(word.isdecimal() for word in found), len(found)), default={})


def _negative_first(words: list[str]) -> tuple[str, ...]:
    """Return classes in the order of their columns, but the one that alone is called negative first."""
    negative = called_negative(words)
    return tuple(words) if len(negative) != 1 else (*negative, *(word for word in words if word not in negative))
