"""``miue inspect``: what a folder or a table holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, Quiet
from miue.common.text import say_json

if TYPE_CHECKING:
    from miue.settings import LoadSettings


@takes_settings(load="miue.settings:LoadSettings", without=("skip_bad",))
def inspect(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Folder of feature files, store, run, predictions, or long table."),
    ],
    load: LoadSettings,
    read: Annotated[
        bool,
        typer.Option(
            "--read",
            help="Read every feature: report NaN, infinity, rows of zeros and, in stores, tables and bags with "
            "labels, bags that are there under two names.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show what a folder or table contains; check its files.

    For feature files, shows each bag with its format, numbers of instances (N) and features (D), type, coords,
    patch size and problems. With --labels (or --splits, --instance-labels), shows how many bags of each class and
    how many patients miue train would read, and what it would leave out.

    Example: miue inspect features_uni_v2 --labels labels.csv
    """
    from miue.cli.inspection import describe, description_table

    description = describe(path, load, read=read, progress=not quiet)
    if as_json:
        say_json(description)
        return
    bags = description.pop("bag", None)
    if bags is not None:
        from miue.cli.inspection import bag_file_table

        bag_file_table(bags).show()
    description_table(description).show(f"{description['kind']}: {description['path']}")
