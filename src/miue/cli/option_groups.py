"""Options that belong together as one dataclass, such as ``Source`` for bags or ``RuleOptions`` for rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from itertools import chain
from typing import Any, get_type_hints


def takes_options(
    command: Callable[..., None] | None = None, *, without: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Give a command, in place of each parameter that is a dataclass of options, the fields of it as options.

    Args:
        command: the function of the command.
        without: fields that have no meaning for it.
    """
    if command is None:
        return partial(takes_options, without=without)
    own = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: p.annotation for name, p in own.parameters.items() if is_dataclass(p.annotation)
    }
    options = {name: _options(group, without) for name, group in groups.items()}

    @wraps(command)
    def wrapped(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in options[name]})
        command(**values)

    kept = [p.replace(kind=p.KEYWORD_ONLY) for name, p in own.parameters.items() if name not in groups]
    parameters = [*kept, *chain.from_iterable(options.values())]
    wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def _options(group: Any, without: tuple[str, ...]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(one.name, keyword, default=one.default, annotation=hints[one.name])
        for one in fields(group)
        if one.name not in without
    ]
