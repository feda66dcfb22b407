"""Text for terminals and pages, and warnings for users."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text


Item = TypeVar("Item")

LABELS, MODEL, TRAINING, RULES, OUTPUT, RUNNING = (
    *("Labels and splits", "Model", "Training"),
    *("Rules", "Output", "Running"),
)
"""Headings of settings in help."""

LONGEST_TEXT = 300
"""Characters of a library's message, or of names in a file, that are passed on."""

FORMULA = re.compile(r"((?:^|[;\t\r\n])[ \"]*)([=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""Where a spreadsheet begins a formula: at the start of a cell, and of what it may take for one."""

FORMATS = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's control characters, marks of direction and the like, halves of characters, ends of lines."""

JOINERS = "\u200c\u200d\u00ad"
"""Marks of format that some languages and emoji are written with; they move nothing."""

NARROWEST = 80  # characters of a line below a table
NO_LIMIT = 100_000  # characters of a line that is not written to a terminal


def visible(text: str, *, keep: str = "") -> str:
    """Return a text in which control characters are shown as escapes, so that a terminal obeys none.

    Args:
        text: of any source.
        keep: control characters to leave as they are.

    >>> visible("slide\\x1b[31m 7"), visible("two\\nlines", keep="\\n")
    ('slide\\\\x1b[31m 7', 'two\\nlines')
    """
    if text.isprintable():
        return text
    return "".join(
        ascii(character)[1:-1]
        if unicodedata.category(character) in FORMATS and character not in JOINERS + keep
        else character
        for character in text
    )


def escape_formula(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: an apostrophe before what would begin one.

    Reference: OWASP, "CSV Injection".

    >>> escape_formula("=1+1"), escape_formula("slide-7 = a"), escape_formula("-5")
    ("'=1+1", 'slide-7 = a', "'-5")
    """
    escaped = FORMULA.sub(r"\1'\2", text)
    return f"'{escaped}" if escaped[:1] in ("\t", "\r", "\n") else escaped


def escape_markdown(text: object) -> str:
    r"""Return one line of Markdown that shows a text as it is: no link, picture, heading, HTML or table cell.

    >>> print(escape_markdown("tumor_1 [x](http://y) | <b>"))
    tumor_1 \[x\](http\://y) \| \<b\>
    """
    escaped = re.sub(r"([\\`*\[\]<>|&~#!$])|(?<!\w)(_)|(_)(?!\w)|(:)(?=//)", r"\\\g<0>", visible(str(text)))
    return re.sub(r"(?i)\b(www)\.", r"\1\\.", escaped)


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return the beginning of a text that comes from a file or a library, which may be of any length."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "bag"), plural(2000, "positive bag"), plural(3, "patch"), plural(2, "class"), plural(20, "epoch")
    ('1 bag', '2,000 positive bags', '3 patches', '2 classes', '20 epochs')
    """
    ending = "" if count == 1 else "es" if noun.endswith(("s", "tch", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def is_or_are(count: int) -> str:
    """Return the verb of a count: "1 is", "2 are"."""
    return "is" if count == 1 else "are"


def say(text: str = "", *, err: bool = False) -> None:
    """Write a line, or several, to the standard output or the standard error, every text in it as it is."""
    print(visible(text, keep="\n\t"), file=sys.stderr if err else sys.stdout, flush=True)


def say_json(content: Any) -> None:
    """Write JSON, in which every character that a terminal could obey is escaped."""
    print(json.dumps(content, indent=2).replace("\x7f", "\\u007f"), flush=True)


def show_result(facts: Mapping[str, Any], sentence: str, as_json: bool) -> None:
    """Write what a command did, as JSON or as a sentence."""
    if as_json:
        say_json(facts)
    else:
        say(sentence)


def literal(text: str, style: str = "") -> Text:
    """Return a text for rich that is shown as it is: brackets are no markup, control characters are visible."""
    from rich.text import Text

    return Text(visible(text, keep="\n"), style)


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

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
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

    def as_text(self) -> str:
        """Return it as lines, the columns lined up."""
        widths = [max(map(len, column)) for column in zip(self.heading, *self.rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if side == "left" else cell.rjust(width)
                for cell, width, side in zip(row, widths, self._sides, strict=True)
            ).rstrip()
            for row in (self.heading, *self.rows)
        ]
        notes = [line for note in self.notes for line in wrap(note, max(NARROWEST, len(lines[0])))]
        shown = [lines[0], "─" * len(lines[0]), *lines[1:]] if self._is_shown else []
        return visible("\n".join([*shown, *notes]), keep="\n")

    def as_html(self) -> str:
        """Return it as an HTML table; every text is escaped."""
        heading = "".join(f"<th>{escape(name)}</th>" for name in self.heading)
        rows = ""
        for row in self.rows:
            cells = zip(self._sides, map(escape, row), strict=True)
            shown = "".join(f"<td style='text-align:{side}'>{cell}</td>" for side, cell in cells)
            rows += f"<tr>{shown}</tr>"
        table = f"<table><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table>" if self._is_shown else ""
        return f"{table}<p>{'<br>'.join(map(escape, self.notes))}</p>"

    @property
    def _is_shown(self) -> bool:
        return bool(self.rows) or len(self.heading) > 1

    @property
    def _sides(self) -> list[str]:
        return ["left" if self.is_prose or column == 0 else "right" for column in range(len(self.heading))]

    def show(self, title: str = "") -> None:
        """Print it to the standard output, of its natural width where that is no terminal.

        The notes may be wider than the table: below one narrow column, they would be a column of words in pieces.
        """
        from rich.console import Console
        from rich.table import Table

        console = Console()
        table = Table(title=literal(title, "table.title"), title_justify="left", show_header=any(self.heading))
        for name, side in zip(self.heading, self._sides, strict=True):
            table.add_column(literal(name), justify=side, overflow="fold")  # type: ignore[arg-type]
        for row in self.rows:
            table.add_row(*map(literal, row))
        if not console.is_terminal and "COLUMNS" not in os.environ:
            natural = console.measure(table, options=console.options.update(width=NO_LIMIT)).maximum
            console.width = max(natural, NARROWEST)
        if self._is_shown:
            console.print(table)
        elif title:
            console.print(table.title)
        if self.notes:
            width = max(console.measure(table).maximum, min(console.width, NARROWEST))
            console.print(literal("\n".join(self.notes), "table.caption"), width=width)


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


class NoBar(nullcontext[Any]):
    """Takes what a bar takes, and shows nothing; one of rich takes a share of the time of a small prediction."""

    def __enter__(self) -> NoBar:
        return self

    def add_task(self, *arguments: Any, **options: Any) -> Any:
        """Do nothing."""

    update = advance = add_task

    def track(self, items: Iterable[Item], **options: Any) -> Iterable[Item]:
        """Return the items."""
        return items


def bar(unit: str, *, shown: bool, kept: bool = True) -> Progress | NoBar:
    """Return a bar on the standard error that counts ``unit`` and shows the time left.

    Args:
        unit: what is counted.
        shown: show it.
        kept: leave it on the screen when it has ended; one that is not kept is shown on a terminal alone.
    """
    if not shown:
        return NoBar()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}, time left"),
        TimeRemainingColumn(),
        console=console,
        disable=not (kept or console.is_terminal),
        transient=not kept,
    )


def tracked(
    items: Sequence[Item] | Iterable[Item],
    doing: str,
    *,
    shown: bool,
    total: int | None = None,
    unit: str = "bags",
    kept: bool = True,
) -> Iterator[Item]:
    """Yield ``items`` while a bar shows how many are done."""
    with bar(unit, shown=shown, kept=kept) as progress:
        yield from progress.track(items, description=doing, total=total)


def render_page(
    template: Path, values: Mapping[str, Any], data: Mapping[str, Any], scripts: Sequence[str] = ()
) -> bytes:
    """Return a page as UTF-8.

    Every text is escaped; scripts run only where their hash is named in the page's content security policy,
    which allows no request at all.

    Args:
        template: of jinja2, which includes other files of its folder; it has ``scripts`` and their ``hashes``.
        values: of the template.
        data: what the figures are drawn from, JSON values without NaN.
        scripts: names of files in the folder of the template, which run as one after plotly's.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    own = "\n".join((template.parent / name).read_text("utf-8") for name in scripts)
    texts = [_plotly(), f'"use strict";\n(function () {{\n{own}\n}})();\n']
    digests = [base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii") for text in texts]
    page = environment.get_template(template.name).render(
        **values,
        scripts=[Markup(text) for text in texts],  # our own text, never anyone's data
        hashes=" ".join(f"'sha256-{digest}'" for digest in digests),
        data=Markup(json_in_html(data)),
    )
    return page.encode("utf-8", "replace")


def json_in_html(data: Mapping[str, Any]) -> str:
    r"""Return JSON that may stand in a script element: no text in it can end that element.

    >>> json_in_html({"id": "</script>"})
    '{"id":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("\r\n", "\n")


PASSED_OVER = {__name__.partition(".")[0], "contextlib", "lightning"}


def warn_user(message: str) -> None:
    """Warn at the line outside this package and Lightning from which it was called, however deep the call is.

    Python shows the same warning once for each such line.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
