"""Uncertainty measures: functions of a predictive distribution, higher where it is less certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution

Kind = Literal["total", "data", "model"]


@dataclass(frozen=True)
class Measure:
    """One named measure: the method of a distribution that has its name.

    Attributes:
        name: column name in tables.
        kind: which uncertainty it speaks of.
        describes: one sentence for a reader.
        applies: the distributions it says something about.
    """

    name: str
    kind: Kind
    describes: str
    applies: tuple[type[PredictiveDistribution], ...]

    def of(self, distribution: PredictiveDistribution) -> Float[Tensor, "n"]:
        """Return the measure of each of n predictions."""
        values: Tensor = getattr(distribution, self.name)()
        return values


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(
            "least_confidence",
            "total",
            "1 − probability of the predicted class",
            (Categorical, Draws, Dirichlet),
        ),
        Measure(
            "entropy",
            "total",
            "entropy of the expected class probabilities, in nats",
            (Categorical, Draws, Dirichlet),
        ),
        Measure(
            "expected_entropy",
            "data",
            "uncertainty that more evidence would not remove, in nats",
            (Draws, Dirichlet),
        ),
        Measure(
            "mutual_information",
            "model",
            "uncertainty that more evidence would remove, in nats",
            (Draws, Dirichlet),
        ),
        Measure(
            "differential_entropy",
            "model",
            "spread of the distribution over class probabilities, in nats, at most −log Γ(C)",
            (Dirichlet,),
        ),
        Measure(
            "inverse_max_alpha",
            "model",
            "1 / max alpha; ranks as max alpha, reversed",
            (Dirichlet,),
        ),
        Measure(
            "vacuity",
            "model",
            "C / α0, the share of belief without evidence; ranks as α0, reversed",
            (Dirichlet,),
        ),
    )
}


def measures_of(distribution: PredictiveDistribution) -> dict[str, Float[Tensor, "n"]]:
    """Return every measure that says something about ``distribution``, by name.

    A point estimate has no expected entropy or mutual information worth a column: they are its entropy
    and zero.

    >>> import torch
    >>> list(measures_of(Categorical(torch.tensor([[0.9, 0.1]]))))
    ['least_confidence', 'entropy']
    """
    return {
        name: measure.of(distribution)
        for name, measure in MEASURES.items()
        if isinstance(distribution, measure.applies)
    }
