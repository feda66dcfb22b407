"""Values from outside, checked by pydantic."""

from __future__ import annotations

import inspect
import sys
from collections import abc
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from functools import cache, wraps
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import (
    ConfigDict,
    Field,
    GetPydanticSchema,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core.core_schema import is_instance_schema

from miue.common.errors import ConfigError, unknown_name

F = TypeVar("F", bound=Callable[..., Any])

Width = Annotated[int, Field(ge=1, lt=1 << 31)]
"""Number of units of a layer."""

Rate = Annotated[float, Field(ge=0, lt=1)]
"""Probability that a unit drops out: below 1, where all would, so that the network saw nothing of any bag."""

Precision = Literal["float32", "bf16-mixed"]
"""Precision of an encoder."""

Augmentation = Literal["none", "rotate-flip"]
"""How images are changed in training."""

Guarantee = Literal["no-false-flag", "false-positives", "detection", "recall"]
"""What is promised of flagged instances."""

Scalar = bool | int | float | str | None

Option = Scalar | list[Scalar]
"""A value that an option of a part can have: what a file of settings and a command line can say."""

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

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
SEVERAL = (abc.Sequence, abc.Collection, abc.Iterable, list)
CHECKED_APART = ("numpy", "torch", "jaxtyping")
"""Packages of arrays: those who read them say more about one that is wrong; so for classes ``checked_apart``."""

A_LIST = ("'str' instances are not allowed as a Sequence value", "an instance of Sequence")
"""What pydantic says where several values are wanted."""


def checked(*, leave: Collection[str] = ()) -> Callable[[F], F]:
    """Return a decorator that checks the arguments of a public function by the annotations of its parameters.

    Args:
        leave: parameters that the function checks itself.

    Raises:
        ConfigError: of the function that is decorated: an argument of another type, or one that is among its
            settings.

    >>> @checked()
    ... def draw(seed: int = 0) -> int:
    ...     return seed
    >>> draw("a")
    Traceback (most recent call last):
    miue.common.errors.ConfigError: seed: expected a valid integer, got 'a'; change the value
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        def check(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                _refuse_settings(function, kwargs.keys() - signature.parameters)
                return function(*args, **kwargs)  # says itself which argument is missing or unknown
            for name, annotation in types_of(function).items():
                if name in bound.arguments and name not in leave:
                    bound.arguments[name] = check_value(name, bound.arguments[name], annotation)
            return function(*bound.args, **bound.kwargs)

        return check  # type: ignore[return-value]

    return decorate


def _refuse_settings(function: Callable[..., Any], names: Collection[str]) -> None:
    """Raise where an argument that a function does not have is one of its settings, perhaps by another name."""
    for kind in _options(types_of(function).get("settings", Any)):
        for name in names if hasattr(kind, "other_names") else ():
            if (meant := kind.other_names.get(name, name)) in kind.model_fields:
                raise ConfigError(
                    item=f"argument {name!r} of {function.__name__}()",
                    wanted="one that this function has",
                    got="one of its settings",
                    fix=f"pass settings={{{meant!r}: …}}",
                )


def check_fields(record: Any) -> None:
    """Check the fields of a frozen dataclass as ``checked`` checks arguments, and set them to what they became.

    Raises:
        ConfigError: a field of another type.
    """
    kind: Any = type(record)
    types = types_of(kind)
    for field in fields(record):
        object.__setattr__(
            record, field.name, check_value(field.name, getattr(record, field.name), types[field.name])
        )


def check_value(item: str, value: Any, annotation: Any) -> Any:
    """Return a value as its annotation says; of a type that is not known here, as it is.

    Numbers of NumPy and PyTorch become those of Python; arrays, columns and what generators yield become lists.

    Raises:
        ConfigError: a value of another type or out of range; texts and truth values are no numbers.

    >>> check_value("seeds", np.array([1, 2]), abc.Sequence[int]), check_value("measure", None, str | None)
    ([1, 2], None)
    """
    adapter = _adapter(annotation)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(plain(value))
    except ValidationError as error:
        raise refusal(item, error.errors(), annotation, value) from error


def refusal(item: str, problems: abc.Sequence[Mapping[str, Any]], annotation: Any, value: Any) -> ConfigError:
    """Return what to say of a value in which pydantic finds problems: of the innermost entry that does not fit."""
    depth = max(sum(isinstance(step, int) for step in problem["loc"]) for problem in problems)
    deepest = [p for p in problems if sum(isinstance(step, int) for step in p["loc"]) == depth]
    at, got, options = deepest[0]["loc"], deepest[0]["input"], _options(annotation)
    inner = [kind for option in options if get_origin(option) in (*SEVERAL, tuple) for kind in get_args(option)]
    choices = [choice for one in [*options, *inner] if get_origin(one) is Literal for choice in get_args(one)]
    if choices and isinstance(got, str):
        return unknown_name(item, got, map(str, choices))
    for key in [step for step in at if isinstance(value, Mapping) and step in value]:
        item, at = f"{item}[{key!r}]", at[at.index(key) + 1 :]
    said = [problem["msg"].removeprefix("Input should be ").removeprefix("Input is not ") for problem in deepest]
    wanted = ["a list" if words in A_LIST else words.partition(" for <class")[0] for words in said]
    return ConfigError(
        item=item + "".join(f", entry {step}" for step in at if isinstance(step, int)),
        wanted=" or ".join(dict.fromkeys([*wanted, *(["None"] if not depth and NoneType in options else [])])),
        got=repr(got) if is_option(plain(got)) else f"a value of type {type(got).__name__}",
        fix=next((kind.made_by for kind in [*options, *inner] if hasattr(kind, "made_by")), "change the value"),
    )


def plain(value: Any) -> Any:
    """Return a value as JSON writes it: numbers of NumPy and PyTorch as Python's own, arrays and tuples as lists.

    >>> plain({"a": np.float32(0.1), "b": np.array([1, 2])})
    {'a': 0.1, 'b': [1, 2]}
    """
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if (entries := several(value)) is not None:
        return [plain(entry) for entry in entries]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.floating):
        return float(str(value))  # 0.1 in single precision is the decimal 0.1
    if _shape(value) == () and hasattr(value, "item"):
        return value.item()
    return str(value) if type(value).__qualname__ == "device" else value  # of PyTorch


def several(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """Return several values in their order as a list, or the tuple that they are; None for what is something else.

    A text, a mapping, a set, a data frame and a matrix (sparse, or of NumPy) are something else, although they can
    be iterated over: what is then yielded are letters, keys, values in no order, names of columns, and matrices of
    one row.
    """
    if isinstance(value, list | tuple):
        return value
    if (
        isinstance(value, str | bytes | Path | abc.Mapping | abc.Set)
        or hasattr(value, "columns")
        or is_matrix(value)
    ):
        return None
    if isinstance(value, abc.Sequence | abc.Iterator | abc.ValuesView) or _shape(value):
        return list(value)
    return value.to_pylist() if hasattr(value, "to_pylist") else None  # a column of Arrow


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor; where nothing has loaded PyTorch, none is."""
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def is_matrix(value: Any) -> bool:
    """Return whether a value is one sparse matrix or NumPy matrix, of which each row is a matrix again."""
    return hasattr(value, "toarray") or hasattr(value, "getA")


def _shape(value: Any) -> Any:
    """Return the shape of an array, a tensor or a column; None of what has none, as nested tensors."""
    with suppress(RuntimeError):
        return getattr(value, "shape", None)


def is_option(value: object) -> TypeGuard[Option]:
    """Return whether an option can have this value: a number, a text, True, False, None, or a list of these."""
    entries = value if isinstance(value, list) else [value]
    return all(isinstance(entry, bool | int | float | str | None) for entry in entries)


def check_option(key: str, parameter: inspect.Parameter, make: Callable[..., Any], value: Any) -> Any:
    """Return an option's value as its parameter takes it.

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
    return check_value(f"option {key!r}", value, types_of(make)[parameter.name])


def unknown_option(key: str, known: abc.Iterable[str]) -> ConfigError:
    """Return the error for an option that does not exist, naming the one that was meant or the nearest.

    Args:
        key: "method.members", say.
        known: options that exist, likewise.
    """
    kind, _, name = key.partition(".")
    options, other = list(known), f"{kind}.{OTHER_NAMES.get(name, '')}"
    return unknown_name("option", key, options, other if other in options else None)


@cache
def types_of(make: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters of a function or constructor; of a name that is not known there, any."""
    spaces = getattr(inspect.unwrap(make.__init__ if isinstance(make, type) else make), "__globals__", {})  # type: ignore[misc]
    types = {}
    for name, parameter in inspect.signature(make).parameters.items():
        types[name] = Any if parameter.annotation is parameter.empty else parameter.annotation
        if isinstance(parameter.annotation, str):
            alone = SimpleNamespace(__annotations__={name: parameter.annotation})
            try:
                types[name] = get_type_hints(alone, globalns=spaces, include_extras=True)[name]
            except (NameError, TypeError, AttributeError, SyntaxError):
                types[name] = Any
    return types


@cache
def _adapter(annotation: Any) -> Any:
    """Return the ``TypeAdapter`` of a type; None where it is checked apart, or not known to pydantic."""
    try:
        return None if _is_checked_apart(annotation) else TypeAdapter(_asked(annotation), config=STRICT)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return None


def _options(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _is_checked_apart(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType, *SEVERAL, tuple, Annotated):
        return any(map(_is_checked_apart, get_args(annotation)))
    if annotation is Any:
        return True
    kind = origin or annotation
    return hasattr(kind, "checked_apart") or getattr(kind, "__module__", "").partition(".")[0] in CHECKED_APART


def _asked(annotation: Any) -> Any:
    """Return a type as pydantic is asked for it, after ``plain``: classes by their instances, without fields."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return Union[tuple(map(_asked, inner))]  # noqa: UP007
    if origin in SEVERAL:
        return abc.Sequence[_asked(inner[0])]  # type: ignore[misc]
    if origin is tuple:
        kinds: Any = tuple(one if one is Ellipsis else _asked(one) for one in inner)
        return Annotated[tuple[kinds], Strict(False)]
    if not isinstance(annotation, type) or origin or annotation.__module__ in ("builtins", "typing"):
        return annotation
    if issubclass(annotation, Enum | Path):
        return Annotated[annotation, Strict(False)]
    return Annotated[Any, GetPydanticSchema(lambda *_: is_instance_schema(annotation))]
