"""Functions that tests run as tasks."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from miue.common.errors import DataError
from miue.common.files import write_json


def square(out: str, number: int) -> int:
    write_json(Path(out), {"square": number**2, "threads": os.environ.get("OMP_NUM_THREADS")})
    return number**2


def refuse(out: str) -> None:
    Path(f"{out}.seen").touch()
    raise DataError(item="bag 'a'", wanted="instances", got="none", fix="drop it")


def fail(out: str) -> None:
    raise ZeroDivisionError("a bug")


def die_once(out: str) -> None:
    """Kill this process, unless it was done before."""
    mark = Path(f"{out}.died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    square(out, 3)


def die(out: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(out: str, begun: str, file: str) -> None:
    """Say that it runs, and end when there is a file."""
    Path(begun).touch()
    while not Path(file).exists():
        time.sleep(0.01)
    square(out, 2)


def node(out: str, seconds: float) -> Any:
    """Write on which Ray node it ran."""
    import ray

    name: str = ray.get_runtime_context().get_node_id()
    Path(f"{out}.{name}.begun").touch()
    time.sleep(seconds)
    write_json(Path(out), {})
    return name


def announce(out: str, message: str) -> None:
    """Write, and have Ray tell the process that wanted it something, as of a node that is lost."""
    import ray

    ray._private.utils.push_error_to_driver(ray._private.worker.global_worker, "node", message)
    time.sleep(1.0)
    write_json(Path(out), {})


def write_elsewhere(out: str) -> None:
    """Write nothing that others see."""


def remove_folder_of(out: str) -> None:
    """Remove the folder of ``out`` with what is in it, and write that alone."""
    shutil.rmtree(Path(out).parent)
    write_json(Path(out), {})
