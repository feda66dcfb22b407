"""Shapes written in signatures, checked once for each combination of types and shapes of a call.

A check takes 50 µs, which is half of the time of many tests where every call is checked. Another call with
arguments of the same types and shapes, and a result of the same, would be checked to the same end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from functools import partial, update_wrapper, wraps
from types import CodeType, FunctionType, NoneType
from typing import Any

import jaxtyping
import numpy as np
from torch import Tensor

of_jaxtyping = jaxtyping.jaxtyped
ARRAYS = (Tensor, np.ndarray)
SIMPLE = {NoneType, bool, int, float, str}
PASSED: dict[tuple[str, str, CodeType], set[Hashable]] = {}
"""Of each function, the types and shapes of arguments, and these with those of results, that were checked."""
CONFIG = jaxtyping.config


def install(modules: list[str]) -> None:
    """Check the shapes of all functions in these modules, which are not imported yet."""
    jaxtyping.install_import_hook(modules, "beartype.beartype")
    jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]  # the decorator that the hook writes above each function


def jaxtyped(decorated: Any = None, *, typechecker: Any) -> Any:
    """Return what ``jaxtyping.jaxtyped`` returns, with checks of new combinations alone."""
    again = partial(jaxtyped, typechecker=typechecker)
    if decorated is None:
        return again
    if isinstance(decorated, FunctionType):
        return _checked(decorated, typechecker)
    if isinstance(decorated, classmethod | staticmethod):
        return type(decorated)(again(decorated.__func__))
    if isinstance(decorated, property):
        get, put, delete = (one and again(one) for one in (decorated.fget, decorated.fset, decorated.fdel))
        return property(get, put, delete, decorated.__doc__)
    if is_dataclass(decorated) and "__init__" in vars(decorated):
        decorated.__init__ = again(decorated.__init__)  # type: ignore[misc, method-assign]
    return decorated


def _checked(function: FunctionType, typechecker: Any) -> Callable[..., Any]:
    passed = PASSED.setdefault((function.__module__, function.__qualname__, function.__code__), set())
    checked: list[Callable[..., Any]] = []

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if CONFIG.jaxtyping_disable:
            return function(*args, **kwargs)
        given = tuple([_kind(value) for value in args])
        if kwargs:
            given += tuple([(name, _kind(value)) for name, value in kwargs.items()])
        if given not in passed:
            if not checked:  # when it is called first: all names in its annotations are known by then
                checked.append(of_jaxtyping(function, typechecker=typechecker))
            result = checked[0](*args, **kwargs)
            passed.update((given, (given, _kind(result))))
            return result
        result = function(*args, **kwargs)
        if (given, _kind(result)) not in passed:
            of_jaxtyping(_returning(result, function), typechecker=typechecker)(*args, **kwargs)
            passed.add((given, _kind(result)))
        return result

    return call


def _returning(result: Any, function: FunctionType) -> Any:
    """Return a function with the signature of another, and this result."""

    def returning(*args: Any, **kwargs: Any) -> Any:
        return result

    made = FunctionType(returning.__code__, function.__globals__, function.__name__, None, returning.__closure__)
    return update_wrapper(made, function)


def _kind(value: Any) -> Any:
    """Return all of a value that a check looks at; of several values, it looks at one."""
    kind = type(value)
    if kind in SIMPLE:
        return kind
    if kind is Tensor or isinstance(value, ARRAYS):
        return kind, value.dtype, value.shape
    if kind is list or kind is tuple:
        return kind, *[_kind(one) for one in value[:4]]
    return kind
