"""``miue inspect``: what a folder or a table holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.options import AsJson, Quiet
from miue.cli.sources import columns_by_meaning
from miue.common.terminal import say_json, show_table


def inspect(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Folder of feature files, store, run, predictions, or long table."),
    ],
    as_json: AsJson = False,
    read: Annotated[
        bool,
        typer.Option(
            "--read", help="Read every feature: report NaN, infinity and rows of zeros; verify a packed store."
        ),
    ] = False,
    mpp: Annotated[
        float | None, typer.Option(help="µm per level-0 pixel, for files with coords in µm (STAMP).")
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a long table: column of the bag's name, if not recognized."),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a long table: column of the label, if not recognized.")
    ] = None,
    patient_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a long table: column of the patient, if not recognized.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show what a folder or table contains.

    Of feature files each bag: format, N, D, type, coords, patch size, problems.

    Example: miue inspect features_uni_v2 --read
    """
    from miue.cli.inspection import describe, description_table

    columns = columns_by_meaning(id_column, label_column, patient_column)
    description = describe(path, microns_per_pixel=mpp, read=read, columns=columns, progress=not quiet)
    if as_json:
        say_json(description)
        return
    bags = description.pop("bag", None)
    if bags is not None:
        from miue.cli.inspection import bag_file_table

        show_table(bag_file_table(bags))
    show_table(description_table(description))
