"""Help can be read: headings, one line a command at 80 columns, -h, the version, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import fail
from typer.main import get_command
from typer.testing import CliRunner

import miue
from miue.cli import app
from miue.cli.help import HEADINGS


def show_help(*words: str, columns: int = 80) -> str:
    environment = {"COLUMNS": str(columns), "TERM": "dumb"}
    result = CliRunner().invoke(app, [*words], prog_name="miue", env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_are_listed_under_what_they_are_for() -> None:
    lines = show_help("--help").splitlines()
    assert [line[:-1] for line in lines if line[:-1] in HEADINGS] == list(HEADINGS)
    every = {line.split()[0] for line in lines if line.startswith("  ") and line.split()}
    assert set(get_command(app).commands) <= every  # type: ignore[attr-defined]


def test_h_is_help_of_every_command() -> None:
    assert show_help("-h") == show_help("--help")
    assert show_help("data", "-h") == show_help("data", "--help")
    assert show_help("train", "-h") == show_help("train", "--help")


def test_the_version_is_that_of_the_package() -> None:
    assert show_help("--version") == f"miue {miue.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(shell: str) -> None:
    program = Path(sys.executable).with_name("miue")
    if not program.exists():
        pytest.skip("miue is not installed as a program here")
    environment = {**os.environ, "_MIUE_COMPLETE": f"source_{shell}"}
    script = subprocess.run([program], env=environment, capture_output=True, text=True, check=True).stdout
    assert "_MIUE_COMPLETE" in script


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group below ``command``."""
    for name, below in getattr(command, "commands", {}).items():
        yield (*path, name), below
        yield from walk(below, (*path, name))


def test_an_argument_that_may_be_repeated_has_three_dots() -> None:
    assert "compare [OPTIONS] FOLDER...\n" in show_help("compare", "--help")


def test_every_command_has_one_line_of_80_columns() -> None:
    lines = {path: (one.help or "").split("\n")[0] for path, one in walk(get_command(app))}
    assert {path: line for path, line in lines.items() if not 0 < len(line) <= 58} == {}


REPEATED_ALONE = {"--set": "values may hold commas", "--name": "names a method, in the order of PREDICTIONS"}


def test_names_of_an_option_may_be_repeated_or_separated_by_commas() -> None:
    for path, command in walk(get_command(app)):
        for option in command.params:
            if option.multiple and not set(option.opts) & set(REPEATED_ALONE):
                assert "or separate values by commas" in option.help, (path, option.opts)
                assert list(option.callback(None, None, ["a, b"])) == ["a", "b"], (path, option.opts)


def test_every_command_says_which_of_two_values_of_an_option_counts() -> None:
    """The last counted without a word: 'predict --part test --part calibration' lost a part."""
    checked = 0
    for path, command in walk(get_command(app)):
        for option in [one for one in command.params if one.param_type_name == "option" and not one.is_flag]:
            name = option.opts[-1]
            said = fail(*path, name, "7", f"{name}=8", name, "8", "--", name, "9", "--none")
            assert said.count(f"Note: {name} takes one value: '8' counts, not '7'") == (not option.multiple), path
            assert said.count("takes one value") <= 1, path
            checked += 1
    assert checked > 100


WITHOUT_QUIET = {
    ("worklist",): "reads tables",
    ("monitor",): "reads tables",
    ("compare",): "reads tables",
    ("hub", "card"): "reads tables",
    ("hub", "push"): "the progress is of huggingface_hub, with a switch of its own",
    ("hub", "pull"): "the progress is of huggingface_hub, with a switch of its own",
}


@pytest.mark.parametrize(("option", "reasons"), [("--json", {}), ("--quiet", WITHOUT_QUIET)])
def test_every_command_has_json_and_quiet_but_those_with_a_reason(
    option: str, reasons: dict[tuple[str, ...], str]
) -> None:
    commands = {path: one for path, one in walk(get_command(app)) if not hasattr(one, "commands")}
    without = {path for path, one in commands.items() if not any(option in p.opts for p in one.params)}
    assert without == set(reasons)
