"""``miue check``: what a network with its method learns, tested. Each check is a file; this one lists them."""

from __future__ import annotations

import typer

from miue.cli.check_mil import check_mil
from miue.cli.check_vanishing import check_vanishing
from miue.cli.help import Command, Commands

check_app = typer.Typer(
    cls=Commands,
    help="Run diagnostics on a network and method.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for name, command in (("mil", check_mil), ("vanishing", check_vanishing)):
    check_app.command(name, cls=Command)(command)
