"""``miue merge``: shards of a prediction become one folder of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.options import AsJson, Out, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.predictions import warn_of_shift
from miue.common.folder_kinds import PREDICTIONS
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, plural, show_result


@keeps_inputs
@locks_out
def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD", help="Folders of all shards, in any order.")],
    out: Out,
    table_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="parquet|csv",
            help="Format of the instances, instead of that of the shards.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Merge the shards of a prediction.

    Writes what miue predict writes without --shard, byte for byte, including the decisions of a calibrated run.
    Shards of different predictions, missing shards and duplicate shards are refused. The shards of a
    cross-validation need no merge: the last one writes the tables.

    Example: miue merge shards/* --out predictions
    """
    from miue.model.shards import merge_predictions
    from miue.predictions.folder import check_table_format

    refuse_existing(out, PREDICTIONS, overwrite=overwrite)
    if table_format is not None:
        check_table_format(table_format)
    predictions = merge_predictions(
        shards, out, overwrite=overwrite, table_format=table_format, progress=not quiet
    )
    instances = 0 if predictions.instances is None else len(predictions.instances)
    facts = {"shards": len(shards), "bags": len(predictions.bags), "instances": instances, "out": str(out)}
    sentence = (
        f"{plural(len(shards), 'shard')} with {plural(len(predictions.bags), 'bag')} and "
        f"{plural(instances, 'instance')} merged: {out}"
    )
    show_result(facts, sentence, as_json)
    warn_of_shift(predictions)
