"""``miue compare``: cross-validations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.common.escapes import escape_markdown
from miue.common.result_table import ResultTable
from miue.common.terminal import show_table


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of 'miue cross-validate'; the first is the base.")
    ],
    level: Annotated[str, typer.Option(help="bags, instances or patients.")] = "bags",
    metric: Annotated[
        list[str] | None, typer.Option(help="Only these columns, in this order; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table as Markdown.")] = None,
) -> None:
    """Set cross-validations side by side: mean ± standard deviation, and the difference to the first.

    Where each fold tests the same bags, the difference stands with its p-value (corrected resampled t-test,
    two-sided; of many comparisons some are small by chance). Networks, methods, features and what is trained on
    may differ.
    Example: miue compare cv-attention cv-max cv-dsmil --metric accuracy --metric auroc --out table.md
    """
    from miue.common.files import atomic_file
    from miue.selection.comparison import compare as compare_folders

    found = compare_folders(folders)
    table = found.as_table(level, metric)
    if out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(markdown(table), "utf-8")
    show_table(table.as_rich())


def markdown(table: ResultTable) -> str:
    """Return a table as Markdown with its notes."""
    first, *others = (f"| {' | '.join(map(escape_markdown, row))} |" for row in (table.heading, *table.rows))
    rule = "| --- |" + " ---: |" * (len(table.heading) - 1)
    return "\n".join([first, rule, *others, "", *map(escape_markdown, table.notes), ""])
