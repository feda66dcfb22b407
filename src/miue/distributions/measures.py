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
        kind: which uncertainty it measures: total, data (aleatoric) or model (epistemic).
        describes: one sentence that explains it.
        applies: the distributions for which it is defined and informative.
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
            "least_confidence", "total", "1 − probability of the predicted class", (Categorical, Draws, Dirichlet)
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
            "aleatoric uncertainty, by definition what more training data would not reduce, in nats",
            (Draws, Dirichlet),
        ),
        Measure(
            "mutual_information",
            "model",
            "epistemic uncertainty, by definition what more training data would reduce, in nats",
            (Draws, Dirichlet),
        ),
        Measure(
            "differential_entropy",
            "model",
            "spread of the distribution over class probabilities, in nats, at most −log Γ(C)",
            (Dirichlet,),
        ),
        Measure("inverse_max_alpha", "model", "1 / max alpha; the reversed ranking of max alpha", (Dirichlet,)),
        Measure(
            "vacuity",
            "model",
            "C / α0, for alpha = evidence + 1 the belief mass without evidence; the reversed ranking of α0",
            (Dirichlet,),
        ),
    )
}


def compute_measures(distribution: PredictiveDistribution) -> dict[str, Float[Tensor, "n"]]:
    """Return every measure that applies to ``distribution``, by name.

    For a point estimate, expected entropy and mutual information are omitted: they equal its entropy and zero.

    >>> import torch
    >>> list(compute_measures(Categorical(torch.tensor([[0.9, 0.1]]))))
    ['least_confidence', 'entropy']
    """
    return {name: MEASURES[name].of(distribution) for name in applicable_measures(distribution)}


def applicable_measures(distribution: PredictiveDistribution) -> list[str]:
    """Return the names of the measures that apply to ``distribution``."""
    return [name for name, measure in MEASURES.items() if isinstance(distribution, measure.applies)]
