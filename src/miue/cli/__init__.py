"""The command line. Heavy modules are imported where they are used, so that --help answers at once."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import tempfile
import warnings
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from typer import Typer

from miue.cli.app import app
from miue.cli.flags import Interrupted
from miue.common.errors import NO_ROOM, ConfigError, MiueError, StorageError, memory_shortage, not_stated
from miue.common.processes import interrupts_raised

_formatwarning = warnings.formatwarning


def main() -> None:
    """Run the command line of miue."""
    run_commands(app, "miue")


def run_commands(commands: Typer, program: str) -> None:
    """Run the command that ``sys.argv`` gives, and end the process.

    An error that a user can mend is one sentence and exit status 2, an interrupt 130, 143 if by
    SIGTERM, or 129 if by SIGHUP. Any other, as in a network of one's own, is a traceback.

    Args:
        commands: a Typer app whose class is ``miue.cli.flags.Commands``.
        program: what the messages begin with.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name may have letters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = _as_sentence
    try:
        with interrupts_raised():
            _refuse_removed_folder()
            _refuse_undecodable_arguments()
            commands()
    except MiueError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt) as error:
        interrupted = error if isinstance(error, Interrupted) else Interrupted(error)
        print(f"{program}: interrupted: {interrupted}", file=sys.stderr)
        sys.exit(interrupted.status)
    except Exception as error:
        from miue.common.tasks import WorkerError

        if (short := memory_shortage(error)) is not None:
            print(f"{program}: error: {short}", file=sys.stderr)
            sys.exit(2)
        if isinstance(error, WorkerError):  # the traceback of this process says nothing more
            print(f"{program}: error: {error}", file=sys.stderr)
            sys.exit(1)
        said = _error_of_system(error)
        if said is None:
            raise
        print(f"{program}: error: {said}", file=sys.stderr)
        sys.exit(2)
    finally:  # what happens after the command has ended is no error of it
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


def _refuse_removed_folder() -> None:
    """Raise where the command runs in a folder that is gone, in which torch would end the process.

    Raises:
        StorageError: it is.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise StorageError(
            item="the folder in which the command runs",
            wanted="one that is there",
            got="one that was removed",
            fix="change to another",
        ) from error


def _refuse_undecodable_arguments() -> None:
    """Raise where an argument is not in UTF-8, or is read as something else: no table or JSON can hold it.

    Raises:
        ConfigError: one is not.
    """
    encoding = sys.getfilesystemencoding()
    for argument in sys.argv[1:]:
        if os.fsencode(argument) != argument.encode("utf-8", "surrogatepass"):
            raise ConfigError(
                item=f"argument {argument!r}",
                wanted="text in UTF-8",
                got="another encoding, such as Latin-1" if encoding == "utf-8" else f"a system set to {encoding}",
                fix="rename the file or folder" if encoding == "utf-8" else "set PYTHONUTF8=1",
            )


def _error_of_system(error: Exception) -> StorageError | None:
    """Return what to say of an error of the operating system, wherever it was met; None for any other."""
    cause = error.__context__
    if isinstance(error, RuntimeError) and isinstance(cause, OSError) and cause.errno == errno.ELOOP:
        error = cause  # pathlib, before Python 3.13
    if not isinstance(error, OSError):
        return None
    if error.filename is not None:  # a path that cannot be looked at
        return not_stated(Path(os.fsdecode(error.filename)), error)
    if error.errno in NO_ROOM:
        return not_stated("the standard output", error)
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # for which libraries have words of their own
        return StorageError(
            item="the folder of temporary files",
            wanted="a folder that can be written",
            got="none",
            fix="set TMPDIR to one",
        )
    return None


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that is closed, as a service may leave them.

    Else the next file that is opened gets its number, messages to an error output that is not there go to the
    standard output, and workers cannot start.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _as_sentence(message: Warning | str, category: type[Warning], *where: Any, **line: Any) -> str:
    """Return a warning to a user as a sentence, and one to a programmer with the line of code."""
    return (
        f"Warning: {message}\n" if category is UserWarning else _formatwarning(message, category, *where, **line)
    )


__all__ = ["app", "main", "run_commands"]
