"""Bags that a model was trained on are no measure of what it does with new ones."""

from __future__ import annotations

import numpy as np

from miue.common.errors import DataError, first_few
from miue.predictions.table import PredictionTable


def refuse_training_bags(table: PredictionTable, purpose: str, fix: str, *, allowed: bool = False) -> int:
    """Raise where the model was trained on some of these bags, or on others of their patients; return how many.

    Args:
        table: predictions of bags.
        purpose: of the bags, such as "calibrate on".
        fix: what to do instead.
        allowed: let them pass.

    Raises:
        DataError: it was, and they are not allowed.
    """
    if table.training_parts is None:
        return 0
    trained = np.flatnonzero(table.training_parts == "train")
    if len(trained) and not allowed:
        names = first_few(repr(str(name)) for name in table.bag_ids[trained])
        raise DataError(
            item=f"the bags to {purpose}",
            wanted="bags that took no part in training",
            got=f"{len(trained):,} of {len(table):,} that the model was trained on, or others of their patients: "
            + names,
            fix=fix,
        )
    return len(trained)
