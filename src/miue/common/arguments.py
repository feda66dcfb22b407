"""Arguments of public functions, checked by their annotations before anything is done with them."""

from __future__ import annotations

import inspect
import operator
import os
from collections import abc
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from miue.common.errors import ConfigError, unknown_name, wrong_type

F = TypeVar("F", bound=Callable[..., Any])

SINGLE = {bool: "True or False", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
SEVERAL = (abc.Sequence, abc.Collection, abc.Iterable, list, tuple)

CHECKED_APART = "checked_apart"
"""Attribute of a class whose functions say of something else how to make it one."""

MADE_BY = "made_by"
"""Attribute of a class that is made by a function: what to do for one."""


class _DoesNotFit(Exception):
    """A value is none of what an annotation allows."""


def checked(*, leave: Collection[str] = (), place: Callable[[str], str | None] | None = None) -> Callable[[F], F]:
    """Return a decorator that checks what is passed to a public function by the annotations of its parameters.

    A number of NumPy or a tensor of one becomes one of Python, and a column, an array or what is yielded by a
    generator becomes a list where several values are wanted: they can be read twice, and written as JSON. What
    an annotation says of arrays, parts and bags is checked by those who read them, who can say more about it.

    Args:
        leave: parameters that the function checks itself.
        place: returns how a keyword that is no parameter of the function is passed to it, None where it is not.

    Raises:
        ConfigError: of the function that is decorated: an argument of another type, or one that has a place
            elsewhere.

    >>> @checked()
    ... def draw(seed: int = 0) -> int:
    ...     return seed
    >>> draw("a")
    Traceback (most recent call last):
    miue.common.errors.ConfigError: seed: expected a whole number, got a value of type str ('a'); change the value
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        names = [
            name
            for name, parameter in signature.parameters.items()
            if name not in leave and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]

        @wraps(function)
        def check(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                for name in kwargs:
                    where = place(name) if place and name not in signature.parameters else None
                    if where is not None:
                        raise _misplaced(function, name, where) from None
                return function(*args, **kwargs)  # says itself which argument is missing or unknown
            for name in bound.arguments.keys() & names:
                annotation = _annotations(function).get(name, Any)
                bound.arguments[name] = check_value(name, bound.arguments[name], annotation)
            return function(*bound.args, **bound.kwargs)

        return check  # type: ignore[return-value]

    return decorate


def _misplaced(function: Callable[..., Any], name: str, where: str) -> ConfigError:
    """Return the error for a keyword that is passed in another way."""
    return ConfigError(
        item=f"argument {name!r} of {function.__name__}()",
        wanted="one that this function has",
        got="a setting of the training, or an option of a part",
        fix=f"pass {where}",
    )


def check_fields(record: Any) -> None:
    """Check the fields of a frozen dataclass as ``checked`` checks arguments, and set them to what they became.

    Raises:
        ConfigError: a field of another type.
    """
    kind: Callable[..., Any] = type(record)
    for field in fields(record):
        value = check_value(field.name, getattr(record, field.name), _annotations(kind)[field.name])
        object.__setattr__(record, field.name, value)


def check_value(item: str, value: Any, annotation: Any) -> Any:
    """Return a value as its annotation says.

    Raises:
        ConfigError: a value of another type.

    >>> import numpy as np
    >>> check_value("seeds", np.array([1, 2]), abc.Sequence[int]), check_value("measure", None, str | None)
    ([1, 2], None)
    """
    try:
        return _fitted(value, annotation)
    except _DoesNotFit:
        pass
    options = _options(annotation)
    for option in options:
        for number, one in enumerate(several(value) or ()):
            if (kind := _kind_of_each(option)) is not None:
                check_value(f"{item}, entry {number}", one, kind)
    if choices := [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]:
        raise unknown_name(item, value, map(str, choices))
    wanted = " or ".join(dict.fromkeys(map(_words, options)))
    records = [option for option in options if isinstance(option, type) and _is_record(option)]
    fix = "change the value"
    if records:
        name = records[0].__name__
        reads = hasattr(records[0], "load") and isinstance(value, str | os.PathLike)
        fix = f"read it: {name}.load({str(value)!r})" if reads else getattr(records[0], MADE_BY, f"pass {name}(…)")
    raise wrong_type(item, wanted, value, fix)


def several(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """Return several values in their order as a list, or the tuple that they are; None for what is something else.

    A text, a mapping, a set, a data frame and a matrix (sparse, or of NumPy) are something else, although they can
    be iterated over: what is then yielded are letters, keys, values in no order, names of columns, and matrices of
    one row.
    """
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | os.PathLike | abc.Mapping | abc.Set):
        return None
    if hasattr(value, "columns") or is_matrix(value):
        return None
    if isinstance(value, abc.Sequence | abc.Iterator | abc.ValuesView) or _has_axes(value):
        return list(value)
    return value.to_pylist() if hasattr(value, "to_pylist") else None  # a column of Arrow


def is_matrix(value: Any) -> bool:
    """Return whether a value is one sparse matrix or NumPy matrix, of which each row is a matrix again."""
    return hasattr(value, "toarray") or hasattr(value, "getA")


def _has_axes(value: Any) -> bool:
    """Return whether a value is an array, a tensor or a column."""
    try:
        return bool(getattr(value, "shape", ()))
    except RuntimeError:  # a nested tensor of PyTorch
        return False


@cache
def _annotations(owner: Any) -> dict[str, Any]:
    """Return the types that parameters or fields are annotated with; of a name that is not known here, any."""
    owner = inspect.unwrap(owner)
    spaces = getattr(owner, "__globals__", None) or vars(inspect.getmodule(owner))
    known = {}
    for name, annotation in inspect.get_annotations(owner).items():
        try:
            alone = SimpleNamespace(__annotations__={name: annotation})
            known[name] = get_type_hints(alone, globalns=spaces)[name]
        except (NameError, TypeError, AttributeError):
            known[name] = Any
    return known


def _options(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _fitted(value: Any, annotation: Any) -> Any:
    """Return a value as one of the options of an annotation has it.

    Raises:
        _DoesNotFit: it is none of them.
    """
    options = _options(annotation)
    if any(type(value) is option for option in options) or not all(map(_is_known, options)):
        return value
    for option in options:
        try:
            return _as_option(value, option)
        except _DoesNotFit:
            continue
    raise _DoesNotFit


def _is_known(option: Any) -> bool:
    """Return whether values of this type are checked here."""
    origin = get_origin(option) or option
    if origin in (abc.Callable, type) or not (isinstance(origin, type) or origin is Literal):
        return False
    return origin in (*SINGLE, *SEVERAL, NoneType, abc.Mapping, dict, Literal) or _is_record(origin)


def _is_record(kind: Any) -> bool:
    """Return whether a class is one of values that a user builds: a goal, an executor, a calibration."""
    return (is_dataclass(kind) or hasattr(kind, "model_fields")) and not hasattr(kind, CHECKED_APART)


def _as_option(value: Any, option: Any) -> Any:
    origin = get_origin(option) or option
    if origin is NoneType and value is None:
        return None
    if origin is Literal:
        if not (isinstance(value, str) and value in get_args(option)):
            raise _DoesNotFit
        return value
    if origin in (int, float, bool):
        return _number(value, origin)
    if origin is str and (isinstance(value, str) or type(value).__name__ == "device"):  # torch.device("cpu")
        return str(value)
    if origin is Path and isinstance(value, os.PathLike):
        return value
    if origin in SEVERAL:
        return _each(value, option)
    if origin not in SINGLE and isinstance(origin, type) and isinstance(value, origin):
        return value
    raise _DoesNotFit


def _number(value: Any, kind: type) -> Any:
    """Return a number of Python.

    Raises:
        _DoesNotFit: a text, a truth value where a number is wanted or the reverse, or several numbers.
    """
    kind_of = getattr(getattr(value, "dtype", None), "kind", None) or _kind_of_tensor(value)
    is_truth_value = isinstance(value, bool) or kind_of == "b"
    if is_truth_value != (kind is bool) or isinstance(value, str | bytes) or getattr(value, "shape", ()):
        raise _DoesNotFit
    try:
        if kind is float and kind_of == "f":
            return float(str(value))  # 0.1 in single precision is the decimal 0.1
        return operator.index(value) if kind is int else kind(value)
    except (TypeError, ValueError):
        raise _DoesNotFit from None


def _kind_of_tensor(value: Any) -> str | None:
    return "b" if str(getattr(value, "dtype", "")) == "torch.bool" else None


def _each(value: Any, option: Any) -> Any:
    """Return several values, each as the annotation of one says.

    Raises:
        _DoesNotFit: a single value, or one that does not fit.
    """
    found = several(value)
    if found is None:
        raise _DoesNotFit
    inner = get_args(option)
    if get_origin(option) is tuple and inner and inner[-1] is not Ellipsis:
        if len(found) != len(inner):
            raise _DoesNotFit
        return tuple(_fitted(one, kind) for one, kind in zip(found, inner, strict=True))
    if not inner or not all(map(_is_known, _options(inner[0]))):
        return found
    fitted = [_fitted(one, inner[0]) for one in found]
    return tuple(fitted) if isinstance(found, tuple) else fitted


def _kind_of_each(option: Any) -> Any | None:
    """Return the annotation of each of several values; None for a single one and a tuple of different ones."""
    inner = get_args(option)
    of_one_kind = len(inner) == 1 or (len(inner) == 2 and inner[1] is Ellipsis)
    return inner[0] if get_origin(option) in SEVERAL and of_one_kind else None


def _words(option: Any) -> str:
    """Return what an option of an annotation is called in a message."""
    origin = get_origin(option) or option
    if origin in SINGLE:
        return SINGLE[origin]
    if origin is NoneType:
        return "None"
    if origin in (abc.Mapping, dict):
        return "values by their names, a dictionary"
    if origin in SEVERAL:
        inner = get_args(option)
        if get_origin(option) is tuple and inner and inner[-1] is not Ellipsis:
            return f"a tuple ({', '.join(map(_words, inner))})"
        of_each = " or ".join(map(_words, _options(inner[0]))) if inner and inner[0] is not Any else "value"
        return f"a list, each {of_each}" if of_each != "value" else "a list of values in their order"
    name: str = getattr(origin, "__name__", str(origin))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
