"""The base class of predictive distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class PredictiveDistribution(ABC):
    """Predictions of n items, each a distribution over the probabilities of C classes.

    Uncertainties are higher where the prediction is less certain; entropies are in nats. The entropy (total
    uncertainty) is the sum of expected entropy (aleatoric, data) and mutual information (epistemic, model).
    """

    @classmethod
    @abstractmethod
    def concatenate(cls, parts: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
        """Return the predictions of all parts in order; each part is of this class."""

    @abstractmethod
    def subset(self, rows: Int64[Tensor, "m"]) -> PredictiveDistribution:
        """Return the predictions of the items in ``rows``, of this class."""

    @abstractmethod
    def tempered(self, temperature: float) -> PredictiveDistribution:
        """Return the predictions at a temperature above 0, of this class: above 1 less sure, below 1 more.

        ``tempered(1 / T)`` of ``tempered(T)`` are the predictions as they were, but for rounding.

        Reference: Guo et al. 2017, "On Calibration of Modern Neural Networks", Section 4.2.
        """

    @abstractmethod
    def cpu(self) -> PredictiveDistribution:
        """Return the same predictions in main memory."""

    @property
    @abstractmethod
    def probabilities(self) -> Float[Tensor, "n C"]:
        """Expected class probabilities."""

    @property
    def predicted(self) -> Int64[Tensor, "n"]:
        """The most probable class."""
        return self.probabilities.argmax(-1)

    @property
    def num_classes(self) -> int:
        """C."""
        return self.probabilities.shape[-1]

    def __len__(self) -> int:
        return len(self.probabilities)

    def least_confidence(self) -> Float[Tensor, "n"]:
        """1 − max probability, in [0, 1 − 1/C]: total uncertainty."""
        return 1 - self.probabilities.max(-1).values

    def entropy(self) -> Float[Tensor, "n"]:
        """Entropy of the expected probabilities, in [0, log C]: total uncertainty.

        Reference: Liu & Ji 2024, Appendix B.1.
        """
        return 0 - sum_classes(torch.xlogy(self.probabilities, self.probabilities))  # of a certain one 0, not −0

    @abstractmethod
    def expected_entropy(self) -> Float[Tensor, "n"]:
        """Expected entropy of the probabilities, in [0, log C]: aleatoric (data) uncertainty."""

    @abstractmethod
    def mutual_information(self) -> Float[Tensor, "n"]:
        """Entropy minus expected entropy, at least zero: epistemic (model) uncertainty."""


def sum_classes(terms: Float[Tensor, "n C"]) -> Float[Tensor, "n"]:
    """Return the sum over classes, the same to the last bit in whatever order they are.

    Predictions that are alike but for the names of their classes, such as votes of 3, 2 and 1 members, then tie in
    every ranking.
    """
    return add_columns(in_any_order(terms))


def add_columns(terms: Float[Tensor, "*n C"]) -> Float[Tensor, "*n"]:
    """Return the sum over the last dimension; of two columns in a tenth of the time that ``sum`` takes."""
    return terms[..., 0] + terms[..., 1] if terms.shape[-1] == 2 else terms.sum(-1)


def in_any_order(values: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
    """Return values in an order that sums over classes do not depend on; of two classes, no sum does."""
    return values if values.shape[-1] < 3 else values.sort(-1).values
