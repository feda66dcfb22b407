"""Arguments and options that several commands share beside their settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.common.text import OUTPUT, RUNNING

BAGS_HELP = (
    "Bag store, folder of feature files (CLAM, TRIDENT, STAMP, lazyslide, arrays) or of images (a folder for each "
    "bag), long table (CSV, Parquet) or folder of tables, each named after its bag."
)

Bags = Annotated[Path, typer.Argument(metavar="BAGS", help=BAGS_HELP)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained model.")]
GivenPredictions = Annotated[
    Path,
    typer.Argument(
        metavar="PREDICTIONS", help="Folder of predictions, or a bag table of any tool (CSV, Parquet)."
    ),
]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write.", rich_help_panel=OUTPUT)]
OutFile = Annotated[Path, typer.Option(metavar="FILE", help="File to write.", rich_help_panel=OUTPUT)]
ContinuedOut = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER", help="Folder to write; what is finished in it is not repeated.", rich_help_panel=OUTPUT
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier output at --out.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=RUNNING)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON instead of text.", rich_help_panel=OUTPUT)
]
