"""Bags that a model was trained on are no measure of what it does with new ones."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64

from miue.common.errors import DataError, first_few
from miue.predictions.table import PredictionTable


def is_trained_on(table: PredictionTable) -> Bool[np.ndarray, "n"]:
    """Return whether the model was trained on each bag, or on others of its patient."""
    parts = table.training_parts
    return np.zeros(len(table), bool) if parts is None else np.asarray(parts == "train")


def training_rows(table: PredictionTable) -> Int64[np.ndarray, "k"]:
    """Return the rows of bags that the model was trained on, or on others of their patients."""
    return np.flatnonzero(is_trained_on(table))


def refuse_training_bags(table: PredictionTable, purpose: str, fix: str) -> None:
    """Raise where the model was trained on some of these bags, or on others of their patients.

    Args:
        table: predictions of bags.
        purpose: of the bags, such as "calibrate on".
        fix: what to do instead.

    Raises:
        DataError: it was.
    """
    trained = training_rows(table)
    if len(trained):
        names = first_few(repr(str(name)) for name in table.bag_ids[trained])
        raise DataError(
            item=f"the bags to {purpose}",
            wanted="bags that took no part in training",
            got=f"{len(trained):,} of {len(table):,} that the model was trained on, or others of their patients: "
            + names,
            fix=fix,
        )
