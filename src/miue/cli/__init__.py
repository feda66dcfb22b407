"""The command line. Heavy imports stand where they are used, so that --help answers at once."""

from __future__ import annotations

import sys

from typer import Typer

from miue.cli.app import app
from miue.cli.interrupt import NOTHING, Interrupted, repeat_dropped_interrupts
from miue.common.errors import MiueError


def main() -> None:
    """Run the command line of miue."""
    run_commands(app, "miue")


def run_commands(commands: Typer, program: str) -> None:
    """Run the command that ``sys.argv`` gives, and end the process.

    An error that a user can mend is one sentence and exit status 2, an interrupt 130.

    Args:
        commands: a Typer app whose class is ``miue.cli.help.Commands``.
        program: what the messages begin with.
    """
    repeat_dropped_interrupts()
    try:
        commands()
    except MiueError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"{program}: interrupted: {str(error) or NOTHING}", file=sys.stderr)
        sys.exit(130)


__all__ = ["app", "main", "run_commands"]
