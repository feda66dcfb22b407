"""Tables of predictions of any tool: which column is which, by the names that tools give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from miue.bags.cells import one_form
from miue.bags.classes import called_negative, check_names_given, known_labels, quoted_order
from miue.bags.column_names import BARCODE, COORDS, OF_TCGA, lower_case, numbers_rows
from miue.common.errors import ConfigError, DataError, first_few, missing_column
from miue.common.tables import read_columns, read_header
from miue.distributions.categorical import SUM_TO_ONE
from miue.distributions.measures import MEASURES
from miue.predictions.decisions import CALIBRATED_PREFIX
from miue.predictions.folder import Predictions, read_tables
from miue.predictions.provenance import Provenance
from miue.predictions.read_table import FACTS, OF_DECISIONS
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
OURS = {*FACTS, *OF_DECISIONS, *COORDS, *MEASURES, *PREDICTED, "label", "instance", "training_part"}
"""Columns that mean something, or whose numbers are computed from others, besides those that are recognized."""


def read_any_tables(
    bags: Path, instances: Path | None = None, classes: Sequence[str] = ()
) -> tuple[Predictions, str]:
    """Return predictions from the tables of any tool, and which columns were recognized or not read.

    The latter is "" where all columns are ours.

    Args:
        bags: a table with ids and probabilities (or concentrations), one row per bag.
        instances: likewise, one row per instance.
        classes: names in order; else those of the columns, else those of the labels.

    Raises:
        StorageError: missing or unreadable.
        ConfigError: more or fewer ``classes`` than probabilities, one twice, or one that no column has.
        DataError: no column of ids or probabilities, or what cannot be read.
    """
    classes = tuple(map(one_form, classes))
    check_names_given(classes, len(set(classes)), repr(str(bags)))
    header = read_header(bags)
    _check_classes_of_columns(header, bags, classes)
    names, words = _recognize(header, bags, classes)
    renamed = {column: meaning for meaning, column in names.items() if column != meaning}
    if renamed or words:
        words = tuple(words) or _classes_of_labels(bags, names.get("label"))
    said = ", ".join(f"{meaning} = {column!r}" for column, meaning in renamed.items())
    if words and not classes:
        said += f"{'; ' if said else ''}classes {', '.join(words)} (--classes sets another order)"
    about = {bags.name: [said, _not_read(header, names.values())]}
    of_instances = None
    if instances is not None:
        header_too = read_header(instances)
        of_instances = _recognize(header_too, instances, words)[0]
        renamed_too = [f"{meaning} = {column!r}" for meaning, column in of_instances.items() if column != meaning]
        about[instances.name] = [", ".join(renamed_too), _not_read(header_too, of_instances.values())]
    said = "; ".join(f"{name}: {'; '.join(filter(None, of))}" for name, of in about.items() if any(of))
    provenance = Provenance(classes=tuple(words))
    try:
        predictions = read_tables(bags, instances, provenance, names=names, instance_names=of_instances)
    except DataError as error:
        if others := _columns_left_out(header, names.values(), classes) if error.wanted == SUM_TO_ONE else []:
            raise DataError(
                item=error.item,
                wanted=f"probabilities of {', '.join(map(repr, classes))}, the classes named, that sum to 1",
                got=f"{error.got}; of no class that is named: {first_few(others)}",
                fix="name all classes of the table with --classes, the negative one first",
            ) from error
        raise
    check_names_given(words, predictions.bags.distribution.num_classes, repr(str(bags)))
    return predictions, said


def _check_classes_of_columns(columns: Sequence[str], path: Path, classes: Sequence[str]) -> None:
    """Raise where columns are named after classes and ``classes`` are others, or one alone.

    Raises:
        ConfigError: the classes that the columns name.
    """
    found = [word for word in _by_class(columns, ()) if not word.isdecimal()]
    without = [repr(word) for word in classes if word not in found] if len(found) > 1 else []
    if len(classes) == 1 or (without and not set(classes) <= set(map(one_form, columns))):
        named = f"that columns of {str(path)!r} are named after: {first_few(map(repr, found), 12)}"
        raise ConfigError(
            item=quoted_order(classes),
            wanted=f"the classes {named}" if len(found) > 1 else f"two or more, as {str(path)!r} is of",
            got=f"{first_few(without)}, of which there is no column" if without else "1 name",
            fix="name all of them with --classes, the negative one first",
        )


def _not_read(columns: Sequence[str], recognized: Iterable[str]) -> str:
    """Return which columns mean nothing here and how an uncertainty is named, "" where all mean something."""
    prefixes = rf"{SCORE_PREFIX}.+|{CALIBRATED_PREFIX}.+|(alpha|p)_\d+"
    others = [
        repr(column)
        for column in columns
        if not (column in OURS.union(recognized) or re.fullmatch(prefixes, column) or numbers_rows(column))
    ]
    name = f"an uncertainty of your own is a column {SCORE_PREFIX}NAME, higher where less certain"
    return f"not read: {first_few(others)} ({name})" if others else ""


def _columns_left_out(columns: Sequence[str], used: Iterable[str], classes: Sequence[str]) -> list[str]:
    """Return the columns that could be of classes which ``classes`` leave out."""
    if not classes:
        return []
    others = [column for column in columns if column not in set(used)]
    return [repr(column) for word, column in _by_class(others, ()).items() if not word.isdecimal()] or [
        repr(column)
        for column in others
        if lower_case(column) not in {*IDS, *LABELS, *PREDICTED, *PATIENTS, *POSITIVE}
        and one_form(column) not in classes
    ]


def _check_is_table(columns: Sequence[str], path: Path) -> None:
    """Raise where the first line is that of JSON or of a page, such as a calibration or a report."""
    if columns and columns[0].lstrip().startswith(("{", "[", "<")):
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="predictions: a folder with bags.csv, or a table (CSV, Parquet)",
            got=f"a file that begins with {columns[0].lstrip()[:15]!r}, as JSON and web pages do",
            fix="pass the predictions that it was made from",
        )


def _recognize(
    columns: Sequence[str], path: Path, classes: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the column of each of our names in a table, and the classes that its columns name."""
    lower = {lower_case(column): column for column in columns}
    bag_id = next((lower[name] for name in IDS if name in lower), None)
    if bag_id is None:
        _check_is_table(columns, path)
        raise missing_column(
            f"table {str(path)!r}", f"a column of ids: {', '.join(IDS)}", columns, "rename the column of the ids"
        )
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
        _check_numbers(path, by_class, classes)
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
        "turn logits into probabilities first (softmax, or sigmoid of one column), and name these so"
        if any("logit" in lower_case(column) for column in columns)
        else "name the columns of the probabilities so",
    )


