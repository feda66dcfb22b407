"""What a command writes is its own while it runs, and never what it reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any

from miue.common.errors import ConfigError


def locks_out(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that has a parameter ``out`` hold that output's lock, so that another is refused at once.

    So is a place that cannot be written, before the work. Without an ``out`` nothing is held.
    """

    @wraps(command)
    def wrapped(**given: Any) -> None:
        from miue.common.outputs import locked

        with nullcontext() if given["out"] is None else locked(given["out"]):
            command(**given)

    return wrapped


def keeps_inputs(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command with ``--overwrite`` refuse an ``out`` that is, or holds, something that it is to read."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        out = given["out"]
        if out is not None and given["overwrite"]:
            for name, value in given.items():
                if name != "out":
                    _refuse_within(out, value)
        command(**given)

    return wrapped


def _refuse_within(out: Path, value: Any) -> None:
    """Raise where an argument is a path to ``out`` or into it, or holds one; values of other kinds are none."""
    if hasattr(value, "given"):  # settings
        value = list(value.given().values())
    for one in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(one, str | Path) or not str(one):
            continue
        try:
            is_input = Path(one).resolve().is_relative_to(out.resolve()) and Path(one).exists()
        except OSError:  # a text that is no path
            continue
        if is_input:
            raise ConfigError(
                item=f"--out {str(out)!r} with --overwrite",
                wanted="an output that holds nothing of what is read",
                got=f"one that is or holds {str(one)!r}",
                fix="choose another --out",
            )
