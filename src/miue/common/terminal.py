"""What is shown on a terminal: text from data is shown as it is, never obeyed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import copy
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from miue.common.escapes import visible
from miue.common.result_table import NARROWEST

NO_LIMIT = 100_000  # characters of a line that is not written to a terminal


def say(text: str = "", *, err: bool = False) -> None:
    """Write a line, or several, to the standard output or the standard error, every text in it as it is."""
    typer.echo(visible(text, keep="\n\t"), err=err)


def say_json(content: Any) -> None:
    """Write JSON, in which every character that a terminal could obey is escaped."""
    typer.echo(json.dumps(content, indent=2).replace("\x7f", "\\u007f"))


def show_result(facts: Mapping[str, Any], sentence: str, as_json: bool) -> None:
    """Write what a command did, as JSON or as a sentence."""
    if as_json:
        say_json(facts)
    else:
        say(sentence)


def literal(text: str, style: str = "") -> Text:
    """Return a text for rich that is shown as it is: brackets are no markup, control characters are visible."""
    return Text(visible(text, keep="\n"), style)


class TextTable(Table):
    """A table whose headers, cells, title and caption are shown as they are, wherever they come from."""

    def __init__(
        self, *headers: str, title: str | None = None, caption: str | None = None, **options: Any
    ) -> None:
        super().__init__(title_justify="left", caption_justify="left", **options)
        for header in headers:
            self.add_column(header)
        self.title, self.caption = title, caption

    def __setattr__(self, name: str, value: Any) -> None:
        """Take a title and a caption as they are."""
        is_text = name in ("title", "caption") and isinstance(value, str)
        super().__setattr__(name, literal(value, f"table.{name}") if is_text else value)

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        """Add a column, in which a word that is too long is folded and no letter of it lost."""
        super().add_column(literal(header), *arguments, **{"overflow": "fold", **options})

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row."""
        super().add_row(*map(literal, cells), **options)


def show_table(table: Table) -> None:
    """Print a table to the standard output, of its natural width where that is no terminal.

    A caption may be wider than the table: below one narrow column, it would be a column of words in pieces.
    Of a single column without rows, the title and the caption are printed.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        natural = console.measure(table, options=console.options.update(width=NO_LIMIT)).maximum
        console.width = max(natural, NARROWEST)
    alone = copy(table)
    alone.caption = None
    if table.row_count or len(table.columns) > 1:
        console.print(alone)
    elif table.title:
        console.print(table.title)
    if table.caption:
        console.print(table.caption, width=max(console.measure(table).maximum, min(console.width, NARROWEST)))
