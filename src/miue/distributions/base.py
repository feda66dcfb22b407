"""What every predictive distribution offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class PredictiveDistribution(ABC):
    """A prediction for each of n items: a distribution over the probabilities of C classes.

    All uncertainties are in nats and higher where the prediction is less certain; total uncertainty is
    the sum of data uncertainty (expected entropy) and model uncertainty (mutual information).
    """

    @classmethod
    @abstractmethod
    def concatenate(cls, parts: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
        """Return the predictions of all parts, each of this class, one after another."""

    @abstractmethod
    def subset(self, rows: Int64[Tensor, "m"]) -> PredictiveDistribution:
        """Return the predictions of the given items, of this class."""

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

        Reference: Liu & Ji 2024, Appendix apx-um-cate.
        """
        return -torch.xlogy(self.probabilities, self.probabilities).sum(-1)

    @abstractmethod
    def expected_entropy(self) -> Float[Tensor, "n"]:
        """Expected entropy of the probabilities, in [0, log C]: data uncertainty."""

    @abstractmethod
    def mutual_information(self) -> Float[Tensor, "n"]:
        """Entropy minus expected entropy, at least zero: model (distributional) uncertainty."""
