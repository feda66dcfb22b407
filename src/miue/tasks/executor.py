"""Running tasks: what is done is skipped, an error ends the run after the tasks that are running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from miue.common.errors import ConfigError, MiueError, StorageError, WriteError, out_of_range, unknown_name
from miue.common.locks import remove_left_lock
from miue.common.text import bar, plural
from miue.common.values import check_fields
from miue.tasks.task import Outcome, Task, shares_shown

EXECUTORS = ("local", "processes", "ray")


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
            raise out_of_range("--jobs", "at least 1", self.jobs)
        if self.kind == "local" and (self.jobs or 1) > 1:
            raise ConfigError(
                item="executor 'local'",
                wanted="one task at a time",
                got=f"--jobs {self.jobs}",
                fix="choose --executor processes, or leave --jobs out",
            )
        if self.kind != "ray" and self.address != "auto":
            raise ConfigError(
                item="--address",
                wanted="the executor 'ray' beside it",
                got=f"executor {self.kind!r}",
                fix="add --executor ray, or leave it out",
            )

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
    _refuse_removed([task.part for task in tasks if task.part not in left_out])
    return values


def _refuse_removed(parts: Sequence[Path]) -> None:
    """Raise where a part is no longer there: those that come after it make its folder again, without it.

    Raises:
        StorageError: one is not.
    """
    if removed := [part for part in parts if not part.exists()]:
        raise StorageError(
            item=repr(str(removed[0])),
            wanted="what was written there",
            got=f"none: {len(removed):,} of {plural(len(parts), 'output')} removed meanwhile",
            fix="give the same command again, and let nothing remove them while that runs",
        )


def _runner(executor: Executor) -> Callable[[Iterator[Task]], Iterator[Outcome]]:
    if executor.kind == "ray":
        from miue.tasks.on_ray import run_on_ray

        return partial(run_on_ray, jobs=executor.jobs, address=executor.address)
    if executor.kind == "processes":
        from miue.tasks.processes import run_in_processes

        return partial(run_in_processes, jobs=executor.jobs)
    return _run_here


def _run_here(tasks: Iterator[Task]) -> Iterator[Outcome]:
    for task in tasks:
        try:
            outcome = Outcome(task, task.run())
        except MiueError as error:
            outcome = Outcome(task, error=error)
        yield outcome
