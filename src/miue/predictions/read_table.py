"""One table of predictions, of this or any other tool: its columns become distributions, labels and scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float64

from miue.bags.cells import is_number, row_name
from miue.bags.column_names import COORDS
from miue.bags.table_columns import read_classes, read_flags, read_item_columns, whole_numbers
from miue.common.errors import DataError, lacking, missing_column
from miue.common.tables import fix_of_number, read_columns
from miue.common.text import plural
from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution
from miue.distributions.categorical import SUM_TOLERANCE
from miue.distributions.measures import MEASURES, applicable_measures
from miue.predictions.decisions import CALIBRATED_PREFIX, Decisions, calibrated_columns, parse_prediction_sets
from miue.predictions.table import SCORE_PREFIX, PredictionTable

OF_DECISIONS = ("decision", "reason", "prediction_set", "flagged")
TEXT = {"bag_id", "patient", "label", "is_ood", "ood_set", "training_part", *OF_DECISIONS}
FACTS = ("bag_id", "is_ood", "ood_set", "patient", "patch_size")
TRAINING_PARTS = ("train", "validation")
SINGLE = 1e-6  # by which a probability in float32 may differ from the decimal that was written


def read_table(
    path: Path | str, classes: Sequence[str] = (), names: Mapping[str, str] | None = None
) -> PredictionTable:
    """Read one table of predictions, from this or any other tool (CSV, plain or gzipped, or Parquet).

    Args:
        path: the table.
        classes: names that labels may have.
        names: columns that have other names, by ours.

    Raises:
        StorageError: missing or unreadable.
        DataError: columns that are missing or hold something else.
    """
    ours = {column: name for name, column in (names or {}).items()}
    read = read_columns(Path(path), TEXT | {column for column, name in ours.items() if name in TEXT})
    columns = {ours.get(column, column): values for column, values in read.items()}
    if "bag_id" not in columns:
        raise missing_column(f"table {str(path)!r}", "a column 'bag_id'", columns, "name the id column bag_id")
    nameless = np.flatnonzero([not name.strip() for name in columns["bag_id"]])
    if len(nameless):
        item = f"table {str(path)!r}, {row_name(str(path), nameless[0])}, column 'bag_id'"
        raise lacking(item, "the name of a bag", "fill the cell, or drop the row")
    try:
        return _table_from_columns(columns, str(path), classes)
    except DataError as error:
        called = {f"column {ours[column]!r}": f"column {column!r}" for column in read if column in ours}
        item = re.sub(r"column '\w+'", lambda match: called.get(match[0], match[0]), error.item)
        if item == error.item:
            raise
        raise error.replaced(item=item) from error


def _table_from_columns(
    columns: Mapping[str, np.ndarray], name: str, classes: Sequence[str] = ()
) -> PredictionTable:
    distribution = read_distribution(columns, name)
    labels = None
    if "label" in columns:
        labels = read_classes(columns["label"], name, "label", classes, num_classes=distribution.num_classes)
    instance = whole_numbers(columns["instance"], name, "instance") if "instance" in columns else None
    facts = {what: columns[what] for what in FACTS if what in columns}
    if instance is not None and {*COORDS} <= set(columns):
        facts |= {axis: numbers_or_nan(columns[axis], axis, name) for axis in COORDS}
    return PredictionTable(
        distribution=distribution,
        bag_ids=columns["bag_id"],
        instance=instance,
        scores=read_scores(columns, name, distribution),
        decisions=_decisions(columns, name, distribution.num_classes),
        training_parts=_training_parts(columns["training_part"], name) if "training_part" in columns else None,
        flagged=read_flagged(columns["flagged"], name) if instance is not None and "flagged" in columns else None,
        **read_item_columns(facts, name, labels).columns(),
    )


def _training_parts(cells: np.ndarray, name: str) -> np.ndarray:
    """Return the part of the training that each bag was in, "" for none.

    Raises:
        DataError: a word that is no part, by which a bag of the training would count as a new one.
    """
    wrong = np.flatnonzero(~np.isin(cells.astype(str), ["", *TRAINING_PARTS]))
    if len(wrong):
        raise DataError(
            item=f"table {name!r}, {row_name(name, wrong[0])}, column 'training_part'",
            wanted=f"{' or '.join(TRAINING_PARTS)}, or nothing",
            got=repr(str(cells[wrong[0]])),
            fix="correct the cell, or predict again",
        )
    return cells


def _decisions(columns: Mapping[str, np.ndarray], name: str, num_classes: int) -> Decisions | None:
    if "decision" not in columns:
        return None
    sets = (
        parse_prediction_sets(columns["prediction_set"], num_classes, name)
        if "prediction_set" in columns
        else None
    )
    return Decisions(
        decision=columns["decision"],
        reason=columns.get("reason", np.full(len(columns["decision"]), "", object)),
        prediction_sets=sets,
        calibrated=_calibrated(columns, name),
    )


def _calibrated(columns: Mapping[str, np.ndarray], name: str) -> PredictiveDistribution | None:
    """Return the distribution of the calibrated columns, None where there are none."""
    calibrated = calibrated_columns(columns)
    try:
        return read_distribution(calibrated, name) if calibrated else None
    except DataError as error:  # which names columns without the prefix
        item = f"the columns {CALIBRATED_PREFIX}… of {error.item}"
        raise error.replaced(item=item) from error


def read_flagged(values: np.ndarray, name: str) -> Bool[np.ndarray, "n"]:
    """Return a column of which every cell is true or false.

    Raises:
        DataError: a cell that is neither.
    """
    flags = read_flags(values, name, "flagged")
    if not flags.known.all():
        raise DataError(
            item=f"table {name!r}, {row_name(name, np.flatnonzero(~flags.known)[0])}, column 'flagged'",
            wanted="true or false",
            got="an empty cell",
            fix="fill the column, or drop it",
        )
    return flags.values


def read_scores(
    columns: Mapping[str, np.ndarray], name: str, distribution: PredictiveDistribution
) -> dict[str, Float64[np.ndarray, "n"]]:
    """Return the columns score_… and the measures that the distribution does not hold.

    Raises:
        DataError: a score that is no finite number.
    """
    computed = applicable_measures(distribution)
    taken = {
        column: column.removeprefix(SCORE_PREFIX)
        for column in columns
        if column.startswith(SCORE_PREFIX) or (column in MEASURES and column not in computed)
    }
    return {score: read_numbers(columns[column], column, name) for column, score in taken.items()}


def read_distribution(columns: Mapping[str, np.ndarray], name: str) -> PredictiveDistribution:
    """Return the Dirichlet of alpha_0 …, the Draws of p_0 … and expected_entropy, or the Categorical of p_0 ….

    For two classes p_1 is enough.

    Args:
        columns: of a table.
        name: that of the table, for messages.

    Raises:
        DataError: no such columns, not all of them, or values that are none.
    """
    _check_class_columns(columns, name)
    for prefix, kind in (("alpha_", Dirichlet), ("p_", Categorical)):
        present = [f"{prefix}{c}" for c in range(len(columns)) if f"{prefix}{c}" in columns]
        alone = present == ["p_1"]
        if alone or (len(present) >= 2 and present[-1] == f"{prefix}{len(present) - 1}"):
            values = np.stack([read_numbers(columns[column], column, name) for column in present], 1)
            if alone:
                _check_probability(values[:, 0], name)
                values = np.hstack([_complement(values), values])
            values = _mend_rounding(values) if kind is Categorical else values
            try:
                if kind is Categorical and "expected_entropy" in columns:
                    expected = read_numbers(columns["expected_entropy"], "expected_entropy", name)
                    return Draws(torch.from_numpy(values), torch.from_numpy(expected))
                return kind(torch.from_numpy(values))
            except DataError as error:
                raise error.replaced(item=f"table {name!r}, {_in_table(error.item, name)}") from error
    raise DataError(
        item=f"table {name!r}",
        wanted="columns alpha_0, alpha_1, … or p_0, p_1, … (p_1 alone for two classes)",
        got=", ".join(columns),
        fix="name the columns so",
    )


def _mend_rounding(probabilities: Float64[np.ndarray, "n C"]) -> Float64[np.ndarray, "n C"]:
    """Return probabilities that were written with few digits, divided by their sums; others as they are.

    C numbers of d decimals may sum to 1 ± C / 2 · 10^−d. Others are checked where they become a distribution.

    >>> _mend_rounding(np.array([[0.33, 0.33, 0.33], [0.5, 0.3, 0.2]])).sum(1).round(12).tolist()
    [1.0, 1.0]
    """
    sums = probabilities.sum(1)
    off = np.abs(sums - 1).max(initial=0.0)
    decimals = next((d for d in (2, 3) if np.abs(probabilities - probabilities.round(d)).max() < SINGLE), None)
    if decimals is None or not SUM_TOLERANCE < off <= probabilities.shape[1] * 10.0**-decimals / 2 + SINGLE:
        return probabilities
    return probabilities / sums[:, None]


def _check_probability(values: Float64[np.ndarray, "n"], name: str) -> None:
    """Raise unless each value of the only column p_1 can be a probability."""
    outside = np.flatnonzero((values < 0) | (values > 1))
    if len(outside):
        raise DataError(
            item=f"table {name!r}, {row_name(name, outside[0])}, column 'p_1'",
            wanted="the probability of the second class, from 0 to 1",
            got=f"{values[outside[0]]:.6g}",
            fix="turn a logit into 1 / (1 + exp(−logit)), divide a percentage by 100; other scores are no "
            "probabilities",
        )


def _complement(p: np.ndarray) -> np.ndarray:
    """Return 1 − p, a decimal where p is one: 0.93 of 0.07, so that it ties with the complement of 0.93."""
    rest = 1 - p
    rounded: np.ndarray = np.where(rest > 1e-3, rest.round(15), rest)  # smaller ones keep all of their digits
    return rounded


def _in_table(item: str, name: str) -> str:
    """Return the item of an error with where the row is in a table, for a row that counts from 0.

    >>> _in_table("row 0 of alpha", "predictions.csv")
    'line 2 of alpha'
    """
    return re.sub(r"^row (\d+)", lambda match: row_name(name, int(match[1])), item)


def _check_class_columns(columns: Mapping[str, np.ndarray], name: str) -> None:
    """Raise unless alpha_0, … and p_0, … are whole, where there are any, and of the same classes."""
    numbers = {
        prefix: sorted(
            int(match[1]) for column in columns if (match := re.fullmatch(rf"{prefix}(\d{{1,9}})", column))
        )
        for prefix in ("alpha_", "p_")
    }
    alone = [1] if not numbers["alpha_"] and numbers["p_"] == [1] else None
    classes = 1 + max((number for known in numbers.values() for number in known), default=0)
    for prefix, known in numbers.items():
        first = next(number for number in range(len(known) + 1) if number not in known)
        missing = [first] if first < classes else []
        if known and (missing or classes < 2) and known != alone:
            raise DataError(
                item=f"table {name!r}",
                wanted=f"a column {prefix}{missing[0] if missing else 1} beside {prefix}{known[0]}",
                got=", ".join(columns),
                fix="put the column back, or predict again",
            )


def read_numbers(values: np.ndarray, column: str, name: str) -> Float64[np.ndarray, "n"]:
    """Return a column of finite numbers.

    Raises:
        DataError: a cell that is none.
    """
    numbers = numbers_or_nan(values, column, name)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(
            item=f"table {name!r}, {row_name(name, bad[0])}, column {column!r}",
            wanted="a finite number",
            got="none" if np.isnan(numbers[bad[0]]) else str(numbers[bad[0]]),
            fix=f"fill or drop {plural(len(bad), 'row')} without one",
        )
    return numbers


def numbers_or_nan(values: np.ndarray, column: str, name: str) -> Float64[np.ndarray, "n"]:
    """Return a column of numbers, NaN where a cell is empty.

    Raises:
        DataError: a cell that is something else.
    """
    if values.dtype.kind not in "iufb":
        values = np.where(values.astype(str) == "", "nan", values.astype(str))
    try:
        numbers: np.ndarray = values.astype(np.float64)
    except ValueError as error:
        cell = str(next(value for value in values.tolist() if not is_number(str(value))))
        raise DataError(
            item=f"table {name!r}, column {column!r}",
            wanted="numbers",
            got=repr(cell),
            fix=fix_of_number(cell) or "correct the column",
        ) from error
    return numbers
