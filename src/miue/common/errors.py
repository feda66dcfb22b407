"""The one family of exceptions, each with the four parts a person needs to act on it."""

from __future__ import annotations

import difflib
import errno
import math
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from miue.common.folder_kinds import kind_of
from miue.common.text import shortened, visible

if TYPE_CHECKING:
    from pydantic import ValidationError


Name = TypeVar("Name", bound=Hashable)
Kind = TypeVar("Kind", bound="MiueError")

SAME_FILES = "give every machine the same files at the same paths"
LONGEST_PART = 600  # characters of each of the four parts in a message
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a disk is full, a quota is used up, or a file may not grow further."""
DENIED = (errno.EACCES, errno.EPERM)
"""What the system says to a user who may not open something."""
MAY_READ = "see who may read it"


class MiueError(Exception):
    """What was wanted, what came, which item, and what to do about it.

    Args:
        item: the thing at fault, named so that it can be found ("bag 'slide_17' (row 3 of bags.csv)").
        wanted: what would have been right.
        got: what came instead.
        fix: what the reader can do now.

    The message is one line, at most ``LONGEST_PART`` characters of each part; control characters in names and
    cells are shown, not passed on to a terminal.
    """

    def __init__(self, *, item: str, wanted: str, got: str, fix: str) -> None:
        self.item, self.wanted, self.got, self.fix = item, wanted, got, fix
        parts = [shortened(visible(str(part)), LONGEST_PART) for part in (item, wanted, got, fix)]
        super().__init__("{}: expected {}, got {}; {}".format(*parts))

    def replaced(self, **parts: str) -> Self:
        """Return the same error with another item, fix, or other part, to be raised from this one."""
        kept = {"item": self.item, "wanted": self.wanted, "got": self.got, "fix": self.fix}
        return _build_again(type(self), **{**kept, **parts})

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process builds it again, such as the one that waits for a worker of joblib."""
        return _build_again, (type(self), self.item, self.wanted, self.got, self.fix), self.__dict__


def _build_again(kind: type[Kind], item: str, wanted: str, got: str, fix: str) -> Kind:
    error = kind.__new__(kind)  # whatever a subclass asks for
    MiueError.__init__(error, item=item, wanted=wanted, got=got, fix=fix)
    return error


class DataError(MiueError, ValueError):
    """Bags, labels or tables that cannot be used as they are."""


class ConfigError(MiueError, ValueError):
    """An option, name or combination that does not exist or does not fit."""


class ModelError(MiueError):
    """A saved model that cannot be read, or data that the model was not made for."""


class StorageError(MiueError):
    """A file or folder that cannot be read or written."""


class WriteError(StorageError):
    """A file or folder that cannot be written, which ends what goes on after other errors."""


KINDS = {kind.__name__: kind for kind in (DataError, ConfigError, ModelError, StorageError, WriteError)}


def error_to_json(error: MiueError) -> dict[str, str]:
    """Return kind and parts of an error as JSON values, for another process."""
    parts = {"item": error.item, "wanted": error.wanted, "got": error.got, "fix": error.fix}
    return {"kind": type(error).__name__, **parts}


def error_from_json(content: Mapping[str, str]) -> MiueError:
    """Return the error that ``error_to_json`` describes."""
    parts = {name: part for name, part in content.items() if name != "kind"}
    return KINDS.get(content["kind"], MiueError)(**parts)


def cannot_write(path: Path, error: Exception) -> WriteError:
    """Return the error for a file or folder that could not be written, whatever the library that tried."""
    number, at_fault = getattr(error, "errno", None), getattr(error, "filename", None)
    got = os.strerror(number) if number else str(error)
    if at_fault and str(at_fault) != str(path):
        got = f"{got}: {os.fsdecode(at_fault)!r}"
    fix = "choose another place, or see who may write there"
    return WriteError(
        item=f"{str(path)!r}",
        wanted="to write it whole",
        got=got,
        fix=f"{'free space or choose another place' if number in NO_ROOM else fix}; nothing half-written was left",
    )


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def no_room_behind(error: BaseException) -> OSError | None:
    """Return the full disk that a library met before it raised ``error``, however it words that; None for another.

    >>> no_room_behind(OSError(28, "No space left on device")), no_room_behind(ValueError("a batch without bags"))
    (OSError(28, 'No space left on device'), None)
    """
    for cause in causes_of(error):
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return cause
        if "database or disk is full" in str(cause):  # as SQLite says it
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None


