"""The options of a part: the parameters of its constructor, checked by their types."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from torch import nn

from miue.common import values
from miue.common.errors import ConfigError
from miue.common.values import Option, check_option, is_option, plain
from miue.model.part import Part

FILLED_IN = {
    "encoder": ("instance_shape", "in_features"),
    "network": ("encoder", "in_features", "num_classes"),
    "method": ("network",),
}
"""Parameters that get their values from the other parts and from the data; all others are options."""


def option_parameters(part: Part) -> dict[str, inspect.Parameter]:
    """Return the parameters of a part's constructor that are options, by name."""
    return {
        name: parameter
        for name, parameter in inspect.signature(_maker(part)).parameters.items()
        if name not in FILLED_IN[part.kind]
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def check_options(part: Part, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as the constructor takes them.

    Raises:
        ConfigError: an option that does not exist, has a value of another type, or is missing.
    """
    known = option_parameters(part)
    if part.is_built and options:
        raise ConfigError(
            item=f"option '{part.kind}.{next(iter(options))}'",
            wanted=f"no options of the {part.kind}, which is built already",
            got=repr(next(iter(options.values()))),
            fix="build it with this value, or pass its class",
        )
    parameters = inspect.signature(_maker(part)).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for name in options:
        if name not in known and not takes_any:
            raise unknown_option(f"{part.kind}.{name}", part)
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in options and not part.is_built:
            raise ConfigError(
                item=f"{part.kind} {part.name!r}",
                wanted=f"a value for its parameter {name!r}",
                got="none",
                fix=_how_to_fill(part.kind, name),
            )
    return {
        name: _checked(part, known[name], value) if name in known else value for name, value in options.items()
    }


def with_defaults(part: Part, options: Mapping[str, Option]) -> dict[str, Option]:
    """Return the options of a part, those that are left alone with their defaults.

    They are saved with a part that is not of miue, so that a model stays the same where another version of its
    package has other defaults. A default that could not be passed as an option is left to the part.
    """
    defaults: dict[str, Option] = {}
    for name, parameter in option_parameters(part).items():
        value = plain(parameter.default)
        if name in options or not is_option(value):
            continue
        with suppress(ConfigError, ValueError):
            json.dumps(value, allow_nan=False)
            built = _checked(part, parameter, value)
            if built == parameter.default and type(parameter.default) in (type(value), type(built)):
                defaults[name] = value
    return {**options, **defaults}


def options_of_module(part: Part) -> tuple[dict[str, Option], str]:
    """Return the options with which a module is built again, its attributes of their names, and why that fails."""
    options: dict[str, Option] = {}
    for name in option_parameters(part):
        value = plain(getattr(part.make, name, inspect.Parameter.empty))
        if not is_option(value):
            return {}, f"{type(part.make).__name__} has no attribute {name!r} with the value it was built with"
        options[name] = value
    return options, ""


def unknown_option(key: str, *parts: Part) -> ConfigError:
    """Return the error for an option that none of the parts has, naming the nearest."""
    known = [f"{part.kind}.{name}" for part in parts for name in option_parameters(part)]
    if known:
        return values.unknown_option(key, known)
    return ConfigError(
        item=f"option {key!r}",
        wanted=f"no options: {parts[0].kind} {parts[0].name!r} has none",
        got=repr(key),
        fix="leave it out",
    )


def _maker(part: Part) -> Any:
    return type(part.make) if isinstance(part.make, nn.Module) else part.make


def _checked(part: Part, parameter: inspect.Parameter, value: Any) -> Any:
    return check_option(f"{part.kind}.{parameter.name}", parameter, _maker(part), value)


def _how_to_fill(kind: str, name: str) -> str:
    """Return what to do where a parameter of a part has no value; another kind of part may have been passed."""
    other = next((other for other, filled in FILLED_IN.items() if name in filled), None)
    if other is not None:
        return f"{name!r} is a parameter of {'an' if other == 'encoder' else 'a'} {other}: pass it as the {other}"
    return f"pass the option {kind}.{name}; what miue fills in is called {', '.join(FILLED_IN[kind])}"
