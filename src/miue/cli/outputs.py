"""What a command writes is its own while it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def locks_out(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that has a parameter ``out`` hold that output's lock, so that another is refused at once."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        from miue.common.locks import locked

        with locked(given["out"]):
            command(**given)

    return wrapped
