"""A point estimate of the class probabilities, such as a softmax."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.common.errors import DataError
from miue.common.tensors import in_double
from miue.distributions.base import PredictiveDistribution

SUM_TO_ONE = "values of at least 0 that sum to 1"
SUM_TOLERANCE = 1e-3


class Categorical(PredictiveDistribution):
    """Class probabilities without epistemic uncertainty.

    Args:
        probabilities: each row sums to one.

    Raises:
        DataError: a row is not a probability distribution.

    >>> Categorical(torch.tensor([[0.5, 0.5]])).entropy().item()
    0.6931471805599453
    """

    def __init__(self, probabilities: Float[Tensor, "n C"]) -> None:
        values = in_double(probabilities)
        wrong = (values < 0).any(-1) | ((values.sum(-1) - 1).abs() > SUM_TOLERANCE) | ~values.isfinite().all(-1)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise DataError(
                item=f"row {row} of the class probabilities",
                wanted=SUM_TO_ONE,
                got=str([round(p, 6) for p in values[row].tolist()]),
                fix="pass probabilities, not logits, percentages or other scores",
            )
        self._probabilities = values

    @classmethod
    def of_logits(cls, logits: Float[Tensor, "n C"]) -> Categorical:
        """Return the softmax of ``logits``."""
        return cls(in_double(logits).softmax(-1))

    @classmethod
    def concatenate(cls, parts: Sequence[PredictiveDistribution]) -> Categorical:
        """Return the predictions of all parts in order."""
        return cls(torch.cat([part.probabilities for part in parts]))

    def subset(self, rows: Int64[Tensor, "m"]) -> Categorical:
        """Return the predictions of the items in ``rows``."""
        return Categorical(self.probabilities[rows])

    def tempered(self, temperature: float) -> Categorical:
        """Return p^(1/T), made to sum to one: the softmax of logits / T."""
        return Categorical((self._probabilities.log() / temperature).softmax(-1))

    def cpu(self) -> Categorical:
        """Return the same predictions in main memory."""
        return Categorical(self._probabilities.cpu())

    @property
    def probabilities(self) -> Float[Tensor, "n C"]:
        """The class probabilities."""
        return self._probabilities

    def expected_entropy(self) -> Float[Tensor, "n"]:
        """The entropy: all uncertainty of a point estimate is aleatoric."""
        return self.entropy()

    def mutual_information(self) -> Float[Tensor, "n"]:
        """Zero: a point estimate has no epistemic uncertainty."""
        return self._probabilities.new_zeros(len(self), dtype=torch.float64)
