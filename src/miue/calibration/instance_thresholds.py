"""From which score on an instance is flagged, so that a promise holds that needs bag labels alone.

Every instance of a negative bag is negative, so that negative bags are labeled calibration data for instances.
Each promise bounds the mean of a loss that depends on the threshold in one direction, by conformal risk control.
The unit is the patient: the loss of a patient is the mean over its bags, so that a promise is for a bag drawn at
random of a new patient, and no bag is left out.

Reference: Angelopoulos et al. 2024 (conformal risk control); Lee, Barber & Willett 2023 (hierarchical data).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.bags import group_by_patient
from miue.calibration.instance_flags import InstanceFlags, InstanceGoal, instance_scores
from miue.calibration.ranks import exact
from miue.common.errors import DataError, lacking
from miue.common.text import plural
from miue.common.values import Guarantee
from miue.predictions import Predictions


def fit_instance_flags(
    predictions: Predictions, goal: InstanceGoal, class_names: Sequence[str], *, bags_of_patient: str = "one"
) -> InstanceFlags:
    """Return the threshold that keeps the promise and flags most instances, fewest for promises on positive bags.

    With losses L_u of n patients, at most B, that is the extreme t with (Σ_u L_u(t) + B) / (n + 1) ≤ level, in
    exact fractions. With one bag of each patient, "no-false-flag" is the ⌈(n + 1)(1 − level)⌉-th smallest of the
    bags' highest scores, exceeded, and "detection" the ⌊(n + 1) level⌋-th smallest, reached.

    Args:
        predictions: of labeled bags and their instances.
        goal: what is asked.
        class_names: in the order of the probabilities.
        bags_of_patient: "one" for patients as units; "all" for bags as if they were independent.

    Raises:
        DataError: no instances, instances that contradict the negative class, or too few bags.
    """
    if predictions.instances is None:
        raise lacking("flags of instances", "predictions of instances", "predict again, or leave the flags out")
    negative_class = goal.find_negative_class(class_names)
    table = predictions.bags
    labels, usable = table.labels.values, table.judged
    rows = np.flatnonzero(usable & ((labels == negative_class) == goal.of_negatives))
    scored = _ScoredInstances.of(predictions, rows, goal, negative_class)
    chosen = scored.fully_labeled() if goal.guarantee == "recall" else np.ones(len(rows), bool)
    rows, scored = rows[chosen], scored.of_bags(chosen)
    whose = None if table.patients is None or bags_of_patient == "all" else group_by_patient(table.patients)[rows]
    units = np.arange(len(rows)) if whose is None else np.unique(whose.astype(str), return_inverse=True)[1]
    count = int(units.max(initial=-1)) + 1
    if count < goal.needed:
        wanted = goal.needed_bags if whose is None else f"patients with {goal.needed_bags}"
        label = "label instances of positive bags by instance_labels=TABLE, " if goal.guarantee == "recall" else ""
        raise DataError(
            item=f"flags of instances ({goal.guarantee} {goal.level:g})",
            wanted=f"at least {goal.needed} {wanted}",
            got=str(count),
            fix=f"{label}add bags, ask for less, or leave the flags out",
        )
    values, divisors = scored.losses(goal, np.bincount(units, minlength=count)[units])
    budget = exact(goal.level) * (count + 1) - goal.highest_loss
    threshold, loss = _threshold(values, divisors, budget, goal, lowest=float(scored.score.min()))
    return InstanceFlags(
        guarantee=cast("Guarantee", goal.guarantee),
        level=goal.level,
        score=goal.score,
        negative_class=negative_class,
        threshold=threshold,
        allowed=goal.allowed,
        cap=goal.cap,
        bags=len(rows),
        patients=None if whose is None else count,
        left_out=int((~chosen).sum()),
        measured=float(loss / count),
        estimator=predictions.provenance.estimator,
    )


def refuse_positive_instances(
    bag_ids: Sequence[str], bag: Int64[np.ndarray, "M"], positive: Bool[np.ndarray, "M"]
) -> None:
    """Raise where an instance of a bag of the negative class is labeled positive.

    Args:
        bag_ids: of the bags of the negative class.
        bag: the position of each instance's bag among them.
        positive: whether the instance is labeled, and not as negative.

    Raises:
        DataError: one is.
    """
    if positive.any():
        bags = np.unique(bag[positive])
        raise DataError(
            item=f"bag {bag_ids[bag[positive.argmax()]]!r} of the negative class",
            wanted="no instance that is labeled positive",
            got=f"{plural(int(positive.sum()), 'such instance')} of {plural(len(bags), 'bag')}",
            fix="name the class whose bags have negative instances only, or correct the labels",
        )


@dataclass(frozen=True)
class _ScoredInstances:
    """The n instances of m bags.

    Attributes:
        bag: position of each instance's bag among the m.
        score: of each instance.
        positive: which instances are labeled positive.
        known: which instances are labeled, and not known to be out of distribution, as ``evaluate`` judges them.
        bags: m.
    """

    bag: Int64[np.ndarray, "n"]
    score: Float64[np.ndarray, "n"]
    positive: Bool[np.ndarray, "n"]
    known: Bool[np.ndarray, "n"]
    bags: int

    @classmethod
    def of(
        cls, predictions: Predictions, rows: Int64[np.ndarray, "m"], goal: InstanceGoal, negative_class: int
    ) -> _ScoredInstances:
        """Return the instances of some bags, which are read part by part."""
        assert predictions.instances is not None
        ids = predictions.bags.bag_ids.astype(str)[rows].tolist()
        position = {name: number for number, name in enumerate(ids)}
        bags, scores = [np.zeros(0, np.int64)], [np.zeros(0)]
        known, positive = [np.zeros(0, bool)], [np.zeros(0, bool)]
        for part in predictions.instances.of_bags(ids).parts():
            bags.append(part.rows_of_bags().places(position))
            scores.append(instance_scores(part, goal.score, negative_class))
            known.append(part.judged)
            positive.append(part.labels.known & (part.labels.values != negative_class))
        scored = cls(
            bag=np.concatenate(bags),
            score=np.concatenate(scores),
            positive=np.concatenate(positive),
            known=np.concatenate(known),
            bags=len(rows),
        )
        scored._check(ids, goal)
        return scored

    def _check(self, ids: Sequence[str], goal: InstanceGoal) -> None:
        empty = np.flatnonzero(np.bincount(self.bag, minlength=self.bags) == 0)
        if len(empty):
            raise lacking(f"bag {ids[empty[0]]!r}", "at least one instance in the table", "predict it again")
        if goal.of_negatives:
            refuse_positive_instances(ids, self.bag, self.positive)

    def fully_labeled(self) -> Bool[np.ndarray, "m"]:
        """Return which bags have a label that counts of every instance, and a positive instance."""
        unknown = np.bincount(self.bag, ~self.known, minlength=self.bags)
        return (unknown == 0) & (np.bincount(self.bag, self.positive, minlength=self.bags) > 0)

    def of_bags(self, chosen: Bool[np.ndarray, "m"]) -> _ScoredInstances:
        """Return the instances of the chosen bags."""
        keep = chosen[self.bag]
        bag = (chosen.cumsum() - 1)[self.bag[keep]]
        return _ScoredInstances(bag, self.score[keep], self.positive[keep], self.known[keep], int(chosen.sum()))

    def losses(
        self, goal: InstanceGoal, bags_of_unit: Int64[np.ndarray, "m"]
    ) -> tuple[Float64[np.ndarray, "k"], Int64[np.ndarray, "k"]]:
        """Return the scores at which the sum of the losses steps by 1 / divisor, and the divisors.

        Args:
            goal: whose loss.
            bags_of_unit: bags of the patient of each bag, itself included.
        """
        if goal.guarantee == "recall":
            of_bag = np.bincount(self.bag, self.positive, minlength=self.bags).astype(np.int64) * bags_of_unit
            return self.score[self.positive], of_bag[self.bag[self.positive]]
        order = np.lexsort((-self.score, self.bag))
        bag, score = self.bag[order], self.score[order]
        sizes = np.bincount(bag, minlength=self.bags)
        rank = np.arange(len(bag)) - (sizes.cumsum() - sizes)[bag]  # 0 for the highest score of a bag
        if goal.guarantee == "false-positives":
            steps = rank < goal.cap
        else:  # a bag of no more instances than are allowed has no step: it never has more flags
            steps = rank == (goal.allowed if goal.guarantee == "no-false-flag" else 0)
        return score[steps], bags_of_unit[bag[steps]]


def _threshold(
    values: Float64[np.ndarray, "k"],
    divisors: Int64[np.ndarray, "k"],
    budget: Fraction,
    goal: InstanceGoal,
    *,
    lowest: float,
) -> tuple[float, Fraction]:
    """Return the extreme threshold at which the sum of the losses is within the budget, and that sum.

    A flag on a negative bag costs where score ≥ threshold, so that steps count from the highest score down and the
    threshold is just above the first that no longer fits; where all fit, it is the ``lowest`` score of all. A
    missed positive costs where score < threshold, so that steps count upwards and the threshold is the first that
    no longer fits. Equal scores count together.
    """
    order = np.argsort(-values if goal.of_negatives else values, kind="stable")
    values, divisors = values[order], divisors[order]
    distinct, number = np.unique(divisors, return_inverse=True)
    ends = np.append(np.flatnonzero(np.diff(values)) + 1, len(values))

    def total(count: int) -> Fraction:
        counts = np.bincount(number[:count], minlength=len(distinct))
        return sum((Fraction(int(c), int(d)) for c, d in zip(counts, distinct, strict=True)), Fraction(0))

    fitting = bisect_right(ends, budget, key=lambda end: total(int(end)))
    count = int(ends[fitting - 1]) if fitting else 0
    if count == len(values):  # only of flags on negative bags: all may be flagged
        return lowest, total(count)
    first = float(values[count])
    return float(np.nextafter(first, np.inf)) if goal.of_negatives else first, total(count)