def is_denied(error: BaseException) -> bool:
    """Return whether the system refused to open something, as it or a library words that.

    >>> is_denied(PermissionError(13, "Permission denied")), is_denied(ValueError("no table"))
    (True, False)
    """
    number = getattr(error, "errno", None)
    return (
        number in DENIED or re.search(rf"\berrno(?: =)? {errno.EACCES}\b", str(error), re.IGNORECASE) is not None
    )


def no_such_file(item: str, fix: str = "check the path") -> StorageError:
    """Return the error for a file that is not there."""
    return StorageError(item=item, wanted="an existing file", got="no such file", fix=fix)


def not_shared(path: Path | str, wanted: str, more: int = 0) -> StorageError:
    """Return the error for a file that another machine of a cluster has, and so many more."""
    return StorageError(
        item=repr(str(path)),
        wanted=wanted,
        got=f"no such file on {platform.node()!r}{f', and {more:,} more' if more else ''}",
        fix=SAME_FILES,
    )


def may_not_read(item: str, wanted: str = "to read it") -> StorageError:
    """Return the error for what is there, and may not be read by the user."""
    return StorageError(item=item, wanted=wanted, got=os.strerror(errno.EACCES), fix=MAY_READ)


def not_readable(item: str, wanted: str, error: Exception, fix: str) -> StorageError:
    """Return the error for a file that a library could not read, or that is damaged, in its own words.

    A file that the user may not read is neither damaged nor to be made again.
    """
    if is_denied(error):
        return may_not_read(item, wanted)
    text = first_problem(error) if hasattr(error, "errors") else str(error).strip().split("\n")[0]
    return StorageError(item=item, wanted=wanted, got=shortened(text or type(error).__name__), fix=fix)


def not_a_folder(path: Path, wanted: str, fix: str = "check the path") -> StorageError:
    """Return the error for a folder that is not there, is a file, or lacks what makes it the one wanted."""
    try:
        got = folder_name(path) if path.is_dir() else "a file" if path.exists() else "no such folder or file"
    except OSError as error:
        return not_stated(path, error)
    return StorageError(item=repr(str(path)), wanted=wanted, got=got, fix=fix)


def folder_name(path: Path) -> str:
    """Return what a folder is, for a message about one that is something else."""
    kind = kind_of(path)
    return "a folder without it" if kind is None else kind.name


def not_stated(path: Path | str, error: OSError) -> StorageError:
    """Return the error for a path of which the system does not say what is there."""
    return StorageError(
        item=repr(str(path)),
        wanted="a path that can be used",
        got=error.strerror or str(error),
        fix=MAY_READ if is_denied(error) else "check the path",
    )


def missing_column(item: str, wanted: str, columns: Iterable[str], fix: str) -> DataError:
    """Return the error for a table that lacks a column."""
    return DataError(item=item, wanted=wanted, got=f"columns {first_few(columns, 12)}", fix=fix)


def lacking(item: str, wanted: str, fix: str = "check the file") -> DataError:
    """Return the error for data of which something must be there and nothing is."""
    return DataError(item=item, wanted=wanted, got="none", fix=fix)


def repeated(item: str, wanted: str, count: int | str, fix: str = "keep one of them") -> DataError:
    """Return the error for what is there several times and may be there once."""
    return DataError(item=item, wanted=wanted, got=f"{count}", fix=fix)


def first_repeated(names: Iterable[Name]) -> Name | None:
    """Return the first name that is there several times, None where each is there once.

    >>> first_repeated(["a", "b", "c", "b"]), first_repeated([])
    ('b', None)
    """
    counts = Counter(names)  # in the order of their first appearance
    return next((name for name, count in counts.items() if count > 1), None)


def one_of_two(item: str, got: str = "both", fix: str = "leave one out") -> ConfigError:
    """Return the error for two options of which exactly one can be used."""
    return ConfigError(item=item, wanted="one of the two", got=got, fix=fix)


def wrong_shape(item: str, wanted: str, array: Any, fix: str) -> StorageError:
    """Return the error for an array of another shape or type than it must have."""
    return StorageError(item=item, wanted=wanted, got=f"{array.dtype} {tuple(array.shape)}", fix=fix)


def out_of_range(item: str, wanted: str, got: object) -> ConfigError:
    """Return the error for a value outside of what an option can take."""
    return ConfigError(item=item, wanted=wanted, got=repr(got), fix="change the value")


def wrong_type(item: str, wanted: str, got: object, fix: str) -> ConfigError:
    """Return the error for an argument that is something else than it must be."""
    is_short = isinstance(got, str | Path | int | float) or (isinstance(got, list | tuple) and not got)
    shown = f" ({got!r})" if is_short else ""
    return ConfigError(item=item, wanted=wanted, got=f"a value of type {type(got).__name__}{shown}", fix=fix)


