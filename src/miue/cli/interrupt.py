"""Ctrl-C, SIGTERM, SIGHUP or a full disk: one line that says what was kept and how to go on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from miue.common.errors import WriteError, no_room_behind
from miue.common.interrupts import signal_of
from miue.common.text import is_or_are, plural

NOTHING = "nothing half-written was left; give the same command again"


class Interrupted(Exception):
    """An interrupt, with what to say of it; Typer ends a plain ``KeyboardInterrupt`` without a word.

    Attributes:
        status: with which the command exits: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        super().__init__(str(interrupt) or NOTHING)
        self.status = 128 + (signal_of(type(interrupt)) or signal.SIGINT)


@contextmanager
def saying_what_is_kept(say: Callable[[], str]) -> Iterator[None]:
    """Let an interrupt of the block, or a full disk, carry what ``say`` returns, where that is not empty."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise type(error)(say()) from error
    except WriteError as error:
        if no_room_behind(error) is None or not (said := say()):
            raise
        raise error.replaced(fix=f"free space; {said}") from error


@contextmanager
def saying_what_is_written(out: Path | None) -> Iterator[None]:
    """Let an interrupt of the block that carries nothing say that ``out`` is whole, if it was written meanwhile.

    The same command would be refused, since the output is there. It is for outputs that get their name once they
    are whole; what is written piece by piece has words of its own (``saying_what_is_kept``).
    """
    is_written = written_from_now(out)
    try:
        yield
    except KeyboardInterrupt as error:
        if str(error) or not is_written():
            raise
        raise type(error)(f"{out} is written, and whole; the same command is not needed again") from error


def written_from_now(out: Path | None) -> Callable[[], bool]:
    """Return what says whether another file or folder than now, or a first one, has the name ``out``."""
    before = _identity(out)
    return lambda: _identity(out) not in (None, before)


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return what tells a file or folder from another of its name; None where there is none."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """End without a message at an interrupt of the block, which another process reports."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise SystemExit(Interrupted(error).status) from error


def last_states(run: Path) -> dict[Path, int]:
    """Return the state after the last epoch of each training in ``run``, and when it was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in run.rglob("last.safetensors")}


def kept_epochs(run: Path, replaced: Mapping[Path, int] | None = None) -> str:
    """Return how much of a training is kept, and how to go on.

    Args:
        run: folder of the training.
        replaced: ``last_states`` before it, which are not its own, where it was to replace them (--overwrite).
    """
    from miue.training.checkpoint import epochs_in

    of_before = (replaced or {}).items()
    epochs = sum(epochs_in(path) for path, written in last_states(run).items() if (path, written) not in of_before)
    if not epochs:
        return "no epoch was finished; give the same command again"
    how = "--resume" if replaced is None else "--resume instead of --overwrite"
    return f"{_kept(epochs, 'finished epoch')} in {run}; the same command with {how} goes on"


def kept_runs(out: Path, folds: int, seeds: Sequence[int]) -> str:
    """Return how much of a cross-validation is kept, and how to go on."""
    kept = f"{finished_runs(out, folds, seeds)} and the epochs of those under way are kept in {out}"
    return f"{kept}; the same command goes on"


def finished_runs(out: Path, folds: int, seeds: Sequence[int]) -> str:
    """Return how many runs of a cross-validation are finished: "2 of 6 runs"."""
    whole = sum(seed in seeds for seed in finished_seeds(out))
    return f"{whole:,} of {folds * len(seeds):,} runs"


def finished_seeds(out: Path) -> list[int]:
    """Return the seed of each finished run of a cross-validation."""
    names = [path.parent.name.removeprefix("seed_") for path in out.glob("fold_*/seed_*/metrics.json")]
    return [int(name) for name in names if name.isdecimal()]


def kept_bags(out: Path) -> str:
    """Return how much of a packing is kept, and how to go on; nothing before it begins or once it has ended."""
    packed = out.parent / f".{out.name}.packing" / "checksums.csv"
    if not packed.exists():
        return ""
    bags = packed.read_bytes().count(b"\n")
    return f"{_kept(bags, 'packed bag')}; the same command goes on"


def _kept(count: int, noun: str) -> str:
    return f"{plural(count, noun)} {is_or_are(count)} kept"