def _check_numbers(path: Path, by_class: Mapping[str, str], classes: Sequence[str]) -> None:
    """Raise where columns are numbered otherwise than classes are, from 0 on without a gap, and no name says why.

    Raises:
        DataError: they are, as where a column was lost, or where the classes are called 1, 2 and 3.
    """
    numbers = sorted(by_class, key=int)
    first = next((str(c) for c in range(len(numbers)) if str(c) not in by_class), None)
    if classes or len(numbers) < 2 or first is None:
        return
    example = by_class[numbers[0]]
    lost = example.strip().removesuffix(numbers[0]) + first
    raise DataError(
        item=f"table {str(path)!r}",
        wanted=f"a column {lost} beside {example}: classes are numbered from 0",
        got=", ".join(by_class[number] for number in numbers),
        fix=f"put the column back, or if these are the names of the classes, say so: {quoted_order(numbers)}",
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
    ranges = [(probabilities[found == name].min(), probabilities[found == name].max()) for name in classes]
    overlap = len(classes) == 2 and max(low for low, _ in ranges) < min(high for _, high in ranges)
    if len(classes) <= 2 and not overlap:
        return
    raise DataError(
        item=f"table {str(path)!r}, column {positive!r}",
        wanted="the probability of the second of two classes",
        got=f"{first_few(classes)} in column {predicted!r}"
        + (", each with low and high values" if overlap else ""),
        fix="write the probability of each class as a column p_CLASS",
    )


def _by_class(columns: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
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


def _classes_of_labels(path: Path, column: str | None) -> tuple[str, ...]:
    """Return the two classes of a column of labels that are names; none where they are numbers."""
    if column is None:
        return ()
    cells = map(str, read_columns(path, {column})[column])
    words = set(known_labels(cells, str(path))) - {""}
    if all(re.fullmatch(r"-?\d+(\.0*)?", word) for word in words):
        return ()
    negative = called_negative(sorted(words))
    if len(words) == 2 and len(negative) == 1:
        return (negative[0], *(words - set(negative)))
    raise DataError(
        item=f"table {str(path)!r}, column {column!r}",
        wanted="numbers of classes, or names whose order is known",
        got=", ".join(sorted(words)),
        fix="pass --classes with the names in the order of the probabilities, the negative class first",
    )
