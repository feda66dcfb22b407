"""Tables that people read: the same in a terminal, as plain text and in a notebook; and as data frames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from miue.common.escapes import visible
from miue.common.extras import import_extra

if TYPE_CHECKING:
    from miue.common.terminal import TextTable

NARROWEST = 80  # characters of a line below a table


@dataclass(frozen=True)
class ResultTable:
    """A table of texts: what a terminal, a plain text and a notebook show alike.

    A single column without rows is not shown, but for its notes.

    Attributes:
        heading: of each column; the first is that of the names of the rows.
        rows: name and cells of each.
        notes: what to know of it, with the reason of each "—" by its number.
        is_prose: whether the cells are words, which begin at the left.
    """

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    is_prose: bool = False

    def last(self, count: int) -> ResultTable:
        """Return its last rows, and say that it has others.

        >>> shown = ResultTable(("day", "bags"), (("mon", "3"), ("tue", "4"))).last(1)
        >>> shown.rows, shown.notes
        ((('tue', '4'),), ('The last 1 of 2 rows.',))
        """
        if len(self.rows) <= count:
            return self
        note = f"The last {count:,} of {len(self.rows):,} rows."
        return replace(self, rows=self.rows[len(self.rows) - count :], notes=(note, *self.notes))

    def as_rich(self, title: str = "") -> TextTable:
        """Return it as a table for a terminal, which reads no text of it as markup."""
        from miue.common.terminal import TextTable

        table = TextTable(title=title or None, caption="\n".join(self.notes))
        for name, is_number in zip(self.heading, self._are_numbers, strict=True):
            table.add_column(name, justify="right" if is_number else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def as_text(self) -> str:
        """Return it as lines, the columns lined up."""
        widths = [max(map(len, column)) for column in zip(self.heading, *self.rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if is_number else cell.ljust(width)
                for cell, width, is_number in zip(row, widths, self._are_numbers, strict=True)
            ).rstrip()
            for row in (self.heading, *self.rows)
        ]
        notes = [line for note in self.notes for line in wrap(note, max(NARROWEST, len(lines[0])))]
        shown = [lines[0], "─" * len(lines[0]), *lines[1:]] if self._is_shown else []
        return visible("\n".join([*shown, *notes]), keep="\n")

    @property
    def _is_shown(self) -> bool:
        return bool(self.rows) or len(self.heading) > 1

    @property
    def _are_numbers(self) -> list[bool]:
        return [column > 0 and not self.is_prose for column in range(len(self.heading))]

    def as_html(self) -> str:
        """Return it as an HTML table; every text is escaped."""
        heading = "".join(f"<th>{escape(name)}</th>" for name in self.heading)
        side = "left" if self.is_prose else "right"
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            + "".join(f"<td style='text-align:{side}'>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for name, *cells in self.rows
        )
        notes = "<br>".join(map(escape, self.notes))
        table = f"<table><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table>" if self._is_shown else ""
        return f"{table}<p>{notes}</p>"


class PrintsAsTable:
    """What prints as its tables, in a notebook as tables of HTML."""

    def tables(self) -> Iterable[ResultTable]:
        """Return what is shown."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n\n".join(table.as_text() for table in self.tables())

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return "".join(table.as_html() for table in self.tables())


def require_pandas() -> Any:
    """Return the module pandas.

    Raises:
        ConfigError: it is not installed.
    """
    return import_extra("pandas", "a data frame", "pandas")
