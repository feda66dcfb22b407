"""Errors within the code of other packages, told with the part of the traceback that is of that code."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from miue.common.errors import MiueError, ModelError

PACKAGES: set[str] = set()
"""The outermost packages of the parts that are not of miue and that this process was given."""


def count_as_others(module: str) -> None:
    """Count a module, and all of the package that it is in, as code of others; torch is who all others call."""
    PACKAGES.update({module.partition(".")[0]} - {"torch"})


@contextmanager
def saying_when(when: Callable[[], str]) -> Iterator[None]:
    """Add to an error that is not miue's own when it was met; a traceback ends with it."""
    try:
        yield
    except MiueError:
        raise
    except Exception as error:
        error.add_note(when())
        raise


def told_by_others(error: BaseException) -> str:
    """Return the traceback of an error from where the code of others begins, "" where it never ran."""
    trace = error.__traceback__
    while trace is not None and not _is_of_others(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)) if trace else ""


def error_of_others(error: BaseException) -> ModelError:
    """Return what to say of an error for which ``told_by_others`` returns a traceback."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _is_of_others(frame.f_globals)]
    said = traceback.format_exception_only(error)
    return ModelError(
        item=f"{frames[-1].f_globals['__name__']}:{frames[-1].f_code.co_qualname}",
        wanted="no error in this code, which is not of miue",
        got="; ".join(line.strip() for line in said),
        fix="correct it, or tell its authors; the traceback above is that of their code",
    )


def _is_of_others(names: dict[str, object]) -> bool:
    return str(names.get("__name__")).partition(".")[0] in PACKAGES
