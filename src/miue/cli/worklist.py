"""``miue worklist``: which bags a person should review first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, GivenPredictions, Overwrite
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.predictions import read_given, warn_of_shift
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, ResultTable, plural, say, say_json

if TYPE_CHECKING:
    from miue.settings import Limits, TableSettings


@takes_settings(table="miue.settings:TableSettings", limits="miue.settings:Limits")
@keeps_inputs
@locks_out
def worklist(
    predictions: GivenPredictions,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV file to write; its limits are written next to it as .json.",
            rich_help_panel=OUTPUT,
        ),
    ],
    table: TableSettings,
    limits: Limits,
    show: Annotated[
        int, typer.Option(min=0, help="Rows to print; the file has all.", rich_help_panel=OUTPUT)
    ] = 20,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """List the bags to review first, with reasons.

    With a calibration, it alone determines which bags come first: those called out of distribution, then those
    deferred, then those with an empty prediction set. Without one, bags come first that differ from those the
    model was validated on: far from the training data, model unsure, in between classes, or few instances. Bags
    with the same reason are sorted by how far out of distribution they are. All others are routine. Labels are
    not read.

    Example: miue worklist predictions --out worklist.csv
    """
    from miue.calibration import limits_file, write_worklist
    from miue.calibration import worklist as make_worklist

    for path in (out, limits_file(out)):
        refuse_existing(path, overwrite=overwrite)
    given = read_given(predictions, table.instances, table.classes)
    made = make_worklist(given, limits)
    write_worklist(out, made)
    first = sum(row["look"] == "first" for row in made.rows)
    if as_json:
        judged = {"limits": made.judged, **({"flags": made.flags} if made.flags else {})}
        say_json({"slides": len(made.rows), "first": first, "rows": made.rows, **judged, "out": str(out)})
    else:
        patients = [row["patient"] for row in made.rows if row.get("patient")]
        several = len(patients) > len(set(patients))
        worklist_table(made.rows[:show], made.per, with_patients=several).show()
        for reason, limit in made.judged.items():
            say(f"{reason}: {limit}")
        for reason, why in made.not_judged.items():
            say(f"not judged, {reason}: {why}")
        if made.flags:
            say(f"flagged instances: {made.flags}")
        say(f"order: {made.order}")
        say(f"{first:,} of {plural(len(made.rows), 'bag')} to be reviewed first: {out}")
    if made.warning:
        say(f"Warning: {made.warning}", err=True)
    warn_of_shift(given)


def worklist_table(rows: list[dict[str, Any]], per: str = "slide", *, with_patients: bool = False) -> ResultTable:
    """Return the rows, each of what ``per`` says, as a table; the numbers behind the reasons are in the file."""
    any_flags = any("flagged_patches" in row for row in rows)
    flagged = ["flagged"] if any_flags else []
    patient = ["patient"] if with_patients else []
    bag = "bag" if per == "slide" else per
    probability = ["probability"] if all("probability" in row for row in rows) else []
    heading = ("", bag, *patient, "look", "predicted", *probability, "instances", *flagged, "reason")
    shown = []
    for row in rows:
        count = "—" if row["patches"] is None else f"{row['patches']:,}"
        cells = [
            str(row["order"]),
            row[per],
            *([row["patient"]] if with_patients else []),
            row["look"],
            row["predicted"],
            *(f"{row[name]:.2f}" for name in probability),
            count,
            *([f"{row['flagged_patches']:,}"] if any_flags else []),
        ]
        shown.append((*cells, "\n".join(part.split(" (")[0] for part in row["reason"].split("; "))))
    return ResultTable(heading, shown, is_prose=True)
