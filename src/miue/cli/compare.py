"""``miue compare``: cross-validations side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.flags import MANY, separate
from miue.cli.options import AsJson, Overwrite
from miue.cli.outputs import keeps_inputs, locks_out
from miue.common.errors import ConfigError
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, ResultTable, escape_markdown, say_json

if TYPE_CHECKING:
    from miue.selection import Compared

CSV, MARKDOWN = ".csv", ("", ".md", ".markdown", ".txt")
NUMBERS = ("name", "level", "metric", "runs", "mean", "std", "low", "high", "difference", "p")


@keeps_inputs
@locks_out
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Folders of 'miue cross-validate'; the first is the base."),
    ],
    level: Annotated[str, typer.Option(metavar="bags|instances|patients", help="Level to compare.")] = "bags",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Metric to show, in this order; by default the most common, in --json and a .csv all. {MANY}",
            callback=separate,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the table as Markdown (.md), or its numbers (.csv), a row for each metric.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare cross-validations, with p-values.

    Shows mean ± standard deviation, and the difference from the first folder. If each fold tests the same bags,
    the difference has a p-value (corrected resampled t-test, two-sided; with many comparisons, some are small by
    chance). Networks, methods, features and training bags may differ.

    Example: miue compare cv-attention cv-max cv-dsmil --metric accuracy --metric auroc --out table.md
    """
    from miue.common.files import atomic_file
    from miue.common.tables import write_rows
    from miue.selection import compare as compare_folders

    if out is not None:
        _check_kind(out)
        refuse_existing(out, overwrite=overwrite)
    found = compare_folders(folders)
    table = found.as_table(level, metric)
    if out is not None and out.suffix.lower() == CSV:
        write_rows(out, NUMBERS, [row for one in found for row in _rows_of(one, level, metric)])
    elif out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(markdown(table), "utf-8")
    if as_json:
        say_json([_to_json(one, level, metric) for one in found])
    else:
        table.show()


def _check_kind(out: Path) -> None:
    """Raise unless a file is named as one of a kind that is written.

    Raises:
        ConfigError: another one, such as .tex.
    """
    if out.suffix.lower() not in (CSV, *MARKDOWN):
        raise ConfigError(
            item=f"--out {str(out)!r}",
            wanted="a file of Markdown (.md) or of numbers (.csv)",
            got=f"the ending {out.suffix!r}",
            fix="name one of these; for LaTeX: miue.compare(folders).to_frame().to_latex() in Python",
        )


def _rows_of(one: Compared, level: str, metrics: list[str] | None) -> list[list[Any]]:
    """Return the metrics of a cross-validation as numbers, in the order in which they are asked for."""
    numbers = one.numbers()
    keys = [(level, name) for name in metrics] if metrics else [key for key in numbers if key[0] == level]
    return [[numbers[key][column] for column in NUMBERS] for key in keys if key in numbers]


def _to_json(one: Compared, level: str, metrics: list[str] | None) -> dict[str, Any]:
    """Return the metrics of a cross-validation as numbers, each with its difference to the first."""
    values = {
        name: {
            **asdict(summary),
            "difference": asdict(one.differences[at, name]) if (at, name) in one.differences else None,
        }
        for (at, name), summary in one.summaries.items()
        if at == level and (not metrics or name in metrics)
    }
    return {"name": one.name, "same_tests": one.same_tests, "metrics": values}


def markdown(table: ResultTable) -> str:
    """Return a table as Markdown with its notes."""
    first, *others = (f"| {' | '.join(map(escape_markdown, row))} |" for row in (table.heading, *table.rows))
    rule = "| --- |" + " ---: |" * (len(table.heading) - 1)
    return "\n".join([first, rule, *others, "", *map(escape_markdown, table.notes), ""])
