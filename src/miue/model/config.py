"""What a model is made of and how it is trained, as files say it; and the method that is built from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_serializer

from miue.common.errors import ConfigError, ModelError
from miue.common.parts import METHODS, NETWORKS
from miue.common.seeds import derive_seed
from miue.common.torch_state import own_torch_state
from miue.common.values import Option
from miue.methods import DeepEnsemble, Method
from miue.model.build import assemble, redraw, weights_to_keep
from miue.model.contract import DataContract
from miue.model.options import options_of_module
from miue.model.part import Part, find_part, saved_part
from miue.networks import initialize, seeded


class Component(BaseModel):
    """A network, encoder or method by name, with the options of its constructor that are not left alone.

    Of a part that is not of miue these are all options, with the defaults that its package had.

    Attributes:
        name: for a reader; of a part of miue, what it is built by.
        options: by the names of the constructor's parameters.
        import_path: "package.module:Class" of a part that is not of miue, else "".
        package: name and version of the package that it comes from, where known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    options: dict[str, Option] = Field(default_factory=dict)
    import_path: str = ""
    package: str = ""
    _part: Part | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, part: Part, options: Mapping[str, Option]) -> Component:
        """Return the component that describes a part which is at hand."""
        component = cls(name=part.name, options=dict(options), import_path=part.import_path, package=part.package)
        component._part = part
        return component

    def part(self, kind: str, *, trust: bool) -> Part:
        """Return the part that it was made of, else the one that it names.

        Raises:
            ModelError: a part that is not of miue, without trust or not installed.
            ConfigError: a name that does not exist.
        """
        if self._part is not None:
            return self._part
        return saved_part(kind, self.name, self.import_path, self.package, trust=trust)

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        content = handler(self)
        return {key: value for key, value in content.items() if value or key in ("name", "options")}


class ModelConfig(BaseModel):
    """What a model is made of; network and method are separate choices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: Component
    network: Component
    method: Component

    def options(self) -> dict[str, Option]:
        """Return the options that are written down, as "network.hidden"."""
        parts = {"encoder": self.encoder, "network": self.network, "method": self.method}
        return {
            f"{part}.{key}": value for part, component in parts.items() for key, value in component.options.items()
        }

    def chosen_options(self) -> dict[str, Option]:
        """Return ``options`` without those of the method that it would take from the network if left alone.

        Such an option is written down with its value, so that the model stays the same where the network's
        default changes; to a reader it says nothing.
        """
        own = not self.method.import_path and not self.network.import_path and self._members_are_own
        if not own or self.method.name not in METHODS or self.network.name not in NETWORKS:
            return self.options()
        method, network = METHODS[self.method.name], NETWORKS[self.network.name]
        options = self.method.options
        implied = {
            f"method.{key}"
            for key, value in options.items()
            if method.resolve_options({k: v for k, v in options.items() if k != key}, network).get(key) == value
        }
        return {key: value for key, value in self.options().items() if key not in implied}

    def parts(self, *, trust: bool = False) -> dict[str, Part]:
        """Return encoder, network and method by kind.

        Raises:
            ModelError, ConfigError: as ``Component.part`` does.
        """
        parts = {kind: getattr(self, kind).part(kind, trust=trust) for kind in ("encoder", "network", "method")}
        if self.method._part is None and not self.method.import_path and not self._members_are_own:
            _check_saved_member(str(self.method.options["member"]), trust=trust)
        return parts

    @property
    def _members_are_own(self) -> bool:
        """Whether the members of an ensemble, which an option names, are of a method of miue."""
        member = self.method.options.get("member")
        if not isinstance(member, str) or METHODS.path_of_own(member) is not None:
            return True
        return ":" not in member and member not in METHODS

    def packages_of_others(self) -> dict[str, str]:
        """Return name and version of the package that each part of others was saved with, by its import path."""
        known = {part.import_path: part.package for part in (self.encoder, self.network, self.method)}
        return {path: known.get(path, "") for path in self.of_others}

    @property
    def of_others(self) -> list[str]:
        """The import paths of parts that are not of miue, of which nothing is imported."""
        paths = [part.import_path for part in (self.encoder, self.network, self.method) if part.import_path]
        return paths if self._members_are_own else [*paths, str(self.method.options["member"])]

    @property
    def is_own(self) -> bool:
        """Whether all parts are of miue, so that what is saved of them needs no trust."""
        return self._members_are_own and all(part.is_own for part in self.parts(trust=True).values())


def _check_saved_member(member: str, *, trust: bool) -> None:
    """Raise unless the method of another package, which the members of a saved ensemble are of, may be used.

    Raises:
        ModelError: there is no trust, or the package is not installed.
    """
    if not trust:
        raise ModelError(
            item=f"method.member {member!r} of a saved model",
            wanted="a method of miue itself, or leave to run the code of others",
            got=f"{member!r}, code of another package" if ":" in member else "a name that another package brings",
            fix="if you trust that code, pass trust=True (on the command line --trust)",
        )
    if ":" in member:
        saved_part("method", member.rpartition(":")[2], member, "", trust=True)


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
    parts, options = config.parts(trust=trust), _options(config)
    shape = tuple(contract.instance_shape)
    with seeded(seed):
        method = assemble(parts, options, shape, contract.num_classes)
    _check_memory(method)
    seeds = member_seeds(method, seed)
    for member, member_seed in zip(method.members(), seeds, strict=True):
        if len(seeds) > 1:
            with seeded(member_seed):
                redraw(member, parts, options, shape, contract.num_classes)
        kept, fixed = weights_to_keep(member, parts)
        initialize(member, torch.Generator().manual_seed(member_seed), kept=kept, fixed=fixed)
    return method


def _check_memory(method: Method) -> None:
    """Raise where elements of a tensor share memory, so that saved ones cannot be written into it.

    Raises:
        ConfigError: they do.
    """
    for name, tensor in method.state_dict().items():
        if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise ConfigError(
                item=f"tensor {name!r} of the model",
                wanted="memory for each element, to load weights into",
                got="one that repeats elements, as expand() returns it",
                fix="register a copy: .expand(…).clone()",
            )


@own_torch_state()
def weight_shapes(
    config: ModelConfig, contract: DataContract, *, trust: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of the method, by its name; no memory is taken for them.

    Raises:
        ConfigError, ModelError: as ``build_method`` does.
    """
    parts, options = config.parts(trust=trust), _options(config)
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        method = assemble(parts, options, tuple(contract.instance_shape), contract.num_classes)
    return {name: tuple(weight.shape) for name, weight in method.state_dict().items()}


def check_saveable(config: ModelConfig, contract: DataContract) -> None:
    """Raise unless another process can build the model again from what is saved of it.

    Raises:
        ConfigError: a part without an import path, or a module that cannot be built again from its attributes.
    """
    parts = config.parts(trust=True)
    for kind, part in parts.items():
        reason = part.unsaveable or (options_of_module(part)[1] if part.is_built else "")
        if reason:
            raise _unsaveable(kind, part, reason)
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


def _options(config: ModelConfig) -> dict[str, dict[str, Option]]:
    return {kind: getattr(config, kind).options for kind in ("encoder", "network", "method")}
