"""``miue compare``: cross-validations side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from miue.common.escapes import escape_markdown
from miue.common.terminal import TextTable, show_table

METRICS = ("accuracy", "auroc", "confidence_auroc", "nll", "ece")


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
    from miue.common.errors import ConfigError, unknown_name
    from miue.common.files import atomic_file
    from miue.selection.comparison import compare as side_by_side

    found = side_by_side(folders)
    known = list(dict.fromkeys(key for one in found for key in one.summaries))
    levels = list(dict.fromkeys(name for name, _ in known))
    if level not in levels:
        raise unknown_name("level", level, levels)
    there = [name for at, name in known if at == level]
    for name in metric or ():
        if name not in there:
            raise unknown_name("metric", name, there)
    columns = list(metric or [name for name in METRICS if name in there])
    if not columns:
        raise ConfigError(item="--metric", wanted="a metric", got=", ".join(there), fix="name one of these")
    rows = rows_of(found, level, columns)
    note = note_on(found)
    if out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(markdown(columns, rows, note), "utf-8")
    show_table(table_of(columns, rows, note))


def rows_of(found: Sequence[Any], level: str, columns: Sequence[str]) -> list[list[str]]:
    """Return a row of texts for each cross-validation: its name, its runs, and each metric."""
    rows = []
    for one in found:
        summaries = [one.summaries.get((level, name)) for name in columns]
        runs = max((s.runs for s in summaries if s), default=0)
        cells = [_cell(s, one.differences.get((level, name))) for s, name in zip(summaries, columns, strict=True)]
        rows.append([one.name, str(runs), *cells])
    return rows


def _cell(summary: Any, difference: Any) -> str:
    if summary is None:
        return "—"
    from miue.selection.cross_validation import is_share

    scale, digits = (100, 1) if is_share(summary.metric) else (1, 3)
    text = f"{scale * summary.mean:.{digits}f}"
    if summary.std is not None:
        text += f" ± {scale * summary.std:.{digits}f}"
    if difference is not None:
        p = "" if difference.p is None else f", p {difference.p:.2f}"
        text += f" ({scale * difference.mean:+.{digits}f}{p})"
    return text


def note_on(found: Sequence[Any]) -> str:
    """Return what the numbers are, and which rows cannot be compared with the first."""
    others = [one.name for one in found if not one.same_tests]
    apart = f" Without a difference, since their folds test other bags: {', '.join(others)}." if others else ""
    return f"{NOTE}{apart}"


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> TextTable:
    """Return the rows as a table for a person."""

    table = TextTable(caption=note)
    table.add_column("", overflow="fold")
    for name in ("runs", *columns):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return the rows as a Markdown table with its note."""
    head = ["", "runs", *columns]
    first, *others = (f"| {' | '.join(map(escape_markdown, row))} |" for row in (head, *rows))
    return "\n".join([first, "| --- |" + " ---: |" * (len(head) - 1), *others, "", escape_markdown(note), ""])


NOTE = (
    "Mean over folds ± standard deviation over runs, shares in %; in brackets the difference to the first row on "
    "the same folds and its p-value."
)