def first_problem(error: ValidationError | Any) -> str:
    """Return where the first problem of a record is, and what it is."""
    problem = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))


def first_few(names: Iterable[str], count: int = 3) -> str:
    """Return the first of some names, for a message that would be too long with all of them.

    >>> first_few(["a", "b", "c", "d"]), first_few(["a"])
    ('a, b, c, …', 'a')
    """
    every = list(names)
    return ", ".join([*every[:count], *(["…"] if every[count:] else [])])


def unknown_name(
    kind: str, name: object, known: Iterable[str], meant: str | None = None, fix: str = "choose one of these"
) -> ConfigError:
    """Return the error for a name that is not one of ``known``, naming ``meant`` or the nearest that is.

    Args:
        kind: of what is named.
        name: the name that does not exist.
        known: those that do.
        meant: the one that was meant, where that is known.
        fix: what to do where none of ``known`` is near.
    """
    options = sorted(known)
    word = str(name)
    part = word[: word.find(".") + 1]  # "network." says nothing about which of its options is meant
    by_word = {option.removeprefix(part).lower(): option for option in options}
    sought = word.removeprefix(part).lower()
    close = difflib.get_close_matches(sought, by_word, n=1, cutoff=0.5)
    close = close or [option for option in by_word if len(sought) > 2 and sought in option]
    meant = meant or (by_word[close[0]] if close else None)
    fix = f"did you mean {meant!r}?" if meant else fix
    return ConfigError(item=f"{kind} {name!r}", wanted=f"one of {', '.join(options)}", got=repr(name), fix=fix)


@contextmanager
def noting_when(when: Callable[[], str]) -> Iterator[None]:
    """Add to an error that is not miue's own when it was met; a traceback ends with it."""
    try:
        yield
    except MiueError:
        raise
    except Exception as error:
        error.add_note(when())
        raise


def import_extra(module: str, item: str, extra: str) -> Any:
    """Return a module of a package that an extra of miue installs.

    Args:
        module: its import path.
        item: what needs it, for the message.
        extra: name of the extra.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import_module(module.partition(".")[0])
        return import_module(module)
    except ImportError as error:
        wanted = f"the package {module.partition('.')[0]}"
        raise ConfigError(item=item, wanted=wanted, got=str(error), fix=f"pip install 'miue[{extra}]'") from error


SAID_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "STATUS_ALLOC_FAILED",
)
"""How torch, and what it calls, say that there is no memory left."""
SAID_OF_ACCELERATORS = ("CUDA", "CUBLAS", "HIP", "MPS", "XPU")


def memory_shortage(error: BaseException) -> MiueError | None:
    """Return what to say where memory did not suffice, for ``error`` or what it was raised from; None for another.

    >>> print(memory_shortage(MemoryError("Unable to allocate 4.00 GiB")))
    memory: expected enough of it, got 'Unable to allocate 4.00 GiB'; close other programs, use fewer --jobs, in \
training a smaller --set bags_per_update, or a machine with more
    >>> memory_shortage(ValueError("a batch without bags")) is None
    True
    """
    cause = next(filter(_is_of_memory, causes_of(error)), None)
    if cause is None:
        return None
    said = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    notes = [note for one in dict.fromkeys((error, cause)) for note in getattr(one, "__notes__", ())]
    when = f" {', '.join(dict.fromkeys(notes))}" if notes else ""
    of_accelerator = any(name in said for name in SAID_OF_ACCELERATORS)
    return MiueError(
        item=f"{'memory of the accelerator' if of_accelerator else 'memory'}{when}",
        wanted="enough of it",
        got=repr(said),
        fix="choose --device cpu, --precision bf16-mixed, or in training a smaller --set bags_per_update"
        if of_accelerator
        else "close other programs, use fewer --jobs, in training a smaller --set bags_per_update, or a machine "
        "with more",
    )


def bytes_asked(error: BaseException) -> int:
    """Return how many bytes NumPy or torch could not allocate; 0 where ``error`` does not say it.

    >>> bytes_asked(RuntimeError("can't allocate memory: you tried to allocate 96 bytes."))
    96
    """
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)  # of NumPy's error
    if shape is not None and dtype is not None:
        return math.prod(shape) * int(dtype.itemsize)
    found = re.search(r"tried to allocate (\d+) bytes", str(error))
    return int(found.group(1)) if found else 0


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in SAID_OF_MEMORY)
    )
