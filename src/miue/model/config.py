"""Choices by name: what a config file or a command line may say, and the objects that it stands for."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from miue.common.errors import ConfigError, MiueError, unknown_name
from miue.common.seeds import seed_of
from miue.methods import METHODS, Method
from miue.networks import NETWORKS, initialise
from miue.networks.encoders import ENCODERS, default_encoder

Option = bool | int | float | str | None


class Component(BaseModel):
    """A network, encoder or method by name, with the options of its constructor that are not left alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    options: dict[str, Option] = Field(default_factory=dict)


class ModelConfig(BaseModel):
    """What a model is made of; network and method are separate choices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: Component
    network: Component
    method: Component

    def options(self) -> dict[str, Option]:
        """Return the options that were not left alone, as "network.hidden"."""
        parts = {"encoder": self.encoder, "network": self.network, "method": self.method}
        return {f"{part}.{key}": value for part, one in parts.items() for key, value in one.options.items()}


class TrainingConfig(BaseModel):
    """How a model is trained; the defaults are those of MNIST-bags.

    Reference: Liu & Ji 2024, Appendix "Implementation and Network Training".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=42, ge=0, description="seed of initial weights, bag order and dropout")
    max_epochs: int = Field(default=200, ge=1, description="epochs at most")
    learning_rate: float = Field(default=1e-4, gt=0, description="of Adam, at the start")
    weight_decay: float = Field(default=1e-5, ge=0, description="on weights, not on biases or norms")
    bags_per_update: int = Field(default=8, ge=1, description="bags that share one update")
    lr_factor: float = Field(default=0.5, gt=0, lt=1, description="learning rate is multiplied with this")
    lr_patience: int = Field(default=10, ge=0, description="epochs without improvement before that")
    stop_patience: int = Field(default=20, ge=1, description="epochs without improvement before training ends")
    validation_fraction: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="share of bags held out to stop by where no validation bags are given; 0: train on all",
    )


class DataContract(BaseModel):
    """What bags must look like for a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instance_shape: tuple[int, ...]
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)


def model_config(
    *,
    network: str,
    method: str,
    encoder: str,
    instance_shape: tuple[int, ...],
    options: Mapping[str, Option],
) -> ModelConfig:
    """Return the config that the names and ``options`` describe.

    Args:
        network: name of a network.
        method: name of a method.
        encoder: name of an encoder, or "auto" for the one that suits the data.
        instance_shape: shape of one instance.
        options: values by "network.hidden", "encoder.width", "method.routing" and the like.

    Raises:
        ConfigError: a name or option does not exist; the nearest that does is named.
    """
    chosen = {
        "encoder": default_encoder(instance_shape) if encoder == "auto" else encoder,
        "network": network,
        "method": method,
    }
    given: dict[str, dict[str, Option]] = {part: {} for part in chosen}
    given["encoder"].update(_component("method", method).encoder_defaults)
    for key, value in options.items():
        part, _, option = key.partition(".")
        if part not in given or not option:
            known = [f"{p}.{o}" for p, name in chosen.items() for o in _options(p, name)]
            raise unknown_name("option", key, known)
        given[part][option] = value
    for part, name in chosen.items():
        for option in given[part]:
            if option not in _options(part, name):
                known = [f"{part}.{known}" for known in _options(part, name)]
                raise unknown_name("option", f"{part}.{option}", known)
    return ModelConfig(**{part: Component(name=name, options=given[part]) for part, name in chosen.items()})


def training_config(settings: Mapping[str, Any]) -> TrainingConfig:
    """Return the training config with the given settings.

    Raises:
        ConfigError: a setting does not exist or its value is out of range.
    """
    for key in settings:
        if key not in TrainingConfig.model_fields:
            raise unknown_name("training setting", key, TrainingConfig.model_fields)
    try:
        return TrainingConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(
            item=f"training setting {name!r}",
            wanted=first["msg"].removeprefix("Input should be "),
            got=repr(first["input"]),
            fix="change the value",
        ) from error


def build_method(config: ModelConfig, contract: DataContract, seed: int) -> Method:
    """Return the method with freshly drawn weights.

    Raises:
        ConfigError: an option has a value its component cannot take.
        ModelError: the encoder does not fit the instances.
    """
    method = _assembled(config, contract)
    for member, member_seed in zip(method.members(), member_seeds(method, seed), strict=True):
        initialise(member, torch.Generator().manual_seed(member_seed))
    return method


def weight_shapes(config: ModelConfig, contract: DataContract) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of the method, by its name; no memory is taken for them.

    Raises:
        ConfigError, ModelError: as ``build_method`` does.
    """
    with torch.device("meta"):
        return {name: tuple(weight.shape) for name, weight in _assembled(config, contract).state_dict().items()}


def _assembled(config: ModelConfig, contract: DataContract) -> Method:
    encoder = _construct("encoder", config.encoder, tuple(contract.instance_shape))
    network = _construct("network", config.network, encoder, contract.num_classes)
    method: Method = _construct("method", config.method, network)
    return method


def member_seeds(method: Method, seed: int) -> list[int]:
    """Return the seed of each member: ``seed`` itself where there is one, else one made from it for each."""
    count = len(method.members())
    return [seed] if count == 1 else [seed_of(seed, i) for i in range(count)]


_REGISTRIES: dict[str, Mapping[str, type]] = {
    "encoder": ENCODERS,
    "network": NETWORKS,
    "method": METHODS,
}
_STRUCTURAL = {"self", "instance_shape", "encoder", "network", "num_classes"}


def _component(part: str, name: str) -> Any:
    registry = _REGISTRIES[part]
    if name not in registry:
        raise unknown_name(part, name, registry)
    return registry[name]


def _options(part: str, name: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(_component(part, name)).parameters
    return {key: value for key, value in parameters.items() if key not in _STRUCTURAL}


def _construct(part: str, component: Component, *inputs: Any) -> Any:
    known = _options(part, component.name)
    for option, value in component.options.items():
        if option not in known:
            raise unknown_name("option", f"{part}.{option}", [f"{part}.{name}" for name in known])
        default = known[option].default
        kinds = (int, float) if isinstance(default, float) else (type(default), int, type(None))
        if default is not None and not isinstance(value, kinds):
            raise ConfigError(
                item=f"option '{part}.{option}'",
                wanted=f"a value like {default!r}",
                got=repr(value),
                fix="change the value",
            )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            built = _component(part, component.name)(*inputs, **component.options)
        if any(0 in parameter.shape for parameter in built.parameters()):
            raise ValueError("a layer of size 0")
    except MiueError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ConfigError(
            item=f"{part} {component.name!r} with {component.options}",
            wanted="options it can be built with",
            got=str(error),
            fix="change these options",
        ) from error
    return built
