"""Bag files as all of miue reads them: those of HDF5 and of Zarr in a process of their own, others in this one.

One damaged bit makes the HDF5 library loop for ever, deaf to signals that Python handles, or crash, and chunks of
Zarr may claim to become any number of bytes. The process apart is refused more memory, and ends itself where a
file takes more computing time than any whole one; the file is named, the next one gets a new process.

A request is a line of JSON, and so is its answer; its array is in memory that both processes share
(``miue.io.formats.serve``), from which it is copied.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Shaped

from miue.common.array_files import bytes_in
from miue.common.errors import StorageError, error_from_json
from miue.common.files import open_file
from miue.common.processes import child_environment, describe_exit
from miue.io.formats.base import STORE, Contents, bag_error, ending_of
from miue.io.formats.beside import with_positions_beside
from miue.io.formats.block import Block
from miue.io.formats.grid import grid_note, repeats_note
from miue.io.formats.open import contents_here, rows_here

ENDINGS = (".h5", ".hdf5")
SECONDS = 10.0  # of computing time that any file may take
BYTES_PER_SECOND = 20e6  # of the file, in further time: the slowest compression met reads four times as much
OUT_OF_TIME = tuple(getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name))
SERVER = ("-P", "-m", "miue.io.formats.serve")  # -P: nothing is imported from the current folder


def contents_of(path: Path, microns_per_pixel: float | None = None) -> Contents:
    """Return what the bag file at ``path`` holds, with what lies beside it.

    Args:
        path: a file with one of the endings of ``READERS``, a folder of images, or a table in a SpatialData store.
        microns_per_pixel: of level 0, for files whose coords are in µm; without it these are left out.

    Raises:
        DataError: not such a file, damaged, or of parts that do not fit together or to what lies beside it.
        StorageError: the process that reads files of HDF5 and Zarr cannot be started.
    """
    if _is_apart(path):
        answer, array = _ask(path, "contents", microns_per_pixel=microns_per_pixel)
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in answer.items()
        }
        known |= {"path": path, "dtype": np.dtype(answer["dtype"]), "coords": array if answer["coords"] else None}
        contents = Contents(**known)
    else:
        contents = contents_here(path, microns_per_pixel)
    contents = with_positions_beside(contents, read_hdf5_parts)
    coords, patch_size = contents.coords, contents.patch_size
    if coords is None:
        return replace(contents, patch_size=None)
    notes = [grid_note(coords, patch_size) if patch_size else "", repeats_note(coords)]
    return replace(contents, notes=(*contents.notes, *filter(None, notes)))


def read_rows(
    path: Path, start: int, stop: int, *, statistics: bool = False, size: int | None = None
) -> Shaped[np.ndarray, "n *shape"]:
    """Return the instances from ``start`` up to ``stop`` in their normal form.

    float16, float32 and bytes stay what they are, all else becomes float32. A leading axis of one is left
    away; the crops of a video's clip, (T, crops, D), are averaged. With ``statistics``, return the image
    statistics beside them, float32. ``size`` is the number of instances that the file had when it was listed.

    Raises:
        DataError: not a bag file, a damaged one, or one with another number of instances than ``size``.
        StorageError: the process that reads files of HDF5 and Zarr cannot be started.
    """
    if _is_apart(path):
        return _ask(path, "rows", start=int(start), stop=int(stop), statistics=statistics, size=size)[1]
    return rows_here(path, start, stop, statistics=statistics, size=size)


def read_hdf5_parts(
    path: Path, names: Sequence[str], array: str = ""
) -> tuple[dict[str, dict[str, Any]], Shaped[np.ndarray, "..."]]:
    """Return the attributes of some datasets of an HDF5 file by their names, and one of these datasets.

    Args:
        path: the file.
        names: of datasets.
        array: which of them is read whole; "" for none, which gives an empty array.

    Raises:
        StorageError: a file that cannot be read or has no such dataset, or no process to read it in.
        DataError: a dataset that is none, not whole, or stored in another file.
    """
    answer, values = _ask(path, "parts", names=list(names), array=array)
    return {
        name: {key: _value(one) for key, one in of.items()} for name, of in answer["attributes"].items()
    }, values


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
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            return self._answer()
        except (EOFError, ConnectionError):
            self._process = None
            process.kill()  # where it closed its output and goes on
            raise ReadingProcessEnded(_close(process)) from None
        except BaseException:  # Ctrl-C among them: what it still answers is no answer to the next request
            self.end()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        """Return a process that is ready to be asked."""
        got = ""
        self._block = Block()
        try:
            process = subprocess.Popen(
                [sys.executable or "python", *SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._block.file,  # where a process is handed a file on every system
                bufsize=0,
                start_new_session=True,
                env=child_environment(1),
            )
            self._answers = BufferedReader(process.stdout)  # type: ignore[type-var]
            self._answer()
            return process
        except OSError as error:
            got = str(error)
        except EOFError:
            got = f"exit status {_close(process)}"
        except BaseException:
            process.kill()
            _close(process)
            raise
        raise StorageError(
            item="the process that reads files of HDF5 and Zarr",
            wanted=f"{sys.executable} {' '.join(SERVER)} to start",
            got=got,
            fix="run this command to see why; it needs the packages of miue, and leave to start processes",
        )

    def _answer(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return the next answer of the process."""
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer = json.loads(line)
        try:
            array = self._block.view(tuple(answer.pop("array_shape")), np.dtype(answer.pop("array_dtype")))
        except ValueError:
            raise EOFError from None
        return answer, array.copy()

    def _forget(self) -> None:
        """Let a fork, to which the process does not belong, start one of its own."""
        process, self._process, self._lock = self._process, None, Lock()
        if process is not None:
            process.returncode = 0  # nothing to wait for
            _close(process)


class ReadingProcessEnded(Exception):
    """The process ended while it read a file.

    Args:
        status: its exit status; negative for the signal that ended it.
    """

    def __init__(self, status: int) -> None:
        self.took_too_long = -status in OUT_OF_TIME
        super().__init__(f"a crash of the library ({describe_exit(status)})")


def _close(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a process after it ended; its pipes are closed."""
    status = process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
    return status


_process = ReadingProcess()


def _is_apart(path: Path) -> bool:
    """Return whether a bag is read in the process apart: a file of HDF5, or a table in a folder of Zarr."""
    ending = ending_of(path)
    return ending == STORE or (ending in ENDINGS and not path.is_dir())


def _ask(path: Path, what: str, **how: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Return what the process answers about a file."""
    if not (path.is_dir() and ending_of(path) == STORE):
        open_file(path, f"bag file {str(path)!r}").close()
    seconds = SECONDS + bytes_in(path) / BYTES_PER_SECOND
    folder = "" if path.is_absolute() else str(Path.cwd())
    request = {"what": what, "path": str(path), "folder": folder, "seconds": seconds, "how": how}
    try:
        answer, array = _process.ask(request)
    except ReadingProcessEnded as ended:
        got = (
            f"no end of reading it after {seconds:.0f} s of computing time" if ended.took_too_long else str(ended)
        )
        library = "Zarr" if ending_of(path) == STORE else "the HDF5 library"
        raise bag_error(path, f"a file that {library} can read", got) from ended
    if "error" in answer:
        raise error_from_json(answer["error"])
    return answer, array


def _value(value: Any) -> Any:
    """Return the value of an attribute, of which lists were arrays."""
    return np.asarray(value) if isinstance(value, list) else value
