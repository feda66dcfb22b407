"""The commands, one file each or for a group, and the order in which help lists them."""

from __future__ import annotations

from typing import Annotated

import typer

import miue
from miue.cli.calibrate import calibrate, decide
from miue.cli.check import check_app
from miue.cli.choose import choose
from miue.cli.cross_validate import compare, cross_validate
from miue.cli.demo import demo
from miue.cli.evaluate import evaluate
from miue.cli.export import export_app
from miue.cli.flags import HELP_NAMES, Command, Commands
from miue.cli.hub import hub_app
from miue.cli.inspect import inspect
from miue.cli.make import data_make
from miue.cli.monitor import monitor
from miue.cli.pack import data_pack, data_split
from miue.cli.patch_labels import data_patch_labels
from miue.cli.predict import merge, predict
from miue.cli.report import report
from miue.cli.slides import data_shift, data_tile
from miue.cli.train import train
from miue.cli.view import view
from miue.cli.worklist import worklist
from miue.common.text import say

app = typer.Typer(
    name="miue",
    cls=Commands,
    epilog="Start with: miue demo. Or: miue data make digits-bags --out store; miue train store --out run; "
    "miue predict run store --out predictions; miue evaluate predictions.",
    no_args_is_help=True,
    context_settings=HELP_NAMES,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Make and pack bag stores, cut slides, draw splits.", no_args_is_help=True)


def show_version(is_asked: bool) -> bool:
    """Print the version and end, where it is asked for."""
    if is_asked:
        say(f"miue {miue.__version__}")
        raise typer.Exit
    return is_asked


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Train on bag labels; predict bags and instances with their uncertainty."""


for name, command in (
    ("make", data_make),
    ("tile", data_tile),
    ("pack", data_pack),
    ("split", data_split),
    ("shift", data_shift),
    ("patch-labels", data_patch_labels),
):
    data_app.command(name, cls=Command)(command)

for heading, commands in (
    ("Get started", (demo, inspect, train, predict, merge, evaluate, report)),
    ("Decide", (calibrate, decide, worklist, view, monitor)),
    ("Compare models", (choose, cross_validate, compare)),
):
    for command in commands:
        app.command(command.__name__.replace("_", "-"), cls=Command, rich_help_panel=heading)(command)
app.add_typer(check_app, name="check", rich_help_panel="Compare models")
app.add_typer(data_app, name="data", rich_help_panel="Your data")
app.add_typer(export_app, name="export", rich_help_panel="Share")
app.add_typer(hub_app, name="hub", rich_help_panel="Share")
