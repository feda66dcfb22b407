"""The columns of a table of predictions become distributions, labels, scores and decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float64

from miue.bags.cells import is_number, row_name
from miue.bags.columns import COORDS, read_classes, read_flags, read_item_columns, whole_numbers
from miue.common.errors import DataError
from miue.common.tables import fix_of_number
from miue.common.text import plural
from miue.distributions import (
    MEASURES,
    SUM_TOLERANCE,
    Categorical,
    Dirichlet,
    Draws,
    PredictiveDistribution,
    applicable_measures,
)
from miue.predictions.decisions import CALIBRATED_PREFIX, Decisions, parse_prediction_sets
from miue.predictions.table import SCORE_PREFIX, PredictionTable

OF_DECISIONS = ("decision", "reason", "prediction_set", "flagged")
TEXT = {"bag_id", "slide", "patient", "label", "is_ood", "ood_set", "training_part", "observed", *OF_DECISIONS}
FACTS = ("bag_id", "is_ood", "ood_set", "patient", "patch_size")
OUTCOMES = ("outcome", "observed")
TRAINING_PARTS = ("train", "validation")
SINGLE = 1e-6  # by which a probability in float32 may differ from the decimal that was written


def decode(columns: Mapping[str, np.ndarray], name: str, classes: Sequence[str] = ()) -> PredictionTable:
    """Return the predictions in the columns of a table.

    Args:
        columns: by our names; those in ``TEXT`` as text.
        name: of the table, for messages.
        classes: names that labels may have.

    Raises:
        DataError: columns that are missing or hold something else.
    """
    distribution = read_distribution(columns, name)
    labels = None
    if "label" in columns:
        labels = read_classes(columns["label"], name, "label", classes, num_classes=distribution.num_classes)
    instance = whole_numbers(columns["instance"], name, "instance") if "instance" in columns else None
    facts = {what: columns[what] for what in FACTS if what in columns}
    if instance is not None and {*COORDS} <= set(columns):
        facts |= {axis: numbers_or_nan(columns[axis], axis, name) for axis in COORDS}
    if OUTCOMES[0] in columns:
        facts["outcome"] = numbers_or_nan(columns["outcome"], "outcome", name)
        facts |= {"observed": columns["observed"]} if "observed" in columns else {}
    if instance is not None and "slide" in columns:
        facts["slide"] = columns["slide"]
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
    sets, scaled = columns.get("prediction_set"), any(column.startswith(CALIBRATED_PREFIX) for column in columns)
    return Decisions(
        decision=columns["decision"],
        reason=columns.get("reason", np.full(len(columns["decision"]), "", object)),
        prediction_sets=None if sets is None else parse_prediction_sets(sets, num_classes, name),
        calibrated=read_distribution(columns, name, CALIBRATED_PREFIX) if scaled else None,
        time_bound=numbers_or_nan(columns["time_bound"], "time_bound", name) if "time_bound" in columns else None,
    )


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


def read_distribution(columns: Mapping[str, np.ndarray], name: str, prefix: str = "") -> PredictiveDistribution:
    """Return the Dirichlet of alpha_0 …, the Draws of p_0 … and expected_entropy, or the Categorical of p_0 ….

    For two classes p_1 is enough.

    Args:
        columns: of a table.
        name: that of the table, for messages.
        prefix: of the names of the columns.

    Raises:
        DataError: no such columns, not all of them, or values that are none.
    """
    kind, numbers = _class_columns(columns, name, prefix)
    of_classes = [f"{prefix}{kind}_{number}" for number in numbers]
    values = np.stack([read_numbers(columns[column], column, name) for column in of_classes], 1)
    if len(of_classes) == 1:
        values = np.hstack([_complement(values), values])
    parameters = torch.from_numpy(values if kind == "alpha" else _mend_rounding(values))
    expected = f"{prefix}expected_entropy"
    try:
        if kind == "alpha":
            return Dirichlet(parameters)
        if expected not in columns:
            return Categorical(parameters)
        return Draws(parameters, torch.from_numpy(read_numbers(columns[expected], expected, name)))
    except DataError as error:
        in_table = re.sub(r"^row (\d+)", lambda match: row_name(name, int(match[1])), error.item)
        raise error.replaced(item=f"table {name!r}, {in_table}") from error


def _class_columns(columns: Mapping[str, np.ndarray], name: str, prefix: str) -> tuple[str, list[int]]:
    """Return "alpha" or "p", and the classes that have such a column: all, or 1 alone of two.

    Raises:
        DataError: a class that has none, or no such columns.
    """
    found = {
        kind: sorted(
            int(match[1])
            for column in columns
            if (match := re.fullmatch(rf"{prefix}{kind}_(0|[1-9]\d{{0,8}})", column))
        )
        for kind in ("alpha", "p")
    }
    classes = max([1, *found["alpha"], *found["p"]]) + 1
    for kind, numbers in found.items():
        if numbers and len(numbers) < classes and (found["alpha"] or numbers != [1]):
            missing = next(number for number in range(classes) if number not in numbers)
            raise DataError(
                item=f"table {name!r}",
                wanted=f"a column {prefix}{kind}_{missing} beside {prefix}{kind}_{numbers[0]}",
                got=", ".join(columns),
                fix="put the column back, or if these numbers are the names of the classes, pass classes=NAMES",
            )
    kind = "alpha" if found["alpha"] else "p"
    if not found[kind]:
        raise DataError(
            item=f"table {name!r}",
            wanted=f"columns {prefix}alpha_0, {prefix}alpha_1, … or {prefix}p_0, {prefix}p_1, … "
            f"({prefix}p_1 alone for two classes)",
            got=", ".join(columns),
            fix="name the columns so",
        )
    return kind, found[kind]


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


def _complement(p: np.ndarray) -> np.ndarray:
    """Return 1 − p, a decimal where p is one: 0.93 of 0.07, so that it ties with the complement of 0.93."""
    rest = 1 - p
    rounded: np.ndarray = np.where(rest > 1e-3, rest.round(15), rest)  # smaller ones keep all of their digits
    return rounded


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
