"""Sets of labels that hold the true one with a stated chance: split conformal prediction of bags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from pydantic import BaseModel, ConfigDict

from miue.bags.classes import names_or_numbers
from miue.calibration.ranks import Share, conformal_rank, needed_for_rank, weighted_rank
from miue.common.errors import DataError, unknown_name
from miue.common.values import check_fields

TIE = 2.0**-20
"""Difference up to which sums of probabilities are equal; ranks count in its square."""


def one_minus_probability(probabilities: Float64[np.ndarray, "n C"]) -> Float64[np.ndarray, "n C"]:
    """1 − p_c: the smallest sets on average.

    Reference: Sadinle et al. 2019 (LAC).
    """
    return 1 - probabilities


def cumulative_probability(probabilities: Float64[np.ndarray, "n C"]) -> Float64[np.ndarray, "n C"]:
    """Σ of the probabilities from the largest down to p_c, itself included: sets that adapt to the bag.

    Sums that agree to a millionth, as where p_c is 0, are ties. They are broken by the rank of the class, so that
    sets do not hold all classes that a bag excludes. The rule is deterministic, and the same in calibration and
    prediction, so that the coverage holds.

    Reference: Romano et al. 2020 (APS). Differs: they randomize each score.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(probabilities, order, 1), 1)
    sums = np.round(sums / TIE) * TIE + TIE**2 * np.arange(probabilities.shape[1])
    scores = np.empty_like(sums)
    np.put_along_axis(scores, order, sums, 1)
    return scores


SetScore = Callable[[np.ndarray], np.ndarray]
SET_SCORES: dict[str, SetScore] = {"lac": one_minus_probability, "aps": cumulative_probability}


@dataclass(frozen=True)
class PredictionSetGoal:
    """What is asked: sets that miss the label with chance at most ``error``.

    Attributes:
        error: P(label not in its set) that may not be exceeded.
        score: a name of ``SET_SCORES``.
        per_class: for the bags of each class, not only for all bags together.
    """

    error: Share = 0.1
    score: str = "lac"
    per_class: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.score not in SET_SCORES:
            raise unknown_name("score of prediction sets", self.score, SET_SCORES)


class PredictionSets(BaseModel):
    """Class c is in a bag's set where its score is at most ``thresholds[c]``.

    With ``aps`` the most probable class is always in it: its score is its probability, which is above a threshold
    where the bag is more certain than nearly all others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    score: str
    error: float
    per_class: bool
    thresholds: tuple[float, ...]
    bags: tuple[int, ...]
    full: float = 0.0
    """Share of the calibration bags whose set holds every class."""

    def describe(self, class_names: Sequence[str]) -> str:
        """Return which classes are in a set, in words; the thresholds of classes by their names."""
        if not self.per_class:
            return f"{self.score} ≤ {self.thresholds[0]:.4g}"
        limits = zip(class_names, self.thresholds, strict=True)
        return f"{self.score} ≤ {', '.join(f'{limit:.4g} for {name!r}' for name, limit in limits)}"

    @property
    def promise(self) -> str:
        """What is promised, in words."""
        over = "for each class" if self.per_class else "over all bags"
        return f"a set misses the label with chance ≤ {self.error:g}, {over}"

    def of(self, probabilities: Float64[np.ndarray, "n C"], *, in_order: bool = False) -> Bool[np.ndarray, "n C"]:
        """Return which classes are in the set of each bag; with ``lac`` a set may be empty.

        Args:
            probabilities: of the classes.
            in_order: of classes in an order, add those between two of a set: no promise is weaker for it.
        """
        sets: Bool[np.ndarray, "n C"] = SET_SCORES[self.score](probabilities) <= np.array(self.thresholds)
        if self.score == "aps":
            sets[np.arange(len(sets)), probabilities.argmax(1)] = True
        if in_order:  # a class is between two where one is at it or before, and one at it or after
            return np.logical_or.accumulate(sets, 1) & np.logical_or.accumulate(sets[:, ::-1], 1)[:, ::-1]
        return sets


def fit_prediction_sets(
    probabilities: Float64[np.ndarray, "n C"],
    labels: Int64[np.ndarray, "n"],
    goal: PredictionSetGoal,
    weights: Float64[np.ndarray, "n"] | None = None,
    own: float = 1.0,
    class_names: Sequence[str] = (),
) -> PredictionSets:
    """Return the sets' thresholds: the ⌈(n + 1)(1 − error)⌉-th smallest score of a label.

    Over all bags the coverage is marginal; with ``per_class``, over the bags of each class by themselves.

    Reference: Papadopoulos et al. 2002; Vovk et al. 2005, 2012 (Mondrian); with weights Tibshirani et al. 2019.

    Args:
        probabilities: of the classes.
        labels: class of each bag; of at least ``needed_for_rank`` bags, with ``per_class`` of each class.
        goal: what is asked.
        weights: density ratio of each bag, new bags over these; None where they come from one distribution.
        own: with weights, that of a new bag; the largest is on the safe side for every one.
        class_names: in order, for messages; else their numbers.

    Raises:
        DataError: weights too small beside ``own``.
    """
    classes = probabilities.shape[1]
    names = names_or_numbers(class_names, classes)
    scores = SET_SCORES[goal.score](probabilities)[np.arange(len(labels)), labels]
    groups = [labels == c if goal.per_class else np.full(len(labels), True) for c in range(classes)]
    thresholds = [
        _quantile(scores[group], goal, names[c], None if weights is None else weights[group], own)
        for c, group in enumerate(groups)
    ]
    sets = PredictionSets(
        score=goal.score,
        error=goal.error,
        per_class=goal.per_class,
        thresholds=tuple(thresholds),
        bags=tuple(int(group.sum()) for group in groups),
    )
    return sets.model_copy(update={"full": float(sets.of(probabilities).all(1).mean())})


def _quantile(
    scores: Float64[np.ndarray, "m"],
    goal: PredictionSetGoal,
    label: str,
    weights: Float64[np.ndarray, "m"] | None,
    own: float,
) -> float:
    order = np.argsort(scores, kind="stable")
    if weights is None:
        return float(scores[order[conformal_rank(len(scores), goal.error) - 1]])
    rank = weighted_rank(weights[order], own, goal.error)
    if rank > len(scores):
        of = f" of class {label!r}" if goal.per_class else ""
        raise DataError(
            item=f"prediction sets for the new bags that miss at most {goal.error:g}{of}",
            wanted=f"calibration bags{of} that weigh at least {needed_for_rank(goal.error)} times as much as "
            "a new bag",
            got=f"{weights.sum() / own:.1f} times, of {len(scores):,} bags",
            fix="label some of the new bags and calibrate on them, lower the coverage, or leave the sets out",
        )
    return float(scores[order[rank - 1]])
