"""The process that opens files of HDF5 and Zarr, as seen by who asks it.

It is started once, and again after a file ends it.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import Any

import numpy as np

from miue.common.child_processes import child_environment, describe_exit
from miue.common.errors import StorageError

HEAD = struct.Struct("<QQ")  # bytes of the JSON that follows, and of the array behind it
MOST_JSON = 1 << 26
PIPE_BYTES = 1 << 20
OUT_OF_TIME = tuple(getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name))


class ReadingProcessEnded(Exception):
    """The process ended while it read a file.

    Args:
        status: its exit status; negative for the signal that ended it.
    """

    def __init__(self, status: int) -> None:
        self.took_too_long = -status in OUT_OF_TIME
        super().__init__(f"a crash of the library ({describe_exit(status)})")


class ReadingProcess:
    """A process that reads files for this one, one at a time; any thread may ask.

    It is started where it is first needed, and ends with this process, however that ends: its standard input is
    then closed. It gets no signals of the terminal; where the wait for an answer is interrupted, it is ended.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # it is the parent's, and answers the parent

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
        """Return the answer to a request: a record, and an array, empty where there is none.

        Raises:
            ReadingProcessEnded: the process ended, twice where it had served other requests before.
            StorageError: it cannot be started.
        """
        with self._lock:
            fresh = self._process is None
            try:
                return self._asked(request)
            except ReadingProcessEnded as ended:
                if fresh or ended.took_too_long:
                    raise
            return self._asked(request)  # what crashed may have been left by the file before

    def end(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            _close(process)

    def _asked(self, request: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
        if self._process is None:
            self._process = _started()
        process = self._process
        try:
            if not os.path.isabs(request["path"]):  # noqa: PTH117
                request = {**request, "folder": os.getcwd()}  # noqa: PTH109
            _send(process, json.dumps(request).encode() + b"\n")
            return _answer(process)
        except (EOFError, BrokenPipeError, ConnectionError):
            self._process = None
            process.kill()  # where it closed its output and goes on
            raise ReadingProcessEnded(_close(process)) from None
        except BaseException:  # Ctrl-C among them: what it still answers is no answer to the next request
            self.end()
            raise

    def _forget(self) -> None:
        """Let a fork, to which the process does not belong, start one of its own."""
        process, self._process, self._lock = self._process, None, Lock()
        if process is not None:
            process.returncode = 0  # nothing to wait for
            _close(process)


def _started() -> subprocess.Popen[bytes]:
    """Return a process that is ready to be asked.

    Raises:
        StorageError: it cannot be started.
    """
    module = "miue.io.formats.serve"
    try:
        process = subprocess.Popen(
            [sys.executable or "python", "-P", "-m", module],  # -P: nothing is imported from the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            env=child_environment(1),
        )
    except OSError as error:
        raise _not_started(str(error)) from error
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        _answer(process)
    except BaseException as error:
        process.kill()
        status = _close(process)
        if isinstance(error, EOFError):
            raise _not_started(f"exit status {status}") from None
        raise
    return process


def _close(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a process after it ended; its pipes are closed."""
    status = process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    return status


def _not_started(got: str) -> StorageError:
    return StorageError(
        item="the process that reads files of HDF5 and Zarr",
        wanted=f"{sys.executable} -P -m miue.io.formats.serve to start",
        got=got,
        fix="run this command to see why; it needs the packages of miue, and leave to start processes",
    )


def _send(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    rest = memoryview(content)
    while rest:
        rest = rest[process.stdin.write(rest) :]


def _answer(process: subprocess.Popen[bytes]) -> tuple[dict[str, Any], np.ndarray]:
    """Return the next answer of the process.

    Raises:
        EOFError: it ended, or wrote what is no answer.
    """
    head = bytearray(HEAD.size)
    _receive(process, memoryview(head))
    length, held = HEAD.unpack(head)
    if length > MOST_JSON:
        raise EOFError
    text = bytearray(length)
    _receive(process, memoryview(text))
    try:
        answer = json.loads(text)
        shape, dtype = tuple(answer.pop("array_shape", (0,))), np.dtype(answer.pop("array_dtype", "f8"))
    except (ValueError, TypeError, AttributeError):
        raise EOFError from None
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != held:
        raise EOFError
    array = np.empty(shape, dtype)
    _receive(process, array.reshape(-1).view(np.uint8).data)
    return answer, array


def _receive(process: subprocess.Popen[bytes], into: memoryview) -> None:
    assert process.stdout is not None
    while into:
        count = process.stdout.readinto(into)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        into = into[count:]
