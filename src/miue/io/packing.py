"""Packing bag files into a store: read in parallel, written one after another, resumed after a kill, verified."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from miue.bags import BagDataset
from miue.bags.arrays import check_bag
from miue.common.errors import (
    DataError,
    MiueError,
    StorageError,
    WriteError,
    cannot_write,
    lacking,
    no_room_behind,
)
from miue.common.files import atomic_file, atomic_folder, read_json, remove_temporaries, write_json
from miue.common.folder_kinds import STORE
from miue.common.outputs import locked, refuse_existing
from miue.common.tables import write_rows
from miue.common.text import tracked
from miue.io.formats.numpy_files import UNREADABLE, array_header, bytes_of
from miue.io.instances import state_of_instances
from miue.io.loaded import LeftOut
from miue.io.store import CHECKSUMS, rows_sha256, write_tables

READ_AHEAD = 256 << 20  # bytes of bags that wait to be written
WORKERS = 4
LEFT_OUT = "left_out.csv"


@dataclass(frozen=True)
class Packed:
    """What was packed.

    Attributes:
        bags: in the store.
        instances: in the store.
        resumed: bags that an earlier, interrupted run had packed.
        left_out: bags that are not in the store.
    """

    bags: int
    instances: int
    resumed: int
    left_out: tuple[LeftOut, ...]


def pack(
    bags: BagDataset,
    out: Path,
    *,
    made_by: dict[str, Any] | None = None,
    left_out: tuple[LeftOut, ...] = (),
    overwrite: bool = False,
    skip_bad: bool = False,
    progress: bool = False,
    with_split: Callable[[BagDataset], BagDataset] = lambda bags: bags,
) -> Packed:
    """Write ``bags``, whose instances are in files, to a store at ``out``.

    A run that was interrupted is continued when the same bags are packed to the same path: bags that it had
    written are checked against their checksums and kept. Everything is read back and compared in the end.

    Args:
        bags: to pack.
        out: the store.
        made_by: how it came about, for a reader.
        left_out: bags left out before, to be listed beside those that fail here.
        overwrite: replace the store that is there.
        skip_bad: leave out bags with features that are not finite or cannot be read.
        progress: show a bar with the time left.
        with_split: draws the split of the bags that are kept; those that fail here have no share in it.

    Raises:
        DataError: a bag that cannot be used, or none left.
        StorageError: ``out`` is taken, another process writes it, the disk is full, or what was written does not
            read back.
    """
    with locked(out), _errors_named(out):
        refuse_existing(out, STORE, overwrite=overwrite)
        work = out.parent / f".{out.name}.packing"
        written, missed, resumed = _write(work, bags, skip_bad=skip_bad, progress=progress)
        if not written:
            raise lacking(repr(str(out)), "at least one bag", missed[0].reason if missed else "check the folder")
        instances = _finish(work, bags, written)
        kept, missing = with_split(bags.subset(list(written))), (*left_out, *missed)
        with atomic_folder(out, STORE, overwrite=overwrite) as folder:
            if missing:
                write_rows(
                    folder / LEFT_OUT, ("bag_id", "reason"), [(entry.bag, entry.reason) for entry in missing]
                )
            write_tables(folder, kept, [digest for _, digest in written.values()], made_by or {})
            (work / "instances.npy").replace(folder / "instances.npy")  # last: nothing packed is lost
            shutil.rmtree(work, ignore_errors=True)
        return Packed(len(kept), instances, resumed, missing)


@contextmanager
def _errors_named(out: Path) -> Iterator[None]:
    """Name the store, and say of a disk that is full that the same command goes on."""
    try:
        yield
    except (OSError, WriteError) as error:
        if no_room_behind(error) is None:
            raise
        fix = "free space, then give the same command again: it goes on where it stopped"
        said = error if isinstance(error, WriteError) else cannot_write(out, error)
        raise said.replaced(item=repr(str(out)), fix=fix) from error


def _write(
    work: Path, bags: BagDataset, *, skip_bad: bool, progress: bool
) -> tuple[dict[int, tuple[int, str]], list[LeftOut], int]:
    """Write all bags; return size and checksum of each as written, those missed, and how many were there."""
    done = _begun(work, bags)
    missed: list[LeftOut] = []
    with (work / "instances.npy").open("r+b") as file:
        written, end = _verified(file, bags, done)
        resumed = len(written)
        file.seek(end)
        file.truncate()
        with atomic_file(work / CHECKSUMS) as again:  # without a line that is torn
            again.write_text("".join(_line(bag, *of_bag) for bag, of_bag in written.items()), "utf-8")
        with (work / CHECKSUMS).open("a", encoding="utf-8") as journal:
            todo = [bag for bag in range(len(bags)) if bag not in written]
            for bag, content in tracked(_read_ahead(bags, todo), "packing", shown=progress, total=len(todo)):
                if isinstance(content, MiueError):
                    if not skip_bad:
                        raise content
                    missed.append(LeftOut(bags.ids[bag], str(content)))
                    continue
                rows, digest = content
                file.write(bytes_of(rows))
                file.flush()
                journal.write(_line(bag, len(rows), digest))
                journal.flush()
                written[bag] = (len(rows), digest)
    return written, missed, resumed


def _line(bag: int, rows: int, digest: str) -> str:
    """Return the line of the journal that says that a bag was written."""
    return f"{bag},{rows},{digest}\n"


def _begun(work: Path, bags: BagDataset) -> list[tuple[int, int, str]]:
    """Return what an interrupted run of the same bags had written, or begin anew."""
    same = _description(bags)
    remove_temporaries(work)
    try:
        if read_json(work / "pack.json", what="interrupted packing") == same:
            with (work / "instances.npy").open("rb") as file:
                _check_header(file, bags)
            lines = [line.split(",") for line in (work / CHECKSUMS).read_text("utf-8").splitlines()]
            rows = [line for line in lines if len(line) == 3 and len(line[2]) == 64]
            done = [(int(bag), int(size), digest) for bag, size, digest in rows]
            return [row for row in done if 0 <= row[0] < len(bags) and row[1] == bags.sizes[row[0]]]
    except (StorageError, *UNREADABLE):
        pass  # what it left cannot be gone on with
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with (work / "instances.npy").open("wb") as file:
        file.write(_header(bags, 0))
    (work / CHECKSUMS).touch()
    write_json(work / "pack.json", same)
    return []


def _description(bags: BagDataset) -> dict[str, Any]:
    """Return what identifies this packing: bags, sizes, and the instances as they are."""
    digest = hashlib.sha256("\0".join(bags.ids).encode())
    digest.update(bags.sizes.tobytes())
    digest.update(state_of_instances(bags).encode())
    return {"bags": len(bags), "dtype": str(bags.instances.dtype), "digest": digest.hexdigest()}


def _verified(
    file: BinaryIO, bags: BagDataset, done: list[tuple[int, int, str]]
) -> tuple[dict[int, tuple[int, str]], int]:
    """Return the bags that were written whole, in the order in which they are stored, and where they end."""
    _pass_header(file)
    end, kept = file.tell(), {}
    row_bytes = int(np.prod(bags.instance_shape)) * bags.instances.dtype.itemsize
    for bag, size, digest in done:
        content = file.read(size * row_bytes)
        if hashlib.sha256(content).hexdigest() != digest:
            break
        kept[bag] = (size, digest)
        end = file.tell()
    return kept, end


def _check_header(file: BinaryIO, bags: BagDataset) -> None:
    """Raise unless the array begins with a header of these bags, whatever number of instances it states."""
    np.lib.format.read_magic(file)
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    same_rows = (shape[1:], dtype) == (tuple(bags.instance_shape), np.dtype(bags.instances.dtype))
    if not same_rows or by_column or file.tell() != len(_header(bags, 0)):
        raise ValueError("the header of other bags")


def _pass_header(file: BinaryIO) -> None:
    file.seek(0)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)


def _read_ahead(bags: BagDataset, todo: list[int]) -> Iterator[tuple[int, tuple[np.ndarray, str] | MiueError]]:
    """Yield each bag in order, read, checked and summed by several threads ahead of its use."""
    row_bytes = int(np.prod(bags.instance_shape)) * bags.instances.dtype.itemsize
    waiting: deque[tuple[int, Future[tuple[np.ndarray, str]]]] = deque()
    held, ahead = 0, iter(todo)
    with ThreadPoolExecutor(WORKERS) as pool:
        upcoming = next(ahead, None)
        while waiting or upcoming is not None:
            while upcoming is not None and (not waiting or held < READ_AHEAD):
                held += int(bags.sizes[upcoming]) * row_bytes
                waiting.append((upcoming, pool.submit(_read, bags, upcoming)))
                upcoming = next(ahead, None)
            bag, future = waiting.popleft()
            held -= int(bags.sizes[bag]) * row_bytes
            try:
                yield bag, future.result()
            except MiueError as error:
                yield bag, error


def _read(bags: BagDataset, bag: int) -> tuple[np.ndarray, str]:
    start, size = int(bags.starts[bag]), int(bags.sizes[bag])
    rows = bags.instances[start : start + size]
    check_bag(bags.ids[bag], rows, bags.instance_shape)
    if len(rows) != size:
        raise DataError(
            item=f"bag {bags.ids[bag]!r}",
            wanted=f"{size} instances, as when the folder was opened",
            got=str(len(rows)),
            fix="the file changed meanwhile; pack again",
        )
    return rows, rows_sha256(rows)


def _header(bags: BagDataset, rows: int) -> bytes:
    return array_header(np.dtype(bags.instances.dtype), (rows, *bags.instance_shape))


def _finish(work: Path, bags: BagDataset, written: dict[int, tuple[int, str]]) -> int:
    """Complete the header of the instances, read all back, and return how many there are."""
    instances = sum(size for size, _ in written.values())
    with (work / "instances.npy").open("r+b") as file:
        file.write(_header(bags, instances))
        file.flush()
        os.fsync(file.fileno())  # takes long for many bags, of which none is to be lost meanwhile
    stored = np.load(work / "instances.npy", mmap_mode="r", allow_pickle=False)
    end = 0
    for bag, (size, digest) in written.items():
        if rows_sha256(stored[end : end + size]) != digest:
            raise StorageError(
                item=f"bag {bags.ids[bag]!r} in {str(work)!r}",
                wanted="what was written to be read back",
                got="other bytes",
                fix="check the disk, and pack again",
            )
        end += size
    return instances
