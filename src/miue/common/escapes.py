"""Text from data, as it is shown where a program could obey it: a terminal, a spreadsheet, Markdown."""

from __future__ import annotations

import re
import unicodedata

LONGEST_TEXT = 300
"""Characters of a library's message, or of names in a file, that are passed on."""

FORMULA = re.compile(r"((?:^|[;\t\r\n])[ \"]*)([=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""Where a spreadsheet begins a formula: at the start of a cell, and of what it may take for one."""


FORMATS = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's control characters, marks of direction and the like, halves of characters, ends of lines."""

JOINERS = "\u200c\u200d\u00ad"
"""Marks of format that some languages and emoji are written with; they move nothing."""


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

    Control characters, line breaks among them, become visible escapes.

    >>> print(escape_markdown("tumor_1 [x](http://y) | <b>"))
    tumor_1 \[x\](http\://y) \| \<b\>
    """
    escaped = re.sub(r"([\\`*\[\]<>|&~#!$])|(?<!\w)(_)|(_)(?!\w)|(:)(?=//)", r"\\\g<0>", visible(str(text)))
    return re.sub(r"(?i)\b(www)\.", r"\1\\.", escaped)


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return the beginning of a text that comes from a file or a library, which may be of any length.

    >>> len(shortened("a" * 1_000_000))
    301
    """
    return text if len(text) <= longest else f"{text[:longest]}…"
