"""One temperature for the probabilities or the evidence, by maximum likelihood on held-out labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from miue.calibration.covariate_shift import effective_sample_size
from miue.common.errors import DataError
from miue.common.text import plural
from miue.distributions import Categorical, Dirichlet, PredictiveDistribution
from miue.predictions import PredictionTable

COLDEST, HOTTEST = 0.05, 20.0
_STEPS = 61  # temperatures tried before the search between neighbors
FEWEST = 12  # labeled bags; of nine, temperatures made small sets worse, of fifteen better
SHARPENING = 0.5  # standard deviation of log T before any bag is seen, where the bags ask for T below 1


class Scaling(BaseModel):
    """A temperature T > 0: above 1 where the model is too sure, below 1 where it is not sure enough.

    Temperature, for probabilities: p^(1/T), made to sum to one; the softmax of logits / T.
    Evidence, for a Dirichlet: log e ↦ log e / T, alpha = e^(1/T) + 1; where evidence is exp(logit), that
    is the temperature of the logits. One evidence stays one, none (alpha below 1) is zero, the order of the
    classes of a bag stays, and what comes out is a Dirichlet with total, aleatoric and epistemic uncertainty
    of its own. The mean of draws becomes a point estimate.

    Reference: Guo et al. 2017; log-evidence takes the place of their logits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["temperature", "evidence"]
    temperature: float = Field(gt=0)
    nll_before: float = Field(description="mean negative log likelihood of the calibration bags at T = 1")
    nll_after: float = Field(description="the same at T")
    note: str = ""

    @property
    def fitted(self) -> str:
        """What is done with probabilities, in words."""
        return f"{self.kind}: T = {self.temperature:.4g}"

    @property
    def promise(self) -> str:
        """That nothing is promised, and what it came to on the calibration bags."""
        changed = f"none; NLL of these bags {self.nll_before:.4f} before, {self.nll_after:.4f} after"
        return "; ".join(filter(None, (changed, self.note)))

    def apply(self, distribution: PredictiveDistribution) -> PredictiveDistribution:
        """Return the scaled prediction.

        Raises:
            DataError: another kind of distribution than it was fitted on.
        """
        if isinstance(distribution, Dirichlet) != (self.kind == "evidence"):
            raise DataError(
                item="the predictions",
                wanted="columns alpha_0, …" if self.kind == "evidence" else "columns p_0, … and no alpha",
                got=type(distribution).__name__,
                fix="decide on predictions of the model that was calibrated",
            )
        if isinstance(distribution, Dirichlet):
            return distribution.tempered(self.temperature)
        return Categorical(distribution.probabilities).tempered(self.temperature)


def fit_scaling(
    distribution: PredictiveDistribution,
    labels: Int64[np.ndarray, "n"],
    weights: Float64[np.ndarray, "n"] | None = None,
) -> Scaling:
    """Return the temperature in [0.05, 20] that minimizes the mean negative log likelihood of ``labels``.

    One below 1 that is fitted to the labels themselves is drawn towards 1, as if log T were normal with a standard
    deviation of 1/2 before any bag is seen: if the wrong bags of a calibration happen to have little evidence, its
    likelihood hardly bounds T from below, and a new wrong bag with more evidence would cost a hundred nats.

    Where every label is the most probable class, the likelihood may grow for ever as T falls. The label then
    counts for (n_c + 1) / (n_c + C) instead of 1, n_c bags having it, and each other class for 1 / (n_c + C).

    Reference: Guo et al. 2017; for the smoothed labels Platt 1999.

    Args:
        distribution: of n bags.
        labels: class of each.
        weights: of each bag in the mean; None where all count alike.

    Raises:
        DataError: a label has probability zero, or, where smoothed labels are needed, any class has; or alpha is
            below 1.
    """
    if why := _no_temperature(distribution, labels):
        fix = "give unrounded probabilities, or leave the scaling out"
        raise DataError(item="the temperature", wanted="bags that bound it", got=why, fix=fix)
    targets = torch.from_numpy(labels)
    exact = torch.nn.functional.one_hot(targets, distribution.num_classes).double()
    before = _loss(distribution, exact, weights)(0.0)
    separable = bool((distribution.predicted == targets).all())
    loss = _loss(distribution, _smoothed(exact) if separable else exact, weights)
    best = _minimum(loss)
    if best < 0 and not separable:
        count = len(labels) if weights is None else effective_sample_size(weights)
        best = _minimum(lambda log_t: loss(log_t) + log_t**2 / (2 * SHARPENING**2 * count))
    notes = []
    if separable:
        notes.append("every calibration bag is predicted right, so that smoothed labels were used")
    if not np.log(COLDEST) < best < np.log(HOTTEST):
        notes.append("the best temperature is at the end of its range")
    return Scaling(
        kind="evidence" if isinstance(distribution, Dirichlet) else "temperature",
        temperature=float(np.exp(best)),
        nll_before=before,
        nll_after=_loss(distribution, exact, weights)(best),
        note="; ".join(notes),
    )


