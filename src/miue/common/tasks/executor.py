"""Where tasks run, and which share of them runs in one job of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from miue.common.errors import ConfigError, MiueError, StorageError, WriteError, out_of_range, unknown_name
from miue.common.outputs import remove_left_lock
from miue.common.settings import DeviceSettings, Settings
from miue.common.tasks.task import Outcome, Task, shares_shown
from miue.common.text import RUNNING, bar, plural
from miue.common.values import check_fields

EXECUTORS = ("local", "processes", "ray")
MOST_SHARDS = 64  # for local workers: they end together, and what all shards share is read seldom
Item = TypeVar("Item")


@dataclass(frozen=True)
class Executor:
    """Where tasks run, which does not change what they write.

    Attributes:
        kind: "local", one after another in this process; "processes", in processes of this machine; "ray", on a
            Ray cluster, whose nodes see the same files at the same paths.
        jobs: tasks at a time; the cores are shared equally among them. None for one on each core.
        address: of the Ray cluster, "auto" for the one that this machine belongs to.

    Raises:
        ConfigError: no such executor, or an option that it does not take.
    """

    kind: str = "local"
    jobs: int | None = None
    address: str = "auto"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in EXECUTORS:
            raise unknown_name("executor", self.kind, EXECUTORS)
        if self.jobs is not None and self.jobs < 1:
            raise out_of_range("jobs", "at least 1", self.jobs)
        if self.kind == "local" and (self.jobs or 1) > 1:
            got, fix = f"{self.jobs} jobs", "choose 'processes', or leave jobs out"
            raise ConfigError(item="executor 'local'", wanted="one task at a time", got=got, fix=fix)
        if self.kind != "ray" and self.address != "auto":
            got = f"executor {self.kind!r}"
            raise ConfigError(item="address", wanted="the executor 'ray'", got=got, fix="leave the address out")

    @property
    def is_local(self) -> bool:
        """Whether tasks run in this process."""
        return self.kind == "local"


LOCAL = Executor()


def run_tasks(
    tasks: Sequence[Task],
    executor: Executor = LOCAL,
    *,
    doing: str,
    unit: str,
    progress: bool = False,
    on_error: Callable[[Task, MiueError], None] | None = None,
) -> list[Any]:
    """Run the tasks that are not done and return what each returned, None of those that were done before.

    Args:
        tasks: of different parts.
        executor: where they run.
        doing: what is done, for the bar: "cross-validating".
        unit: what a task is, in the plural: "runs".
        progress: show one bar over all tasks, with the time left.
        on_error: called with a task that failed, and the rest goes on; if None, or where the failure is that
            nothing can be written, no further task is started, those that are running finish, and the first error
            is raised.

    Raises:
        MiueError: of a task, or of the executor.
        StorageError: a part was removed while others were written.
        KeyboardInterrupt: the user stopped it; workers have ended.
    """
    todo = [number for number, task in enumerate(tasks) if not task.is_done]
    for number in set(range(len(tasks))).difference(todo):
        remove_left_lock(tasks[number].output or tasks[number].part)
    numbers = {tasks[number].part: number for number in todo}
    values: list[Any] = [None] * len(tasks)
    failed: list[Exception] = []
    left_out: set[Path] = set()

    def waiting() -> Iterator[Task]:
        for number in todo:
            if failed:
                return
            yield tasks[number]

    with bar(unit, shown=progress) as shown:
        done = len(tasks) - len(todo)
        line = shown.add_task(doing, total=len(tasks), completed=done)
        with shares_shown(lambda share: shown.update(line, completed=done + share)):
            for outcome in _runner(executor)(waiting()):
                done += 1
                shown.update(line, completed=done)
                values[numbers[outcome.task.part]] = outcome.value
                error = outcome.error
                if on_error and isinstance(error, MiueError) and not isinstance(error, WriteError):
                    on_error(outcome.task, error)
                    left_out.add(outcome.task.part)
                elif error is not None:
                    failed.append(error)
    if failed:
        raise failed[0]
    parts = [task.part for task in tasks if task.part not in left_out]
    if removed := [part for part in parts if not part.exists()]:  # later tasks make a folder again, without it
        raise StorageError(
            item=repr(str(removed[0])),
            wanted="what was written there",
            got=f"none: {len(removed):,} of {plural(len(parts), 'output')} removed meanwhile",
            fix="run this again",
        )
    return values


def _runner(executor: Executor) -> Callable[[Iterator[Task]], Iterator[Outcome]]:
    if executor.kind == "ray":
        from miue.common.tasks.on_ray import run_on_ray

        return partial(run_on_ray, jobs=executor.jobs, address=executor.address)
    if executor.kind == "processes":
        from miue.common.tasks.processes import run_in_processes

        return partial(run_in_processes, jobs=executor.jobs)
    return _run_here


def _run_here(tasks: Iterator[Task]) -> Iterator[Outcome]:
    for task in tasks:
        try:
            outcome = Outcome(task, task.run())
        except MiueError as error:
            outcome = Outcome(task, error=error)
        yield outcome


@dataclass(frozen=True)
class Shard:
    """One of several equal parts of a piece of work.

    Attributes:
        number: which, from 1.
        count: how many there are.

    Raises:
        ConfigError: no such number.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.number <= self.count:
            raise out_of_range(f"shard {self}", f"a number from 1 to {self.count}", self.number)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this shard, consecutive ones; shards differ by one item at most.

        >>> [list(Shard(number, 3).share("abcde")) for number in (1, 2, 3)]
        [['a'], ['b', 'c'], ['d', 'e']]
        """
        ends = [len(items) * number // self.count for number in (self.number - 1, self.number)]
        return items[ends[0] : ends[1]]


ALL = Shard(1, 1)
"""The only shard: the whole piece of work."""


def parse_shard(text: str, environment: Mapping[str, str] = os.environ) -> Shard:
    """Return the shard that an option names.

    Args:
        text: "3/64", or "slurm" for the job of a Slurm array, whose jobs are numbered from 1 or 0 without gaps.
        environment: of the process.

    Raises:
        ConfigError: neither, no such shard, no array, or one that is numbered otherwise.

    >>> parse_shard("3/64")
    Shard(number=3, count=64)
    """
    if text == "slurm":
        return _slurm_shard(environment)
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None:
        raise out_of_range("shard", "NUMBER/COUNT such as 3/64, or slurm", text)
    return Shard(int(match[1]), int(match[2]))


def _slurm_shard(environment: Mapping[str, str]) -> Shard:
    """Return the shard of this job; a part of an array that runs again does not say how many there were."""
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "MAX", "COUNT")]
    texts = [environment.get(name, "") for name in names]
    fix = "submit the script with sbatch --array=1-64, or write ${SLURM_ARRAY_TASK_ID}/64 where a part runs again"
    if not all(text.isdecimal() for text in texts):
        missing = next(name for name, text in zip(names, texts, strict=True) if not text.isdecimal())
        got = f"no {missing}" if missing not in environment else f"{missing} is {environment[missing]!r}"
        raise ConfigError(item="shard 'slurm'", wanted="a job of a Slurm array", got=got, fix=fix)
    number, first, last, count = map(int, texts)
    if first > 1 or last - first + 1 != count:
        got, wanted = f"{plural(count, 'job')} from {first} to {last}", "numbers from 1 or 0 without gaps"
        raise ConfigError(item="shard 'slurm'", wanted=wanted, got=got, fix=fix)
    return Shard(number - first + 1, count)


class ExecutorSettings(Settings):
    """Where tasks run, which does not change what they write."""

    heading = RUNNING

    executor: Literal["local", "processes", "ray"] | None = Field(
        default=None,
        description="Where to compute: here, in processes of this machine (default with several jobs), or on a "
        "Ray cluster.",
    )
    jobs: int | None = Field(
        default=None,
        ge=1,
        description="Tasks at a time, which share the cores equally; by default one on each core.",
    )
    address: str | None = Field(
        default=None, description="HOST:PORT of a Ray cluster; by default that of this machine."
    )

    def to_executor(self) -> Executor:
        """Return the executor.

        Raises:
            ConfigError: an option that it does not take.
        """
        kind = self.executor or ("ray" if self.address else "processes" if (self.jobs or 1) > 1 else "local")
        return Executor(kind, self.jobs, self.address or "auto")


class ComputeSettings(ExecutorSettings, DeviceSettings):
    """Where tasks run, and on which device."""
