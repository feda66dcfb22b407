"""Memory that does not suffice, of this machine or of an accelerator, said in a sentence."""

from __future__ import annotations

import errno
import math
import re

from miue.common.errors import MiueError, causes_of

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
