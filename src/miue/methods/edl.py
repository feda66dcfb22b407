"""Evidential deep learning at bag level, with T as the instance estimator."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from miue.bags.segments import BagBatch
from miue.common.errors import unknown_name
from miue.distributions import Dirichlet, PredictiveDistribution
from miue.evidence import ACTIVATIONS, to_alpha
from miue.evidence.losses import EvidentialLoss
from miue.methods.base import Method
from miue.networks import MILNetwork


class FisherEDL(Method):
    """I-EDL: a Dirichlet for each bag, trained with Fisher-weighted squared error, KL and RED.

    Reference: Deng et al. 2023; Liu & Ji 2024, Eq. 6 and Table 4.

    Args:
        network: any MIL network.
        fisher_coefficient: λ1.
        annealing_epochs: epochs over which the coefficient of the KL term rises to 1.
        red: add the RED term.
        activation: how logits become evidence.
    """

    fisher_weighted: ClassVar[bool] = True

    def __init__(
        self,
        network: MILNetwork,
        *,
        fisher_coefficient: float = 0.0,
        annealing_epochs: int = 10,
        red: bool = True,
        activation: str = "exp",
    ) -> None:
        super().__init__(network)
        if activation not in ACTIVATIONS:
            raise unknown_name("evidence activation", activation, ACTIVATIONS)
        self.log_evidence = ACTIVATIONS[activation]
        self.evidential_loss = EvidentialLoss(self.fisher_weighted, fisher_coefficient, annealing_epochs, red)

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean evidential loss of the bags."""
        logits = self.bag_scores(batch).logits
        return self.evidential_loss(self.log_evidence(logits), batch.labels, epoch).mean()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return log alpha − log α0."""
        alpha = to_alpha(self.log_evidence(logits))
        return alpha.log() - alpha.sum(-1, keepdim=True).log()

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return Dir(alpha)."""
        return Dirichlet(to_alpha(self.log_evidence(logits)))


class EDL(FisherEDL):
    """EDL: a Dirichlet for each bag, trained with unweighted squared error, KL and RED.

    Reference: Sensoy et al. 2018.
    """

    fisher_weighted: ClassVar[bool] = False
