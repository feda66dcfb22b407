"""The process that opens files of HDF5 and Zarr: requests as lines of JSON on its input, answers on its output.

The array of an answer is in a block of shared memory, the file that the process finds as its standard error.

A request may take the computing time and the memory that it states; the kernel ends a process that takes more
time, even inside of a library's loop.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from miue.common.errors import MiueError, error_to_json
from miue.io.formats.base import bag_error
from miue.io.formats.block import Block
from miue.io.formats.hdf5 import read_parts
from miue.io.formats.open import contents_here, rows_here

MEMORY = 1 << 30  # bytes for what a file says of itself; features may take half of the machine's memory
NOTHING = np.zeros(0)
Answer = tuple[dict[str, Any], np.ndarray]


def main() -> None:
    """Answer requests until the input ends."""
    h5py.get_config()  # loads what HDF5 loads at first use
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    block, nowhere = Block(os.dup(sys.stderr.fileno())), os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what a library prints is no answer
        os.dup2(nowhere, stream.fileno())
    with suppress(BrokenPipeError, KeyboardInterrupt):
        _send(answers, {}, NOTHING)
        for line in sys.stdin.buffer:
            request = json.loads(line)
            path = Path(request["path"])
            try:
                with _limited(request["seconds"], _half_of_memory() if request["what"] == "rows" else MEMORY):
                    if request["folder"]:
                        os.chdir(request["folder"])
                    answer, array = ANSWERS[request["what"]](path, request["how"], block)
                    if not block.holds(array):
                        block.place(array.shape, array.dtype)[...] = array
            except MiueError as error:
                answer, array = {"error": error_to_json(error)}, NOTHING
            except Exception as error:  # a damaged file may make a library raise any
                refused = bag_error(path, "a whole file", str(error).split("\n")[0] or type(error).__name__)
                answer, array = {"error": error_to_json(refused)}, NOTHING
            _send(answers, answer, array)


def _contents(path: Path, how: dict[str, Any], _: Block) -> Answer:
    contents = contents_here(path, **how)
    values = {one.name: getattr(contents, one.name) for one in fields(contents)}
    values |= {"path": str(path), "dtype": contents.dtype.str, "coords": contents.coords is not None}
    return values, NOTHING if contents.coords is None else contents.coords


def _rows(path: Path, how: dict[str, Any], block: Block) -> Answer:
    return {}, rows_here(path, **how, place=block.place)


def _parts(path: Path, how: dict[str, Any], _: Block) -> Answer:
    attributes, array = read_parts(path, **how)
    plain = {name: {key: _plain(value) for key, value in of.items()} for name, of in attributes.items()}
    return {"attributes": plain}, array


ANSWERS = {"contents": _contents, "rows": _rows, "parts": _parts}


def _plain(value: Any) -> Any:
    """Return the value of an attribute as JSON has it: a number, a text, or a list of them."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _send(answers: BinaryIO, answer: dict[str, Any], array: np.ndarray) -> None:
    head = {**answer, "array_shape": array.shape, "array_dtype": array.dtype.str}
    answers.write(json.dumps(head).encode() + b"\n")
    answers.flush()


@contextmanager
def _limited(seconds: float, memory: int) -> Iterator[None]:
    """End this process where the block takes more computing time, refuse it more memory; where the system can."""
    timed = hasattr(signal, "setitimer")
    _limit_memory(memory)
    if timed:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process; whoever started it may have ignored it
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory(memory: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = taken + memory
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))


def _half_of_memory() -> int:
    if not hasattr(os, "sysconf"):
        return MEMORY
    return max(MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


if __name__ == "__main__":
    main()
