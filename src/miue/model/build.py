"""Parts become a method: encoder, network, method, each built from its options and what the others give."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from torch import nn

from miue.common.errors import ConfigError
from miue.common.returned import class_name
from miue.common.values import Option
from miue.methods import Method
from miue.model.options import check_options
from miue.model.part import Part
from miue.networks import BagModuleNetwork, MILNetwork, ModuleEncoder
from miue.networks.encoders import Encoder

TOO_LARGE = (RuntimeError, OverflowError, MemoryError)

Parts = Mapping[str, Part]
Options = Mapping[str, Mapping[str, Option]]


def assemble(parts: Parts, options: Options, shape: tuple[int, ...], classes: int) -> Method:
    """Return the method with the weights that its constructors draw; modules that are built already are copied.

    Args:
        parts: encoder, network and method by kind.
        options: of each by kind.
        shape: of one instance.
        classes: C.

    Raises:
        ConfigError: an option has a value its part cannot take, or a part is something else than its kind.
        ModelError: the encoder does not fit the instances.
    """
    part = parts["method"]
    if isinstance(part.make, Method):
        _check_classes(part.make.network, classes)
        return deepcopy(part.make)
    network = _network(parts, options, shape, classes)
    method = _construct(part, options["method"], {"network": network})
    if not isinstance(method, Method):
        raise _other_kind(part, "a Method", method)
    return method


def redraw(member: Method, parts: Parts, options: Options, shape: tuple[int, ...], classes: int) -> None:
    """Give a member of an ensemble, whose network is a copy, the weights of a network that is built anew.

    Raises:
        ConfigError: a module that is built already, whose copies would all be the same.
    """
    for part in parts.values():
        if part.is_built:
            raise ConfigError(
                item=f"{part.kind} {part.name!r}",
                wanted="a class or a factory, so that each member starts from weights of its own",
                got="a module that is built already",
                fix="pass its class",
            )
    anew = _network(parts, options, shape, classes).state_dict()
    weights = member.network.state_dict()
    same = {name: value for name, value in anew.items() if name in weights and value.shape == weights[name].shape}
    member.network.load_state_dict(same, strict=False)


def weights_to_keep(member: Method, parts: Parts) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the modules of parts that are not of miue, and the modules that were passed built."""
    encoder = list(member.network.encoder.modules())
    network = _without(member.network.modules(), encoder)
    of_kind = {"encoder": encoder, "network": network, "method": _without(member.modules(), encoder + network)}
    kept = [module for kind, modules in of_kind.items() if not parts[kind].is_own for module in modules]
    fixed = [module for kind, modules in of_kind.items() if parts[kind].is_built for module in modules]
    return kept, fixed


def _network(parts: Parts, options: Options, shape: tuple[int, ...], classes: int) -> MILNetwork:
    part = parts["network"]
    if isinstance(part.make, MILNetwork):
        _check_classes(part.make, classes)
        return deepcopy(part.make)
    encoder = _encoder(parts["encoder"], options["encoder"], shape)
    inputs = {"encoder": encoder, "in_features": encoder.out_features, "num_classes": classes}
    network = _construct(part, options["network"], inputs)
    if isinstance(network, MILNetwork):
        return network
    if not isinstance(network, nn.Module):
        raise _other_kind(part, "a torch.nn.Module that maps a bag (n, D) to logits (C,)", network)
    return BagModuleNetwork(encoder, classes, network)


def _encoder(part: Part, options: Mapping[str, Option], shape: tuple[int, ...]) -> Encoder:
    width = math.prod(shape)
    encoder = _construct(part, options, {"instance_shape": shape, "in_features": width})
    if isinstance(encoder, Encoder):
        stated: Any = getattr(encoder, "out_features", None)
        if not isinstance(stated, int) or stated < 1:
            raise ConfigError(
                item=f"encoder {part.name!r}",
                wanted="an attribute out_features, the number of features of an instance",
                got="none" if stated is None else repr(stated),
                fix="set self.out_features where the encoder is built",
            )
        return encoder
    if not isinstance(encoder, nn.Module):
        raise _other_kind(part, "a torch.nn.Module that maps instances (n, *shape) to features (n, D)", encoder)
    return ModuleEncoder(shape, encoder)


def _construct(part: Part, options: Mapping[str, Option], filled_in: Mapping[str, Any]) -> Any:
    """Return what the part builds; an error in code that is not of miue is left as it is."""
    if part.is_built:
        return deepcopy(part.make)
    values = check_options(part, options)
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
            item=f"{part.kind} {part.name!r} with {dict(options)}",
            wanted="options it can be built with",
            got=str(error).split("\n")[0],
            fix="change these options",
        ) from error


def _check_classes(network: MILNetwork, classes: int) -> None:
    if network.num_classes != classes:
        raise ConfigError(
            item=f"network {class_name(network)!r}",
            wanted=f"{classes} classes, as the bags have",
            got=str(network.num_classes),
            fix="build it with that many classes, or pass its class",
        )


def _other_kind(part: Part, wanted: str, got: object) -> ConfigError:
    return ConfigError(
        item=f"{part.kind} {part.name!r}", wanted=wanted, got=f"a {type(got).__name__}", fix="pass another part"
    )


def _without(modules: Any, others: list[nn.Module]) -> list[nn.Module]:
    excluded = set(map(id, others))
    return [module for module in modules if id(module) not in excluded]
