"""Values of options: as JSON writes them, and as the constructor that they are for takes them."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable
from enum import Enum
from types import SimpleNamespace
from typing import Any, TypeGuard, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from miue.common.errors import ConfigError, unknown_name
from miue.common.option_types import Option

OBJECTS = (
    "dataclass_type",
    "dataclass_exact_type",
    "model_type",
    "dict_type",
    "is_instance_of",
    "is_subclass_of",
    "is_type",
    "callable_type",
)
"""Errors of types that no option can have the value of."""

OTHER_NAMES = {
    "members": "size",
    "n_members": "size",
    "num_members": "size",
    "n_estimators": "size",
    "ensemble_size": "size",
    "samples": "draws",
    "n_samples": "draws",
    "num_samples": "draws",
}
"""Options by what other tools call them, for messages."""

QUOTED = "; on the command line quote what is meant as a text: --set 'key=\"5\"'"


def plain_option(value: Any) -> Any:
    """Return a value as JSON writes it: of a tuple a list, of a member of an enum its value, of NumPy a number.

    >>> plain_option((np.int64(8), 4))
    [8, 4]
    """
    if isinstance(value, Enum):
        return plain_option(value.value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [plain_option(entry) for entry in value]
    return value


def is_option(value: object) -> TypeGuard[Option]:
    """Return whether an option can have this value: a number, a text, True, False, None, or a list of these."""
    entries = value if isinstance(value, list) else [value]
    return all(isinstance(entry, bool | int | float | str | None) for entry in entries)


def is_finite_option(value: Option) -> bool:
    """Return whether no number in a value is NaN or infinite, which JSON cannot write."""
    entries = value if isinstance(value, list) else [value]
    return all(math.isfinite(entry) for entry in entries if isinstance(entry, float))


def check_value(key: str, parameter: inspect.Parameter, make: Callable[..., Any], value: Any) -> Any:
    """Return an option's value as its parameter takes it: a tuple or a member of an enum where that is its type.

    Args:
        key: "network.hidden".
        parameter: of the constructor.
        make: the class or function whose parameter it is.
        value: a number, a text, True, False, None, or a list of these.

    Raises:
        ConfigError: a value of another type, or out of range.
    """
    if value is None and parameter.default is None:
        return None  # often annotated without "| None"
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_type_of(parameter, make))
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return value
    try:
        return adapter.validate_python(value, strict=True)
    except ValidationError as error:
        found = error
    plain = plain_option(value)
    if is_option(plain):  # an ensemble that is made in Python may have been given anything
        try:
            return adapter.validate_json(json.dumps(plain), strict=True)
        except ValidationError as error:
            found = found if error.errors()[0]["type"] == "needs_python_object" else error
    default = parameter.default
    example = "" if default in (None, parameter.empty) else f", such as {plain_option(default)!r}"
    first = found.errors()[0]
    none = " or none" if default is None or _takes_none(adapter) else ""
    fix = "change the value" + (QUOTED if first["type"] == "string_type" else "")
    if first["type"] in OBJECTS:
        fix = "leave it at its default, or pass a subclass or factory whose parameters are numbers and texts"
    raise ConfigError(
        item=f"option {key!r}",
        wanted=first["msg"].removeprefix("Input should be ").replace("valid array", "list") + none + example,
        got=repr(value),
        fix=fix,
    ) from found


def _takes_none(adapter: TypeAdapter[Any]) -> bool:
    try:
        adapter.validate_python(None, strict=True)
    except ValidationError:
        return False
    return True


def _type_of(parameter: inspect.Parameter, make: Callable[..., Any]) -> Any:
    """Return the type that a parameter is annotated with; anything where it has none or it is not known here."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]
    alone = SimpleNamespace(__annotations__={parameter.name: annotation})  # others may name what is not imported
    try:
        known = getattr(function, "__globals__", {})
        return get_type_hints(alone, globalns=known, include_extras=True)[parameter.name]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any


def unknown_option_name(key: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an option that does not exist, naming the one that was meant or the nearest.

    Args:
        key: "method.members", say.
        known: options that exist, likewise.
    """
    kind, _, name = key.partition(".")
    options, other = list(known), f"{kind}.{OTHER_NAMES.get(name, '')}"
    return unknown_name("option", key, options, other if other in options else None)
