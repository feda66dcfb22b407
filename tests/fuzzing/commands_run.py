"""A case, and commands run on it as a user runs them."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

LONGEST_MESSAGE = 3000  # characters; what a person can still read


@dataclass(frozen=True)
class Case:
    """A copy of a whole thing of which one file was damaged.

    Attributes:
        base: folder of the whole things.
        folder: the copy.
        target: the damaged file within it, relative; the same in the whole thing.
        whole: the content of that file before.
        damaged: its content now, None where it was removed.
        expect: of a reader, as ``Damaged`` says.
    """

    base: Path
    folder: Path
    target: str
    whole: bytes
    damaged: bytes | None
    expect: str

    @property
    def path(self) -> Path:
        """The damaged file."""
        return self.folder / self.target

    @property
    def name(self) -> str:
        """The name of the damaged file."""
        return Path(self.target).name

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return self.whole == self.damaged


class Refused(Exception):
    """A command refused with one clear message."""


class Unclear(Exception):
    """A command ended in a way that no user can act on."""


def run(*words: object) -> tuple[str, str]:
    """Run a command; return what it wrote to standard output and to standard error.

    Raises:
        Refused: it ended with status 2 and one message of four parts.
        Unclear: any other end but success, or text that would steer a terminal.
    """
    from miue.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with (
            patch.object(sys, "argv", ["miue", *map(str, words)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        code = 0 if end.code is None else int(end.code)
    said, complained = out.getvalue(), err.getvalue()
    if "\x1b" in said or "\x1b" in complained:
        raise Unclear(f"an escape sequence reaches the terminal: {(said + complained)[-300:]!r}")
    if code == 0:
        return said, complained
    found = re.findall(r"^miue: error: .+?: expected .*?, got .*?; .+", complained, re.MULTILINE | re.DOTALL)
    if code != 2 or len(found) != 1 or complained.count("miue: error:") != 1:
        raise Unclear(f"status {code}: {complained[-500:]}")
    if len(found[0]) > LONGEST_MESSAGE:
        raise Unclear(f"a message of {len(found[0]):,} characters: {found[0][:200]}")
    raise Refused(found[0])
