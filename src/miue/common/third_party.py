"""Errors in third-party code, such as a network of one's own, shown with the traceback of that code alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from miue.common.errors import MiueError, ModelError

PACKAGES: set[str] = set()
"""The outermost packages of the parts that are not of miue and that this process uses."""


def count_as_third_party(module: str) -> None:
    """Count a module, and the whole package that it is in, as third-party code; miue and torch are none."""
    PACKAGES.update({module.partition(".")[0]} - {"miue", "torch"})


@contextmanager
def noting_when(when: Callable[[], str]) -> Iterator[None]:
    """Add to an error that is not miue's own when it was met; a traceback ends with it."""
    try:
        yield
    except MiueError:
        raise
    except Exception as error:
        error.add_note(when())
        raise


def third_party_traceback(error: BaseException) -> str:
    """Return the traceback of an error from where third-party code begins, "" where none ran."""
    trace = error.__traceback__
    while trace is not None and not _is_third_party(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)) if trace else ""


def third_party_error(error: BaseException) -> ModelError:
    """Return what to say of an error for which ``third_party_traceback`` returns a traceback."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _is_third_party(frame.f_globals)]
    said = traceback.format_exception_only(error)
    return ModelError(
        item=f"{frames[-1].f_globals['__name__']}:{frames[-1].f_code.co_qualname}",
        wanted="no error in this code, which is not of miue",
        got="; ".join(line.strip() for line in said),
        fix="correct it, or tell its authors; the traceback above is that of their code",
    )


def _is_third_party(names: dict[str, object]) -> bool:
    return str(names.get("__name__")).partition(".")[0] in PACKAGES
