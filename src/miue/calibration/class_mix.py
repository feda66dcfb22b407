"""The class mix of new, unlabeled bags, estimated from their predicted classes (label shift)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from miue.calibration.compared import round_scores
from miue.predictions import PredictionTable

CLASS_MIX = "class_mix"
LEAST_SINGULAR_VALUE = 0.1
"""Of the confusion matrix: below it, predicted classes say next to nothing about the mix."""

DRAWS = 2000
COVERAGE = 0.95


class ClassMix(BaseModel):
    """What a calibration keeps of its bags' classes, to compare the mix of new ones with.

    Attributes:
        confusion: calibration bags of each class (row) by predicted class (column); empty where the calibration
            was weighted for other bags, whose labels are not known.
        probabilities: sorted probabilities of the classes of these bags, by the columns of ``mix_values``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    confusion: tuple[tuple[NonNegativeInt, ...], ...] = ()
    probabilities: dict[str, tuple[float, ...]] = Field(default_factory=dict)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each class among the calibration bags; empty without a confusion matrix."""
        counts = np.array(self.confusion).sum(1) if self.confusion else np.zeros(0)
        return tuple((counts / max(1, counts.sum())).tolist())

    @property
    def missing(self) -> tuple[int, ...]:
        """Classes of which the calibration has no bag, as far as the classes of its bags are known."""
        return tuple(label for label, counts in enumerate(self.confusion) if not any(counts))

    @property
    def unknown_because(self) -> str:
        """Why the mix of new bags cannot be estimated, "" where it can."""
        if not self.confusion:
            return "labels of the bags that the calibration is for are not known"
        counts = np.array(self.confusion, np.float64)
        if not counts.sum(1).all():
            return "the calibration has no bag of some class"
        least = np.linalg.svd(_columns(counts), compute_uv=False).min()
        if least < LEAST_SINGULAR_VALUE:
            return "the predicted classes of the calibration bags hardly depend on their labels"
        return ""


@dataclass(frozen=True)
class MixEstimate:
    """The estimated share of each class among new bags.

    Attributes:
        bags: how many.
        shares: of each class; they add up to 1.
        low: lower end of the 95 % interval of each share.
        high: its upper end.
    """

    bags: int
    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def impossible(self) -> bool:
        """Whether an interval is a single number, 0 or 1, since solutions without this bound are beyond it."""
        return any(low == high for low, high in zip(self.low, self.high, strict=True))

    def percent(self, label: int) -> str:
        """Return the share of a class and its interval in percent.

        >>> MixEstimate(60, (0.2, 0.8), (0.1, 0.68), (0.32, 0.9)).percent(1)
        '80 % (68 to 90)'
        """
        share, low, high = (100 * one[label] for one in (self.shares, self.low, self.high))
        return f"{share:.0f} % ({low:.0f} to {high:.0f})"


def mix_values(table: PredictionTable, class_names: Sequence[str]) -> dict[str, Float64[np.ndarray, "n"]]:
    """Return the probabilities in which a change of the class mix shows, rounded to float32.

    Of two classes the second, as "class_mix"; of more each, as "class_mix_" and its name.
    """
    probabilities = round_scores(table.probabilities)
    if len(class_names) == 2:
        return {CLASS_MIX: probabilities[:, 1]}
    return {f"{CLASS_MIX}_{name}": probabilities[:, label] for label, name in enumerate(class_names)}


def predicted_classes(table: PredictionTable) -> Int64[np.ndarray, "n"]:
    """Return the most probable class of each bag, alike before and after its table is written."""
    return round_scores(table.probabilities).argmax(1)


def fit_class_mix(table: PredictionTable, class_names: Sequence[str]) -> ClassMix:
    """Return what to compare the class mix of new bags with; no confusion matrix unless every label is known.

    Args:
        table: of the bags that a calibration is for, one of each patient.
        class_names: of the probabilities.
    """
    count, labeled = len(class_names), bool(table.labels.known.all())
    pairs = table.labels.values * count + predicted_classes(table) if labeled else np.zeros(0, np.int64)
    confusion = np.bincount(pairs, minlength=count**2).reshape(count, count)
    return ClassMix(
        confusion=tuple(map(tuple, confusion.tolist())) if labeled else (),
        probabilities={
            name: tuple(np.sort(values).tolist()) for name, values in mix_values(table, class_names).items()
        },
    )


def estimate_mix(
    confusion: Sequence[Sequence[int]], predicted: Int64[np.ndarray, "n"], *, seed: int = 0
) -> MixEstimate:
    """Return the share of each class among new bags by black-box shift estimation (BBSE).

    With M the shares of predicted classes (rows) among the calibration bags of each class (columns) and μ those
    among the new bags, M q = μ if bags of one class look as they did in the calibration, and only the mix has
    changed (label shift). Negative q are set to 0. Of two classes, q₁ = (μ₁ − FPR) / (TPR − FPR). The interval is
    that of `DRAWS` solutions with the columns of M and μ drawn from Dirichlet(count + 1/2).

    Reference: Lipton, Wang & Smola 2018, "Detecting and correcting for label shift with black box predictors";
    of two classes Rogan & Gladen 1978. Differs from them: intervals by draws instead of a normal approximation.

    Args:
        confusion: calibration bags of each class (row) by predicted class (column), (C, C); invertible.
        predicted: class of each new bag, at least one.
        seed: of the draws.

    >>> estimate_mix([[45, 5], [10, 40]], np.repeat([0, 1], [34, 66])).percent(1)
    '80 % (63 to 100)'
    """
    counts = np.array(confusion, np.float64)
    new = np.bincount(predicted, minlength=len(counts)).astype(np.float64)
    random = np.random.default_rng(seed)
    of_classes = random.standard_gamma(counts + 0.5, (DRAWS, *counts.shape))
    of_new = random.standard_gamma(new + 0.5, (DRAWS, len(new)))
    drawn = _solve(_columns(of_classes), of_new / of_new.sum(1, keepdims=True))
    low, high = np.quantile(drawn, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
    shares = _solve(_columns(counts)[None], new[None] / new.sum())[0]
    return MixEstimate(len(predicted), tuple(shares.tolist()), tuple(low.tolist()), tuple(high.tolist()))


def _columns(counts: Float64[np.ndarray, "*d C C"]) -> Float64[np.ndarray, "*d C C"]:
    """Return M: the share of each predicted class (row) among the bags of each class (column)."""
    shares: np.ndarray = counts / counts.sum(-1, keepdims=True)
    return np.swapaxes(shares, -1, -2)


def _solve(matrices: Float64[np.ndarray, "d C C"], new: Float64[np.ndarray, "d C"]) -> Float64[np.ndarray, "d C"]:
    solved = np.clip(np.linalg.solve(matrices, new[..., None])[..., 0], 0, None)
    shares: np.ndarray = solved / solved.sum(1, keepdims=True)
    return shares
