"""What is decided of each bag, as columns of a table of predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from miue.bags.cells import row_name
from miue.common.errors import DataError
from miue.distributions import Dirichlet, PredictiveDistribution

DEFERRED = "deferred"
OUT_OF_DISTRIBUTION = "out of distribution"
RESERVED = (DEFERRED, OUT_OF_DISTRIBUTION)
CALIBRATED_PREFIX = "calibrated_"


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions of n bags.

    Attributes:
        decision: the name of a class, ``DEFERRED`` or ``OUT_OF_DISTRIBUTION``.
        reason: why, in plain words.
        prediction_sets: which classes are in each bag's set; None where no sets were asked for.
        calibrated: the prediction after scaling; None where none was asked for.
        time_bound: before which no event comes with the promised chance; None where none was asked for.
    """

    decision: np.ndarray
    reason: np.ndarray
    prediction_sets: Bool[np.ndarray, "n C"] | None = None
    calibrated: PredictiveDistribution | None = None
    time_bound: Float64[np.ndarray, "n"] | None = None

    @property
    def deferred(self) -> Bool[np.ndarray, "n"]:
        """Which bags are deferred to a person."""
        return np.asarray(self.decision == DEFERRED)

    @property
    def flagged(self) -> Bool[np.ndarray, "n"]:
        """Which bags are called out of distribution."""
        return np.asarray(self.decision == OUT_OF_DISTRIBUTION)

    @property
    def accepted(self) -> Bool[np.ndarray, "n"]:
        """Which bags are given a class."""
        return ~self.deferred & ~self.flagged

    @property
    def empty_sets(self) -> Bool[np.ndarray, "n"]:
        """Which bags have a prediction set without any class; none where no sets were asked for."""
        if self.prediction_sets is None:
            return np.zeros(len(self.decision), bool)
        return np.asarray(~self.prediction_sets.any(1))

    def subset(self, rows: Int64[np.ndarray, "m"]) -> Decisions:
        """Return the decisions of the given bags."""
        return Decisions(
            decision=self.decision[rows],
            reason=self.reason[rows],
            prediction_sets=None if self.prediction_sets is None else self.prediction_sets[rows],
            calibrated=None if self.calibrated is None else self.calibrated.subset(torch.from_numpy(rows)),
            time_bound=None if self.time_bound is None else self.time_bound[rows],
        )

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns as they are written: a prediction set lists class indices, "" for an empty one."""
        columns: dict[str, np.ndarray] = {"decision": self.decision, "reason": self.reason}
        if self.prediction_sets is not None:
            lists = [" ".join(map(str, np.flatnonzero(row))) for row in self.prediction_sets]
            columns["prediction_set"] = np.array(lists, object)
        if self.time_bound is not None:
            columns["time_bound"] = self.time_bound
        if isinstance(self.calibrated, Dirichlet):
            for c, alpha in enumerate(self.calibrated.alpha.numpy().T):
                columns[f"{CALIBRATED_PREFIX}alpha_{c}"] = alpha
        if self.calibrated is not None:
            for c, probability in enumerate(self.calibrated.probabilities.numpy().T):
                columns[f"{CALIBRATED_PREFIX}p_{c}"] = probability
        return columns


def parse_prediction_sets(texts: np.ndarray, num_classes: int, name: str) -> Bool[np.ndarray, "n C"]:
    """Return which classes each text lists; pandas writes "1.0" for class 1 alone, if other texts are empty.

    Raises:
        DataError: something else than class indices from 0 with spaces between.
    """
    sets = np.zeros((len(texts), num_classes), bool)
    for row, text in enumerate(texts):
        words = [word.removesuffix(".0") for word in str(text).split()]
        if not all(word.isdecimal() and int(word) < num_classes for word in words):
            raise DataError(
                item=f"table {name!r}, {row_name(name, row)}, column 'prediction_set'",
                wanted=f"class indices from 0 to {num_classes - 1} with spaces between, or nothing",
                got=repr(str(text)),
                fix="list the indices of the classes",
            )
        sets[row, [int(word) for word in words]] = True
    return sets
