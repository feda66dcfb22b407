"""Lower bounds of times that hold with a stated chance although some times are censored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from pydantic import BaseModel, ConfigDict

from miue.calibration.ranks import Share, conformal_rank
from miue.common.values import check_fields


@dataclass(frozen=True)
class TimeBoundGoal:
    """What is asked: a bound that the time is before with chance at most ``error``.

    Attributes:
        error: P(time < bound) that may not be exceeded.
    """

    error: Share = 0.1

    def __post_init__(self) -> None:
        check_fields(self)


class TimeBound(BaseModel):
    """The bound of a bag is the time by which the predicted probability of an event reaches ``level``.

    Attributes:
        error: P(time < bound) that may not be exceeded.
        level: of the predicted distribution.
        bags: how many it was fitted on.
        early: how many of these were censored before their own bound, which makes bounds earlier than need be.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    error: float
    level: float
    bags: int
    early: int

    @property
    def fitted(self) -> str:
        """What was fitted, in words."""
        early = f"; censored before it: {self.early:,} of {self.bags:,} bags" if self.early else ""
        return f"time by which an event has probability {self.level:.4g}{early}"

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        return (
            f"the event comes before the bound with chance ≤ {self.error:g}, whatever the censoring, which can "
            "only make bounds earlier"
        )


def fit_time_bound(
    levels: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], goal: TimeBoundGoal
) -> TimeBound:
    """Return the ⌊(n + 1) · error⌋-th smallest of the levels that the observed times are at.

    A time that is censored is before that of the event, and so is its level: with the times of all events, which
    are exchangeable, the threshold would not be lower. So nothing is assumed of censoring. Where no bag is
    censored before its bound, the bound is as late as with all events.

    Reference: Candès, Lei & Ren 2023, "Conformalized survival analysis", Section 2.1; Chernozhukov et al. 2021 for
    levels as scores. Their later bounds leave out bags that are censored before a time c0. This needs the time of
    censoring of every bag, also of those with an event, and that it depends on features alone.

    Args:
        levels: predicted probability of an event by the observed time of each bag.
        observed: whether an event ended it, and not the end of observation.
        goal: what is asked; the bags are at least ``needed_for_rank``.
    """
    rank = len(levels) + 1 - conformal_rank(len(levels), goal.error)
    level = float(np.sort(levels)[rank - 1])
    early = int((~observed & (levels < level)).sum())
    return TimeBound(error=goal.error, level=level, bags=len(levels), early=early)
