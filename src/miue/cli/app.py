"""The commands, one file each, and the order in which help lists them."""

from __future__ import annotations

import typer

from miue.cli.calibrate import calibrate, decide
from miue.cli.compare import compare
from miue.cli.cross_validate import cross_validate
from miue.cli.demo import demo
from miue.cli.evaluate import evaluate
from miue.cli.export import export_app
from miue.cli.hub import hub_app
from miue.cli.inspect import inspect
from miue.cli.interrupt import Commands
from miue.cli.make import data_make
from miue.cli.pack import data_pack, data_split
from miue.cli.patch_labels import data_patch_labels
from miue.cli.predict import predict
from miue.cli.report import report
from miue.cli.shift import data_shift
from miue.cli.tile import data_tile
from miue.cli.train import train

app = typer.Typer(
    name="miue",
    cls=Commands,
    help="Learn from bags with bag labels alone, and know how sure each prediction is.",
    epilog="Start with: miue demo. Or: miue data make digits-bags --out store; miue train store --out run; "
    "miue predict run store --out predictions; miue evaluate predictions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(
    help="Make and pack bag stores; cut slides into patches; draw splits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
data_app.command("make")(data_make)
data_app.command("tile")(data_tile)
data_app.command("pack")(data_pack)
data_app.command("split")(data_split)
data_app.command("shift")(data_shift)
data_app.command("patch-labels")(data_patch_labels)

for command in (demo, train, predict, evaluate, inspect):
    app.command()(command)
app.command("cross-validate")(cross_validate)
app.command("compare")(compare)
app.command()(calibrate)
app.command()(decide)
app.command()(report)
app.add_typer(data_app, name="data")
app.add_typer(export_app, name="export")
app.add_typer(hub_app, name="hub")
