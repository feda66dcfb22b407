"""From which score on a bag counts as out of distribution, at a stated rate of false alarms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict

from miue.calibration.ranks import (
    Share,
    conformal_rank,
    needed_for_rank,
    needed_for_tolerance,
    tolerance_rank,
)
from miue.common.errors import DataError
from miue.common.values import check_fields

PREFERRED_SCORES = ("combined_mean", "knn_mean", "vacuity", "least_confidence")
"""By which bags are called out of distribution unless another is named, such as any other distance."""


@dataclass(frozen=True)
class FalseAlarmGoal:
    """What is asked: an in-distribution bag is called out of distribution with chance at most ``rate``.

    Attributes:
        rate: the rate of false alarms.
        score: the uncertainty that is compared; None for the first of ``PREFERRED_SCORES`` that the bags have.
        confidence: chance over calibration sets that the rate is kept; None to keep it on average over them.
    """

    rate: Share = 0.05
    score: str | None = None
    confidence: Share | None = None

    def __post_init__(self) -> None:
        check_fields(self)


class FalseAlarms(BaseModel):
    """A bag whose ``score`` is above ``threshold`` is called out of distribution.

    Attributes:
        score: the uncertainty that is compared.
        threshold: above which a bag is called so.
        rate: of false alarms, that may not be exceeded.
        confidence: chance over calibration sets that the rate is kept; None where it is kept on average.
        bags: that set the threshold.
        rank: of the threshold among their scores, from 1; calibration.json keeps it for readers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    score: str
    threshold: float
    rate: float
    confidence: float | None
    bags: int
    rank: int

    @property
    def fitted(self) -> str:
        """Which bags are called out of distribution, in words."""
        return f"out of distribution where {self.score} > {self.threshold:.4g}"

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        sure = "on average" if self.confidence is None else f"at confidence {self.confidence:g}"
        return f"false alarms ≤ {self.rate:g} {sure}"


def needed_for_false_alarms(goal: FalseAlarmGoal) -> int:
    """Return how many in-distribution bags a threshold with this goal needs."""
    if goal.confidence is None:
        return needed_for_rank(goal.rate)
    return needed_for_tolerance(goal.rate, goal.confidence)


def rank_of_threshold(count: int, goal: FalseAlarmGoal) -> int:
    """Return which of the sorted scores of so many bags is the threshold; one more than there are if too few."""
    if goal.confidence is None:
        return conformal_rank(count, goal.rate)
    return tolerance_rank(count, goal.rate, goal.confidence)


def fit_false_alarms(values: Float64[np.ndarray, "n"], score: str, goal: FalseAlarmGoal) -> FalseAlarms:
    """Return the k-th smallest score of in-distribution bags as the threshold.

    k = ⌈(n + 1)(1 − rate)⌉ keeps the rate on average over calibration sets; with a confidence, k is the
    least order statistic that keeps it at that confidence.

    Reference: Laxhammar & Falkman 2010 (conformal anomaly detection); Bates et al. 2023.

    Args:
        values: of in-distribution bags, at least ``needed_for_false_alarms``.
        score: name of the values.
        goal: what is asked.

    Raises:
        DataError: the threshold is not finite.
    """
    count = len(values)
    rank = rank_of_threshold(count, goal)
    threshold = float(np.sort(values)[rank - 1])
    if not np.isfinite(threshold):
        raise DataError(
            item=f"the score {score!r} of in-distribution calibration bags",
            wanted="finite numbers of at most 3e38 up to the threshold",
            got=str(threshold),
            fix="mend the scores, or choose another",
        )
    return FalseAlarms(
        score=score,
        threshold=threshold,
        rate=goal.rate,
        confidence=goal.confidence,
        bags=count,
        rank=rank,
    )
