"""Draws of class probabilities, from an ensemble or a Bayesian network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.errors import DataError
from miue.common.tensors import in_double
from miue.distributions.base import PredictiveDistribution
from miue.distributions.categorical import Categorical


class Draws(PredictiveDistribution):
    """The mean of drawn class probabilities and the mean of their entropies; single draws are not stored.

    A draw may be a distribution itself, such as the Dirichlet of a member of an evidential ensemble. The mutual
    information is then that over members plus the mean of that within each.

    Reference: Liu & Ji 2024, Eq. 16.

    Args:
        probabilities: mean over the draws; each row sums to one.
        expected_entropy: mean over the draws of the (expected) entropy, in nats.

    Raises:
        DataError: a row is not a probability distribution, or an expected entropy is out of range.

    >>> first, second = Categorical(torch.tensor([[1.0, 0.0]])), Categorical(torch.tensor([[0.0, 1.0]]))
    >>> round(Draws.of([first, second]).mutual_information().item(), 4)
    0.6931
    """

    def __init__(self, probabilities: Float[Tensor, "n C"], expected_entropy: Float[Tensor, "n"]) -> None:
        self._mean = Categorical(probabilities)
        self._expected_entropy = in_double(expected_entropy)
        wrong = ~((self._expected_entropy > -1e-6) & (self._expected_entropy < self._mean.entropy() + 1e-3))
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise DataError(
                item=f"row {row} of the expected entropy",
                wanted=f"0 to the entropy {self._mean.entropy()[row].item():.6g}",
                got=f"{self._expected_entropy[row].item():.6g}",
                fix="pass the mean entropy of the draws, in nats",
            )

    @classmethod
    def of(cls, draws: Sequence[PredictiveDistribution]) -> Draws:
        """Return the mean of several predictions of the same items."""
        mean = torch.stack([draw.probabilities for draw in draws]).mean(0)
        return cls(mean, torch.stack([draw.expected_entropy() for draw in draws]).mean(0))

    def subset(self, rows: Int64[Tensor, "m"]) -> Draws:
        """Return the predictions of the items in ``rows``."""
        return Draws(self.probabilities[rows], self._expected_entropy[rows])

    def tempered(self, temperature: float) -> Draws:
        """Return the mean at a temperature, as a categorical has it; the epistemic share of its entropy stays."""
        mean = self._mean.tempered(temperature)
        share = (self._expected_entropy / self.entropy()).nan_to_num(1.0).clamp(0, 1)
        return Draws(mean.probabilities, share * mean.entropy())

    def cpu(self) -> Draws:
        """Return the same predictions in main memory."""
        return Draws(self.probabilities.cpu(), self._expected_entropy.cpu())

    @property
    def probabilities(self) -> Float[Tensor, "n C"]:
        """Mean class probabilities over the draws."""
        return self._mean.probabilities

    def expected_entropy(self) -> Float[Tensor, "n"]:
        """Aleatoric (data) uncertainty: the mean entropy of the draws."""
        return self._expected_entropy

    def mutual_information(self) -> Float[Tensor, "n"]:
        """Epistemic (model) uncertainty: entropy of the mean minus mean entropy, the draws' disagreement."""
        return (self.entropy() - self._expected_entropy).clamp(min=0)

    @classmethod
    def concatenate(cls, parts: Sequence[PredictiveDistribution]) -> Draws:
        """Return the predictions of all parts in order."""
        mean = torch.cat([part.probabilities for part in parts])
        return cls(mean, torch.cat([part.expected_entropy() for part in parts]))
