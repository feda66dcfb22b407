"""The command line. Heavy imports stand where they are used, so that --help answers at once."""

from __future__ import annotations

import sys

from miue.cli.app import app
from miue.errors import MiueError


def main() -> None:
    """Run the command line; an error that a user can mend is one sentence and exit status 2."""
    try:
        app()
    except MiueError as error:
        print(f"miue: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("miue: interrupted; a training continues with the same command and --resume", file=sys.stderr)
        sys.exit(130)


__all__ = ["app", "main"]
