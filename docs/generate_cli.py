"""Write docs/cli.md from the commands' own help; with --check, say whether it is true."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from miue.cli import app

PAGE = Path(__file__).with_name("cli.md")
COMMANDS = (
    (),
    ("demo",),
    ("data", "make"),
    ("data", "tile"),
    ("data", "pack"),
    ("data", "split"),
    ("data", "shift"),
    ("data", "patch-labels"),
    ("train",),
    ("cross-validate",),
    ("compare",),
    ("predict",),
    ("calibrate",),
    ("decide",),
    ("evaluate",),
    ("report",),
    ("inspect",),
    ("export", "geojson"),
    ("export", "heatmap"),
    ("export", "arrays"),
    ("export", "worklist"),
    ("hub", "card"),
    ("hub", "push"),
    ("hub", "pull"),
)


def paths_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that is no group."""
    if not hasattr(command, "commands"):
        yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths_of(below, (*path, name))


def page() -> str:
    """Return the page."""
    assert set(paths_of(get_command(app))) == set(COMMANDS[1:])
    parts = ["# All commands", "", "Generated from `--help`."]
    for path in COMMANDS:
        name = " ".join(("miue", *path))
        result = CliRunner().invoke(
            app, [*path, "--help"], prog_name="miue", env={"COLUMNS": "100", "TERM": "dumb"}
        )
        assert result.exit_code == 0, result.output
        parts += ["", f"## {name}", "", "```text", result.output.strip().replace("\n\n\n", "\n\n"), "```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PAGE.read_text("utf-8") != page():
            sys.exit("docs/cli.md is not what the commands say; run python docs/generate_cli.py")
    else:
        PAGE.write_text(page(), "utf-8")