def _no_temperature(distribution: PredictiveDistribution, labels: Int64[np.ndarray, "n"]) -> str:
    """Return why no temperature can be fitted, "" where one can."""
    probabilities, targets = distribution.probabilities, torch.from_numpy(labels)
    if impossible := int((probabilities.gather(1, targets.unsqueeze(1)) <= 0).sum()):
        return f"probability 0 for {plural(impossible, 'label')}, which no temperature mends"
    if isinstance(distribution, Dirichlet) and (distribution.alpha < 1).any():
        return "alpha is below 1 for some bags, so that it is no evidence + 1, which a temperature would scale"
    some = int((probabilities <= 0).any(1).sum())
    if some and (distribution.predicted == targets).all():
        return f"every bag is predicted right, {some:,} of them with a probability of 0 for another class"
    return ""


def _smoothed(targets: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
    """Return Laplace's rule of succession for each class in place of certainty."""
    counts = (targets @ targets.sum(0)).unsqueeze(1)  # of each bag's class
    return (targets * counts + 1) / (counts + targets.shape[1])


def _loss(
    distribution: PredictiveDistribution,
    targets: Float[Tensor, "n C"],
    weights: Float64[np.ndarray, "n"] | None,
) -> Callable[[float], float]:
    """Return the mean cross-entropy with ``targets`` as a function of log T."""
    dirichlet = isinstance(distribution, Dirichlet)
    values = (
        (distribution.alpha - 1).log() if isinstance(distribution, Dirichlet) else distribution.probabilities.log()
    )

    def loss(log_temperature: float) -> float:
        scores = values / float(np.exp(log_temperature))
        if dirichlet:
            scores = torch.logaddexp(scores, torch.zeros_like(scores))  # log alpha
        log_probabilities = scores.log_softmax(-1)
        terms = torch.where(targets > 0, targets * log_probabilities, 0.0)
        of_bags = -terms.sum(-1)
        return float(of_bags.mean()) if weights is None else float(np.average(of_bags.numpy(), weights=weights))

    return loss


def _minimum(loss: Callable[[float], float]) -> float:
    """Return the minimizer over log T: the best of a grid, then a bounded search between its neighbors."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(np.log(COLDEST), np.log(HOTTEST), _STEPS)
    losses = [loss(float(point)) for point in grid]
    index = int(np.argmin(losses))
    if index in (0, len(grid) - 1):
        return float(grid[index])
    bounds = (float(grid[index - 1]), float(grid[index + 1]))
    minimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return float(minimum.x)


def fit_temperature(table: PredictionTable) -> float | None:
    """Return the temperature that suits labeled bags, None where they cannot bound one.

    They cannot where they are fewer than ``FEWEST``, of one class, or such that ``fit_scaling`` fits none.

    Args:
        table: of bags, of any number.
    """
    judged = np.flatnonzero(table.judged)
    labels = table.labels.values[judged]
    if len(labels) < FEWEST or len(np.unique(labels)) < 2:
        return None
    try:
        return fit_scaling(table.distribution.subset(torch.from_numpy(judged)), labels).temperature
    except DataError:
        return None
