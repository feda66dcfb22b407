"""Multi-instance residual evidential learning (MIREL).

Its routing says which parameters the instance loss trains. With encoder ψ, bag classifier φ and residual
network π, R = T + r(h)·T:

- ``through-residual``: T is constant; π is trained, and ψ through r(h) alone. The published code.
- ``through-estimator``: π is trained, and ψ through both T and r(h); φ is fixed. The text of the paper, below
  Eq. 10.
- ``residual-only``: T and h are constant; only π is trained. The published code's "frozen features", used for
  CIFAR10-bags.

No gradient flows through the weights w̄. ``auto`` is the routing that the network names, its
``instance_routing``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags import BagBatch, Segments
from miue.common.errors import out_of_range, unknown_name
from miue.common.values import Option, Width
from miue.distributions import Dirichlet, PredictiveDistribution
from miue.evidence import STRATEGIES, ResidualNetwork, instance_weights, residual_log_evidence, supervise, to_alpha
from miue.methods.base import ATTENTION, BAG_OF_ONE, RESIDUAL
from miue.methods.edl import FisherEDL
from miue.networks import MILNetwork, Projection, instance_logits_of_features, join

Routing = Literal["through-residual", "through-estimator", "residual-only"]
AUTO = "auto"


class MIREL(FisherEDL):
    """A Dirichlet for each bag from S and one for each instance from R = T + r·T, trained together.

    Reference: Liu & Ji 2024, Eq. 5, 9, 10 and 11.

    Args:
        network: any MIL network.
        fisher_coefficient: λ1.
        annealing_epochs: epochs over which the coefficient of the KL terms rises to 1.
        red: add RED at both levels.
        activation: how logits become evidence.
        strategy: how instances of positive bags are supervised by the label of their bag.
        routing: which parameters the instance loss trains; "auto" for the routing that suits the network.
        instance_coefficient: weight of the instance loss relative to the bag loss.
        residual_hidden: width of the residual network's hidden layer.
        background: the class whose bags contain only background instances; None if there is none.
    """

    estimators: tuple[str, ...] = (RESIDUAL, BAG_OF_ONE, ATTENTION)

    def __init__(
        self,
        network: MILNetwork,
        *,
        fisher_coefficient: float = 0.0,
        annealing_epochs: int = 10,
        red: bool = True,
        activation: str = "exp",
        strategy: str = "weighted-evidence",
        routing: str = AUTO,
        instance_coefficient: float = 1.0,
        residual_hidden: Width = 256,
        background: int | None = 0,
    ) -> None:
        super().__init__(
            network,
            fisher_coefficient=fisher_coefficient,
            annealing_epochs=annealing_epochs,
            red=red,
            activation=activation,
        )
        routing = network.instance_routing if routing == AUTO else routing
        if strategy not in STRATEGIES:
            raise unknown_name("positive-bag strategy", strategy, STRATEGIES)
        if routing not in get_args(Routing):
            raise unknown_name("gradient routing", routing, (*get_args(Routing), AUTO))
        if background is not None and not 0 <= background < network.num_classes:
            raise out_of_range("background", f"a class from 0 to {network.num_classes - 1}, or none", background)
        self.residual = ResidualNetwork(network.encoder.out_features, network.num_classes, residual_hidden)
        self.strategy = STRATEGIES[strategy]
        self.routing = routing
        self.instance_coefficient = instance_coefficient
        self.background = background

    @classmethod
    def resolve_options(cls, options: Mapping[str, Option], network: type[MILNetwork]) -> dict[str, Option]:
        """Return the options with the routing named."""
        routing = options.get("routing", AUTO)
        return {**options, "routing": network.instance_routing if routing == AUTO else routing}

    @property
    def negative_class(self) -> int | None:
        """The background class."""
        return self.background

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean over bags of bag loss + instance loss."""
        parts, projection = self.network.encode_and_project(batch.instances)
        bag_evidence = self.log_evidence(self._scores(projection, batch.segments).logits)
        estimate = self._instance_estimate(parts, projection, batch.segments)
        trained = [part.detach() for part in parts] if self.routing == "residual-only" else parts
        residual = join(list(map(self.residual, trained)))
        supervision = supervise(
            residual_log_evidence(estimate, residual),
            instance_weights(estimate, batch.labels, batch.segments),
            batch.labels,
            batch.segments,
            self.strategy,
            self.background,
        )
        losses = self.evidential_loss(
            torch.cat([bag_evidence, supervision.log_evidence]),
            torch.cat([batch.labels, supervision.target]),
            epoch,
        )
        bags = batch.segments.num_bags
        of_instances = (supervision.weight * losses[bags:]).sum()
        return (losses[:bags].sum() + self.instance_coefficient * of_instances) / bags

    def instance_distribution(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N C"], estimator: str
    ) -> PredictiveDistribution:
        """Return Dir(alpha) of R, or of T for the estimator "bag-of-one"."""
        if estimator != RESIDUAL:
            return self.distribution(logits)
        log_evidence = residual_log_evidence(self.log_evidence(logits), self.residual(features))
        return Dirichlet(to_alpha(log_evidence))

    def _instance_estimate(
        self, parts: Sequence[Float[Tensor, "_ D"]], projection: Projection, segments: Segments
    ) -> Float[Tensor, "N C"]:
        """Return the log-evidence of T, with the gradients that the routing allows."""
        if self.routing == "through-estimator":
            return self.log_evidence(instance_logits_of_features(self.network, join(parts)))
        with torch.no_grad():
            return self.log_evidence(self.network.score(projection, segments.singletons()).logits)
