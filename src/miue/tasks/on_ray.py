"""Tasks on a Ray cluster, whose nodes see the same files at the same paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from miue.common.errors import ConfigError
from miue.common.extras import import_extra
from miue.tasks.task import Outcome, Task, lost_worker, read_answer

RETRIES = 3
AUTO = "auto"


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
    was_connected = ray.is_initialized()
    if not was_connected:
        _connect(ray, address)
    try:
        count, cores = _room(ray, jobs)
        remote = ray.remote(_answer_on_node()).options(num_cpus=cores, max_retries=RETRIES)
        running: dict[Any, Task] = {}
        try:
            while True:
                while len(running) < count and (task := next(tasks, None)) is not None:
                    running[remote.options(name=task.name).remote(task.to_json(), _version())] = task
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
    finally:
        if not was_connected:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Connect this process to a cluster.

    Raises:
        ConfigError: there is none at the address.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a task sees the node's accelerators
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            item=f"Ray cluster at {address!r}",
            wanted="a cluster that runs",
            got=str(error).strip().split("\n")[0],
            fix="start one with 'ray start --head' and 'ray start --address HOST:6379' on the other machines, or "
            "pass the HOST:6379 of one that runs as --address",
        ) from error


def _room(ray: Any, jobs: int | None) -> tuple[int, int]:
    """Return how many tasks may run at a time, and the cores of each, at most those of the largest node."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    count = jobs or max(1, sum(cores))
    return count, max(1, min(max(cores, default=1), sum(cores) // count))


def _answer_on_node() -> Any:
    """Return the function that Ray runs; a nested one is sent whole, so that it can say that miue is missing."""

    def answer_on_node(request: Mapping[str, Any], version: str) -> dict[str, Any]:
        import platform

        try:
            import miue
            from miue.tasks.task import answer

            got = f"version {miue.__version__}"
        except ImportError as error:
            got = str(error)
        if got != f"version {version}":
            parts = {
                "item": f"Ray node {platform.node()!r}",
                "wanted": f"the package miue, version {version}",
                "got": got,
                "fix": "install the same version of miue on every node",
            }
            return {"error": {"kind": "ConfigError", **parts}}
        return answer(request)

    return answer_on_node


def _outcome(ray: Any, done: Any, task: Task) -> Outcome:
    try:
        return read_answer(task, ray.get(done))
    except ray.exceptions.RayError as error:
        return lost_worker(task, RETRIES + 1, str(error).strip().split("\n")[0])


def _version() -> str:
    import miue

    return miue.__version__
