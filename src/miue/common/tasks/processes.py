"""Tasks in processes of this machine, each with its share of the cores; one that dies is started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from queue import SimpleQueue

from miue.common.errors import MiueError
from miue.common.processes import child_environment, describe_exit
from miue.common.tasks.task import Outcome, Task, answer, lost_worker, read_answer

ATTEMPTS = 3
INTERRUPTED = 130
SECONDS_TO_STOP = 60.0  # for a batch and its checkpoint; then a worker is killed


def run_in_processes(tasks: Iterator[Task], jobs: int | None = None) -> Iterator[Outcome]:
    """Run tasks side by side and yield each when it ends.

    A worker is a process of its own, which gets tasks as lines of JSON; it ends with this process, however that
    ends. When one dies, its task is tried again and the other workers go on.

    Args:
        tasks: taken one by one, whenever a worker is free.
        jobs: workers; None for one on each core.
    """
    from joblib import cpu_count

    count = jobs or cpu_count()
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # "4,2" is of nested teams
    threads = int(given) if given.isdecimal() and int(given) else max(1, cpu_count() // count)
    attempts: Counter[Path] = Counter()
    again: list[Task] = []
    workers: dict[int, _Worker] = {}

    def start(worker: _Worker | None = None) -> bool:
        """Let a worker run the next task; without one, return False."""
        task = again.pop() if again else next(tasks, None)
        if task is None:
            return False
        worker = worker or _Worker(threads)
        worker.start(task)
        workers[worker.answers.fileno()] = worker
        return True

    try:
        while True:
            while len(workers) < count and start():
                pass
            if not workers:
                return
            for answers in wait(list(workers)):
                assert isinstance(answers, int)
                worker = workers.pop(answers)
                line = worker.answers.readline()
                if line:
                    yield read_answer(worker.task, json.loads(line))
                    if not start(worker):
                        worker.end()
                    continue
                status = worker.end()
                attempts[worker.task.part] += 1
                if attempts[worker.task.part] < ATTEMPTS:
                    again.append(worker.task)
                else:
                    yield lost_worker(worker.task, ATTEMPTS, describe_exit(status))
    finally:  # after Ctrl-C
        _stop(list(workers.values()))


class _Worker:
    """A process that runs one task after another."""

    def __init__(self, threads: int) -> None:
        command = [sys.executable, "-P", "-m", "miue.common.tasks.processes"]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches it through this process, once
                env=child_environment(threads),
            )
        except OSError as error:
            fix = "run fewer jobs, or choose the executor 'local'"
            raise MiueError(item="a worker process", wanted="it to start", got=str(error), fix=fix) from error
        assert self.process.stdout is not None
        self.answers = self.process.stdout

    def start(self, task: Task) -> None:
        """Let it run a task; where it has died, its answer is the end of its output."""
        assert self.process.stdin is not None
        self.task = task
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(task.to_json()).encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> int:
        """Close its input, at which it ends, and return its exit status."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.answers.close()
        return self.process.wait()


def _stop(workers: list[_Worker]) -> None:
    """Interrupt all workers, which end after the batch that they are at; a second interrupt kills them."""
    try:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGINT)
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(SECONDS_TO_STOP)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.end()


def main() -> None:
    """Run tasks in a worker, lines of JSON on its input, until the input ends or until an interrupt.

    When its input ends, so does the worker, even within a task: the process that wanted the answer has ended.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started it may have ignored it
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a task prints is no answer
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    try:
        while True:
            outcome = answer(json.loads(requests.get()))
            with suppress(BrokenPipeError):
                answers.write(json.dumps(outcome).encode() + b"\n")
                answers.flush()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def _read(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
