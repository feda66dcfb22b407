"""Commands run as a user runs them."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from miue.cli import app, main
from miue.common.errors import MiueError


def run(*arguments: object, code: int = 0) -> str:
    """Run a command that must end with ``code``; return what it prints, or the error that it ends with."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        if code and isinstance(result.exception, MiueError):
            return str(result.exception)
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def fail(*arguments: object) -> str:
    """Run a command that must end with exit status 2 and return what it says on standard error."""
    said = io.StringIO()
    given = ["miue", *map(str, arguments)]
    with patch.object(sys, "argv", given), redirect_stderr(said), pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    return said.getvalue()
