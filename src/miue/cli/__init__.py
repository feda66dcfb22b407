"""The command line. Heavy imports stand where they are used, so that --help answers at once."""

from __future__ import annotations

import sys

from miue.cli.app import app
from miue.cli.interrupt import NOTHING, Interrupted
from miue.common.errors import MiueError


def main() -> None:
    """Run the command line; an error that a user can mend is one sentence and exit status 2, an interrupt 130."""
    try:
        app()
    except MiueError as error:
        print(f"miue: error: {error}", file=sys.stderr)
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"miue: interrupted: {str(error) or NOTHING}", file=sys.stderr)
        sys.exit(130)


__all__ = ["app", "main"]
