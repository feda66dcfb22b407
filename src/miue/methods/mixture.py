"""Mixture: the average of models that differ in network, method and encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from miue.common.errors import ConfigError
from miue.common.returned import class_name
from miue.distributions import Draws, PredictiveDistribution
from miue.methods.base import ATTENTION, BAG_OF_ONE, Method
from miue.methods.deep_ensemble import Ensemble


class Mixture(Ensemble):
    """The mean of the probabilities of methods, each at its own temperature.

    Instances are predicted by an estimator that all members have, other than attention. The mutual information is
    that over members plus the mean of that within them. Scores of features are those of the first member.

    Args:
        methods: members, each of which predicts in one pass without random numbers.

    Raises:
        ConfigError: another method, or none.
    """

    temperatures: Tensor

    def __init__(self, methods: Sequence[Method]) -> None:
        wrong = next((class_name(method) for method in methods if not can_be_mixed(type(method))), "")
        if wrong or not methods:
            wanted = "methods that predict in one pass without random numbers"
            raise ConfigError(item="the mixture", wanted=wanted, got=wrong or "none", fix="leave it out")
        super().__init__(methods[0].network)
        self.ensemble = nn.ModuleList(methods)
        shared = (name for name in methods[0].estimators if all(name in method.estimators for method in methods))
        self.estimators = tuple(name for name in shared if name != ATTENTION)
        self.register_buffer("temperatures", torch.ones(len(methods), dtype=torch.float64))

    @property
    def takes_temperature(self) -> bool:  # type: ignore[override]
        """Whether one temperature suits the mean: that of members without temperatures of their own."""
        return bool((self.temperatures == 1).all()) and all(one.takes_temperature for one in self.members())

    @property
    def negative_class(self) -> int | None:
        """The class that all members know as the negative one; None if there is none."""
        known = {member.negative_class for member in self.members()}
        return known.pop() if len(known) == 1 else None

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield each member."""
        yield from self.members()

    def combine(self, draws: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
        """Return the mean of the members' predictions, each at its temperature."""
        temperatures = self.temperatures.tolist()
        return Draws.of(
            [draw.tempered(t) if t != 1 else draw for draw, t in zip(draws, temperatures, strict=True)]
        )


def can_be_mixed(method: type[Method]) -> bool:
    """Return whether a method predicts in one pass without random numbers, so that it can be a member."""
    return method.passes is Method.passes and not method.draws_at_random and BAG_OF_ONE in method.estimators
