"""A task: one call that writes one part, whole or not at all, and that any process can make."""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from miue.common.errors import ConfigError, MiueError, error_from_json, error_to_json, memory_shortage
from miue.common.outputs import locked
from miue.common.registry import import_part

_shown: ContextVar[Callable[[float], None] | None] = ContextVar("shown", default=None)


@dataclass(frozen=True)
class Task:
    """A call of one function that writes one part.

    Attributes:
        name: for messages: "fold 1, seed 42".
        function: its import path, "package.module:function"; it returns a JSON value.
        arguments: JSON values by name; paths are absolute.
        part: file or folder that is there when the task is done, and not before.
        again: whether it runs although its part is there.
        output: what no other process may write meanwhile, where it is more than the part.
    """

    name: str
    function: str
    arguments: Mapping[str, Any]
    part: Path
    again: bool = False
    output: Path | None = None

    @property
    def is_done(self) -> bool:
        """Whether it need not run."""
        return self.part.exists() and not self.again

    def run(self) -> Any:
        """Write the part and return what the function returns, or None where another process has written it.

        Whoever else writes the same part is waited for: after the driver was killed, its workers may still end.
        """
        with locked(self.output or self.part, wait=True):
            return None if self.is_done else import_part(self.function)(**self.arguments)

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON values."""
        paths = {"part": str(self.part), "output": self.output and str(self.output)}
        return {**vars(self), "arguments": dict(self.arguments), **paths}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Task:
        """Return the task that ``to_json`` describes."""
        output = content["output"]
        return cls(**{**content, "part": Path(content["part"]), "output": output and Path(output)})


@dataclass(frozen=True)
class Outcome:
    """How a task ended: with a value or with an error."""

    task: Task
    value: Any = None
    error: Exception | None = None


class WorkerError(RuntimeError):
    """An error that is not miue's own, as the worker that met it shows it."""


def answer(request: Mapping[str, Any], miue: str = "", import_from: Sequence[str] = ()) -> dict[str, Any]:
    """Run a task in a worker and return its outcome as JSON values.

    Args:
        request: of ``Task.to_json``.
        miue: its version in the process that wants the answer, "" where that is this installation's.
        import_from: folders that are added to the paths of imports.
    """
    sys.path.extend(folder for folder in import_from if folder not in sys.path)
    try:
        if miue not in ("", version("miue")):
            item, fix = f"the worker on {platform.node()!r}", "install the same version of miue on every machine"
            raise ConfigError(item=item, wanted=f"miue {miue}", got=f"miue {version('miue')}", fix=fix)
        return {"value": Task.from_json(request).run()}
    except MiueError as error:
        return {"error": error_to_json(error)}
    except Exception as error:
        if (short := memory_shortage(error)) is not None:
            return {"error": error_to_json(short)}
        return {"traceback": traceback.format_exc()}


def read_answer(task: Task, said: Mapping[str, Any]) -> Outcome:
    """Return the outcome that ``answer`` describes."""
    if "error" in said:
        return Outcome(task, error=error_from_json(said["error"]))
    if "traceback" in said:
        return Outcome(task, error=WorkerError(f"{task.name} failed in a worker:\n{said['traceback']}"))
    return Outcome(task, said["value"])


def lost_worker(task: Task, attempts: int, how: str) -> Outcome:
    """Return the outcome of a task whose worker died each time."""
    wanted, got = "a worker that lives until it is done", f"{attempts} that died, the last by {how}"
    fix = "run fewer jobs if memory is short; finished parts are kept"
    return Outcome(task, error=MiueError(item=task.name, wanted=wanted, got=got, fix=fix))


def report_share(share: float) -> None:
    """Show how much of the running task is done, where the process that shows progress runs it.

    Args:
        share: from 0 to 1.
    """
    show = _shown.get()
    if show is not None:
        show(share)


@contextmanager
def shares_shown(show: Callable[[float], None]) -> Iterator[None]:
    """Let ``report_share`` call ``show`` within the block."""
    token = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def reporting_part(number: int, count: int) -> Iterator[None]:
    """Let what ``report_share`` reports within the block be the share of part ``number`` of ``count``, from 0."""
    show = _shown.get()
    if show is None:
        yield
    else:
        with shares_shown(lambda share: show((number + share) / count)):
            yield
