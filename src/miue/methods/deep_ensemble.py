"""Deep ensemble: the average of models trained from different seeds."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.bags import BagBatch
from miue.common.errors import out_of_range
from miue.common.parts import METHODS
from miue.common.registry import part_at
from miue.common.seeds import derive_seed
from miue.common.values import Option, check_option, unknown_option
from miue.distributions import PredictiveDistribution, to_dirichlet
from miue.methods.base import Method
from miue.methods.mc_dropout import positive_count
from miue.networks import MILNetwork

DEFAULT_MEMBER = "softmax"


class Ensemble(Method):
    """Members that are trained separately, each of which predicts."""

    ensemble: nn.ModuleList

    def members(self) -> Sequence[Method]:
        """Return the members, which are trained separately."""
        return [member for member in self.ensemble if isinstance(member, Method)]

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the sum of the members' losses on one batch."""
        return torch.stack([member.loss(batch, epoch) for member in self.members()]).sum()

    def log_probabilities(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return what the first member's method makes of its logits."""
        return self.members()[0].log_probabilities(logits)

    def distribution(self, logits: Float[Tensor, "n C"]) -> PredictiveDistribution:
        """Return what the first member's method makes of its logits."""
        return self.members()[0].distribution(logits)

    def bag_log_probabilities(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        """Return the log of the members' mean probabilities."""
        each = torch.stack([member.bag_log_probabilities(batch) for member in self.members()])
        return each.logsumexp(0) - torch.tensor(float(len(each))).log()


class DeepEnsemble(Ensemble):
    """The mean of models that differ in initial weights and bag order, by default of softmax networks.

    Member i of an ensemble with seed s is what its method alone trains with the seed ``derive_seed(s, i)``. The
    members' instance estimators and options are those of their method; options are passed to each, such as
    ``method.routing`` with ``method.member=mirel``. The prediction is the mixture of the members': where these are
    Dirichlet distributions, its mutual information is that over members plus the mean of that within them.

    Reference: Lakshminarayanan et al. 2017; Liu & Ji 2024, Appendix D.3.

    Args:
        network: any MIL network that the members' method takes; each member gets a copy with its own weights.
        size: number of members.
        member: the members' method, by name or import path "package.module:Class".
        as_dirichlet: predict the Dirichlet distribution with the mean and the variance of the mixture, which has
            evidence and vacuity; see ``to_dirichlet`` for members that return ``Draws``, such as Laplace.
        options: of the members' method.

    Raises:
        ConfigError: a method or option that does not exist, or a method that is an ensemble itself.
    """

    def __init__(
        self,
        network: MILNetwork,
        *,
        size: int = 10,
        member: str = DEFAULT_MEMBER,
        as_dirichlet: bool = False,
        **options: Option,
    ) -> None:
        super().__init__(network)
        method = method_of_members(member)
        checked = _check_options(method, options)
        copies = [network, *(deepcopy(network) for _ in range(positive_count("size", size) - 1))]
        self.ensemble = nn.ModuleList(method(copy, **checked) for copy in copies)
        self.estimators = self.members()[0].estimators
        self.takes_censoring = method.takes_censoring
        self.as_dirichlet = as_dirichlet

    @classmethod
    def resolve_options(cls, options: Mapping[str, Option], network: type[MILNetwork]) -> dict[str, Option]:
        """Return the options as the members' method resolves them."""
        return method_of_members(str(options.get("member", DEFAULT_MEMBER))).resolve_options(options, network)

    @property
    def negative_class(self) -> int | None:
        """That of the members."""
        return self.members()[0].negative_class

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield each member, as often as its method draws."""
        for number, member in enumerate(self.members()):
            yield from member.passes(derive_seed(seed, number))

    def combine(self, draws: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
        """Return the mixture of the members' predictions, or the Dirichlet distribution that it is matched by."""
        return to_dirichlet(draws) if self.as_dirichlet else super().combine(draws)


def method_of_members(member: str) -> type[Method]:
    """Return the method that a name or an import path "package.module:Class" names.

    Raises:
        ConfigError: none of that name, an ensemble, or something else than a class of methods.
    """
    method = part_at("method", member) if ":" in member else METHODS[member]
    if isinstance(method, type) and issubclass(method, Method) and not issubclass(method, DeepEnsemble):
        return method
    raise out_of_range("option 'method.member'", "a class of miue.methods.Method that is no ensemble", member)


def _check_options(method: type[Method], options: dict[str, Option]) -> dict[str, Any]:
    """Return the options as the members' method takes them.

    Raises:
        ConfigError: one that it does not have, or a value of another type.
    """
    parameters = inspect.signature(method).parameters
    known = {name: parameter for name, parameter in parameters.items() if name != "network"}
    for name in options:
        if name not in known:
            options_there = [f"method.{option}" for option in ("size", "member", *known)]
            raise unknown_option(f"method.{name}", options_there)
    return {name: check_option(f"method.{name}", known[name], method, value) for name, value in options.items()}
