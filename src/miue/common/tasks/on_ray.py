"""Tasks on a Ray cluster, whose nodes see the same files at the same paths."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from miue.common.errors import ConfigError, import_extra, not_shared
from miue.common.tasks.task import Outcome, Task, answer, lost_worker, read_answer

RETRIES = 3
AUTO = "auto"
SECONDS_TO_CONNECT = 5.0
SECONDS_TO_APPEAR = 10.0  # a network file system may show what another machine wrote a while later


def run_on_ray(tasks: Iterator[Task], jobs: int | None = None, address: str = AUTO) -> Iterator[Outcome]:
    """Run tasks on a cluster and yield each when it ends; Ray runs those of a node that is lost on another.

    Args:
        tasks: taken one by one, whenever there is room.
        jobs: tasks at a time; None for one on each core of the cluster.
        address: of the cluster, "auto" for the one that this machine belongs to.

    Raises:
        ConfigError: the package ray is not installed, or there is no cluster at the address.
    """
    ray = import_extra("ray", "executor 'ray'", "ray")
    if ray.is_initialized():
        yield from _run(ray, tasks, jobs)
        return
    with redirect_stdout(sys.stderr):  # Ray prints that a node was lost there, amid the results of a command
        _connect(ray, address)
        try:
            yield from _run(ray, tasks, jobs)
        finally:
            ray.shutdown()


def _run(ray: Any, tasks: Iterator[Task], jobs: int | None) -> Iterator[Outcome]:
    """Run tasks on the cluster that this process has joined and yield each when it ends."""
    count, cores = _room(ray, jobs)
    remote = ray.remote(num_cpus=cores, max_retries=RETRIES)(answer)
    folders = _own_folders()
    running: dict[Any, Task] = {}
    try:
        while True:
            while len(running) < count and (task := next(tasks, None)) is not None:
                started = remote.options(name=task.name).remote(task.to_json(), version("miue"), folders)
                running[started] = task
            if not running:
                return
            for done in ray.wait(list(running))[0]:
                yield _outcome(ray, done, running.pop(done))
    finally:  # after Ctrl-C
        for left in running:
            with suppress(ray.exceptions.RayError):
                ray.cancel(left)
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=60)


def _connect(ray: Any, address: str) -> None:
    """Connect this process to a cluster.

    Raises:
        ConfigError: there is none at the address.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a task sees the node's accelerators
    try:
        chosen = os.environ.get("RAY_ADDRESS", AUTO) if address == AUTO else address
        host, _, port = chosen.rpartition(":")
        if host:
            socket.create_connection((host, int(port)), SECONDS_TO_CONNECT).close()  # Ray itself tries for minutes
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        item, got = f"Ray cluster at {address!r}", str(error).strip().split("\n")[0]
        fix = "start one with 'ray start', or pass the HOST:6379 of one that runs"
        raise ConfigError(item=item, wanted="a cluster that runs", got=got, fix=fix) from error


def _room(ray: Any, jobs: int | None) -> tuple[int, int]:
    """Return how many tasks may run at a time, and the cores of each, at most those of the largest node."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    count = jobs or max(1, sum(cores))
    return count, max(1, min(max(cores, default=1), sum(cores) // count))


def _own_folders() -> list[str]:
    """Return the folders of imports that are not those of installed packages, such as those of ``PYTHONPATH``."""
    folders = [Path(folder).resolve() for folder in sys.path]
    installed = (sys.prefix, sys.base_prefix)
    return [str(each) for each in folders if not any(each.is_relative_to(prefix) for prefix in installed)]


def _outcome(ray: Any, done: Any, task: Task) -> Outcome:
    """Return how a task ended; where a worker cannot import miue, Ray has no node's word but its own."""
    try:
        return _seen_here(read_answer(task, ray.get(done)))
    except ray.exceptions.RayError as error:
        said = str(error).strip()
        if "ModuleNotFoundError" not in said:
            return lost_worker(task, RETRIES + 1, said.split("\n")[0])
        got, fix = said[said.rindex("ModuleNotFoundError") :].split("\n")[0], "install miue on every node"
        item, wanted = "a node of the Ray cluster", "the package miue and all that it needs"
        return Outcome(task, error=ConfigError(item=item, wanted=wanted, got=got, fix=fix))


def _seen_here(outcome: Outcome) -> Outcome:
    """Return an outcome, an error where its part was written to another file system than that of this machine."""
    part, last = outcome.task.part, time.monotonic() + SECONDS_TO_APPEAR
    while outcome.error is None:
        with suppress(OSError):
            next(part.parent.iterdir(), None)  # has a network file system look again
        if part.exists():
            return outcome
        if time.monotonic() >= last:
            return Outcome(outcome.task, error=not_shared(part, "the output of a task that another machine ran"))
        time.sleep(0.1)
    return outcome
