"""A model's configuration becomes a method: encoder, network, method, each built from its options."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from miue.common.errors import ConfigError
from miue.common.returned import class_name
from miue.common.seeds import derive_seed
from miue.common.tensors import own_torch_state
from miue.methods import DeepEnsemble, Method, Mixture
from miue.model.config import KINDS, ModelConfig
from miue.model.contract import DataContract
from miue.model.feature_scores import DistanceLike, part_of_distance
from miue.model.part import Part, find_part
from miue.networks import (
    BagModuleNetwork,
    Columns,
    Identity,
    MILNetwork,
    ModuleEncoder,
    WithCovariates,
    initialize,
    seeded,
)
from miue.networks.encoders import Encoder

TOO_LARGE = (RuntimeError, OverflowError, MemoryError)


@own_torch_state(trains=True)
def build_method(config: ModelConfig, contract: DataContract, seed: int, *, trust: bool = False) -> Method:
    """Return the method with freshly drawn weights; the seed fixes every one of them.

    What is built is built while torch's own generator draws from the seed; then miue draws the layers of its own
    parts from it (``miue.networks.initialize``). Modules that were passed built keep the weights they have.

    Args:
        config: what the method is made of.
        contract: what bags look like.
        seed: of the weights.
        trust: whether parts that are not of miue are imported where ``config`` was read from a file.

    Raises:
        ConfigError: an option has a value its component cannot take, or a tensor repeats elements in memory.
        ModelError: the encoder does not fit the instances, or a part is not of miue and there is no trust.
    """
    if config.members:
        return Mixture([build_method(member, contract, seed, trust=trust) for member in config.members])
    build = _Builder(config, contract, trust=trust)
    with seeded(seed):
        method = build.method()
    for name, tensor in method.state_dict().items():
        if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise ConfigError(
                item=f"tensor {name!r} of the model",
                wanted="memory for each element, to load weights into",
                got="one that repeats elements, as expand() returns it",
                fix="register a copy: .expand(…).clone()",
            )
    seeds = member_seeds(method, seed)
    for member, member_seed in zip(method.members(), seeds, strict=True):
        if len(seeds) > 1:
            with seeded(member_seed):
                build.redraw(member)
        kept, fixed = _weights_to_keep(member, build.parts)
        initialize(member, torch.Generator().manual_seed(member_seed), kept=kept, fixed=fixed)
    return method


@own_torch_state()
def weight_shapes(
    config: ModelConfig, contract: DataContract, *, trust: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of the method, by its name; no memory is taken for them.

    Raises:
        ConfigError, ModelError: as ``build_method`` does.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        members = [_Builder(member, contract, trust=trust).method() for member in config.members or (config,)]
        method = Mixture(members) if config.members else members[0]
    return {name: tuple(weight.shape) for name, weight in method.state_dict().items()}


def check_saveable(config: ModelConfig, contract: DataContract, distances: Sequence[DistanceLike]) -> None:
    """Raise unless another process can build the model again from what is saved of it.

    Raises:
        ConfigError: a part without an import path, or a module that cannot be built again from its attributes.
    """
    if config.members:
        for mixed in config.members:
            check_saveable(mixed, contract, distances)
        return
    parts = config.parts(trust=True)
    for part in [*parts.values(), *map(part_of_distance, distances)]:
        is_module = part.is_built and part.kind in parts
        reason = part.unsaveable or (part.options_of_module()[1] if is_module else "")
        if reason:
            raise _unsaveable(part.kind, part, reason)
    member = part_of_members(parts["method"], config.method.options.get("member"))
    if member is not None and member.unsaveable:
        raise _unsaveable("method.member", member, member.unsaveable)
    if config.is_own and not any(part.is_built for part in parts.values()):
        return
    saved = ModelConfig.model_validate(config.model_dump(mode="json"))
    ours, theirs = weight_shapes(config, contract), weight_shapes(saved, contract, trust=True)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            reason = f"{name} has shape {ours.get(name)}, and {theirs.get(name)} when it is built again"
            raise _unsaveable("network", config.network.part("network", trust=True), reason)


def part_of_members(method: Part, member: object) -> Part | None:
    """Return the method of an ensemble's members, which an option names; None without an ensemble or a name.

    Raises:
        ConfigError: a name that does not exist.
    """
    is_ensemble = isinstance(method.make, type) and issubclass(method.make, DeepEnsemble)
    return find_part("method", member) if is_ensemble and isinstance(member, str) else None


def _unsaveable(kind: str, part: Part, reason: str) -> ConfigError:
    return ConfigError(
        item=f"{kind} {part.name!r}",
        wanted="a part that another process can build again, so that the model can be saved",
        got=reason,
        fix="pass a class or function of a module that can be imported, its options as options=, "
        "or train without out= and keep the model in memory",
    )


def member_seeds(method: Method, seed: int) -> list[int]:
    """Return the seed of each member: ``seed`` itself where there is one, else one made from it for each."""
    count = len(method.members())
    return [seed] if count == 1 else [derive_seed(seed, i) for i in range(count)]


class _Builder:
    """Builds a method from a configuration, and what the constructors take from each other and the data."""

    def __init__(self, config: ModelConfig, contract: DataContract, *, trust: bool) -> None:
        self.parts = config.parts(trust=trust)
        self.options = {kind: getattr(config, kind).options for kind in KINDS}
        self.shape, self.classes, self.columns = contract.instance_shape, contract.num_classes, config.columns
        self.covariates = contract.num_covariates
        if self.columns is not None:
            self.shape = (self.columns[1] - self.columns[0],)

    def method(self) -> Method:
        """Return the method with the weights that its constructors draw; built modules are copied."""
        part = self.parts["method"]
        if isinstance(part.make, Method):
            self._check_classes(part.make.network)
            return deepcopy(part.make)
        method = self._construct("method", {"network": self._network()})
        if not isinstance(method, Method):
            raise _other_kind(part, "a Method", method)
        return method

    def redraw(self, member: Method) -> None:
        """Give a member of an ensemble, whose network is a copy, the weights of a network that is built anew."""
        for part in self.parts.values():
            if part.is_built:
                raise ConfigError(
                    item=f"{part.kind} {part.name!r}",
                    wanted="a class or a factory, so that each member starts from weights of its own",
                    got="a module that is built already",
                    fix="pass its class",
                )
        anew, weights = self._network().state_dict(), member.network.state_dict()
        same = {
            name: value for name, value in anew.items() if name in weights and value.shape == weights[name].shape
        }
        member.network.load_state_dict(same, strict=False)

    def _network(self) -> MILNetwork:
        part = self.parts["network"]
        if isinstance(part.make, MILNetwork):
            self._check_classes(part.make)
            return deepcopy(part.make)
        encoder = self._encoder()
        as_they_are = isinstance(encoder, Identity)  # as methods take them that are fitted at once
        if self.columns is not None:
            encoder = Columns(encoder, *self.columns)
        if self.covariates:
            encoder = WithCovariates(encoder, self.covariates, 0 if as_they_are else None)
        inputs = {"encoder": encoder, "in_features": encoder.out_features, "num_classes": self.classes}
        network = self._construct("network", inputs)
        if isinstance(network, MILNetwork):
            return network
        if not isinstance(network, nn.Module):
            raise _other_kind(part, "a torch.nn.Module that maps a bag (n, D) to logits (C,)", network)
        return BagModuleNetwork(encoder, self.classes, network)

    def _encoder(self) -> Encoder:
        part = self.parts["encoder"]
        encoder = self._construct("encoder", {"instance_shape": self.shape, "in_features": math.prod(self.shape)})
        if not isinstance(encoder, Encoder):
            if isinstance(encoder, nn.Module):
                return ModuleEncoder(self.shape, encoder)
            raise _other_kind(
                part, "a torch.nn.Module that maps instances (n, *shape) to features (n, D)", encoder
            )
        stated: Any = getattr(encoder, "out_features", None)
        if not isinstance(stated, int) or stated < 1:
            raise ConfigError(
                item=f"encoder {part.name!r}",
                wanted="an attribute out_features, the number of features of an instance",
                got="none" if stated is None else repr(stated),
                fix="set self.out_features where the encoder is built",
            )
        return encoder

    def _construct(self, kind: str, filled_in: Mapping[str, Any]) -> Any:
        """Return what a part builds; an error in code that is not of miue is left as it is."""
        part, options = self.parts[kind], self.options[kind]
        if part.is_built:
            return deepcopy(part.make)
        values = part.check_options(options)
        parameters = inspect.signature(part.make).parameters
        inputs = {name: value for name, value in filled_in.items() if name in parameters}
        if not part.is_own:
            return part.make(**inputs, **values)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Initializing zero-element tensors")
                return part.make(**inputs, **values)
        except TOO_LARGE as error:
            raise ConfigError(
                item=f"{kind} {part.name!r} with {dict(options)}",
                wanted="options it can be built with",
                got=str(error).split("\n")[0],
                fix="change these options",
            ) from error

    def _check_classes(self, network: MILNetwork) -> None:
        if self.columns is not None or self.covariates:
            raise ConfigError(
                item=f"network {class_name(network)!r}",
                wanted="a class or a factory, where bags have covariates or features of several encoders",
                got="a module that is built already",
                fix="pass its class",
            )
        if network.num_classes != self.classes:
            raise ConfigError(
                item=f"network {class_name(network)!r}",
                wanted=f"{self.classes} classes, as the bags have",
                got=str(network.num_classes),
                fix="build it with that many classes, or pass its class",
            )


def _weights_to_keep(member: Method, parts: Mapping[str, Part]) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the modules of parts that are not of miue, and the modules that were passed built."""
    encoder = list(member.network.encoder.modules())
    network = _without(member.network.modules(), encoder)
    of_kind = {"encoder": encoder, "network": network, "method": _without(member.modules(), encoder + network)}
    kept = [module for kind, modules in of_kind.items() if not parts[kind].is_own for module in modules]
    fixed = [module for kind, modules in of_kind.items() if parts[kind].is_built for module in modules]
    return kept, fixed


def _without(modules: Iterable[nn.Module], others: list[nn.Module]) -> list[nn.Module]:
    excluded = set(map(id, others))
    return [module for module in modules if id(module) not in excluded]


def _other_kind(part: Part, wanted: str, got: object) -> ConfigError:
    return ConfigError(
        item=f"{part.kind} {part.name!r}", wanted=wanted, got=f"a {type(got).__name__}", fix="pass another part"
    )
