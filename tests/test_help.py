"""Help can be read: headings, one line a command at 80 columns, -h, the version, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field, Strict
from typer.main import get_command
from typer.testing import CliRunner

import miue
from miue.cli import app
from miue.cli.flags import MANY, Command, takes_settings
from miue.common.errors import MiueError
from miue.common.settings import Location, Names, Settings, for_python
from miue.common.text import say_json
from miue.common.values import Option


def show_help(*words: str, columns: int = 80) -> str:
    environment = {"COLUMNS": str(columns), "TERM": "dumb"}
    result = CliRunner().invoke(app, [*words], prog_name="miue", env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def test_all_commands_are_listed() -> None:
    lines = {line.strip("│ ").split("  ")[0] for line in show_help("--help").splitlines()}
    assert set(get_command(app).commands) <= lines  # type: ignore[attr-defined]


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


def test_every_command_has_one_line_of_80_columns() -> None:
    lines = {path: (one.help or "").split("\n")[0] for path, one in walk(get_command(app))}
    assert {path: line for path, line in lines.items() if not 0 < len(line) <= 58} == {}


def options_of(command: Any) -> list[Any]:
    """Return the options of a command, those of its settings among them."""
    context = command.make_context("x", [], resilient_parsing=True)
    return [one for one in command.get_params(context) if one.param_type_name == "option"]


def commands() -> dict[tuple[str, ...], Any]:
    return {path: one for path, one in walk(get_command(app)) if not hasattr(one, "commands")}


def test_every_option_says_what_it_is_in_words_that_rich_reads_as_they_are() -> None:
    for path, command in commands().items():
        for option in options_of(command):
            assert option.help and "[" not in option.help, (path, option.opts)
            if option.multiple and "--set" not in option.opts:
                assert MANY in option.help, (path, option.opts)


def test_no_command_has_two_options_of_one_name() -> None:
    for path, command in commands().items():
        names = [name for option in options_of(command) for name in option.opts]
        assert len(names) == len(set(names)), path


class Sample(Settings):
    """Settings of each kind."""

    heading = "Sample"
    count: int = Field(default=3, ge=1, description="A count.")
    is_so: bool = Field(default=False, description="Whether.")
    words: Names = Field(default=(), description="Words.")
    numbers: Annotated[tuple[int, ...], Strict(False)] = Field(default=(), description="Numbers.")
    place: Location | None = Field(default=None, description="A place.")
    kind: Literal["a", "b"] = Field(default="a", description="A kind.")
    options: dict[str, Option] = Field(default={}, description="Options.")
    hidden: str = for_python("x", "For Python.")


@pytest.fixture
def sample() -> Any:
    """A program with a command that prints the settings that it is given."""
    program = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

    @program.command("show", cls=Command)
    @takes_settings(settings="test_help:Sample")
    def show(settings: Sample) -> None:
        """Show them."""
        say_json({**settings.given(), "place": str(settings.place)})

    return program


def shown(program: Any, *words: object) -> Any:
    result = CliRunner().invoke(program, [str(word) for word in words])
    if result.exception is not None:
        raise result.exception
    return {name: value for name, value in json.loads(result.output).items() if value != "None"}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--count", "5", "--is-so"], {"count": 5, "is_so": True}),
        (["--words", "a, b"], {"words": ["a", "b"]}),
        (["--words", "a, b", "--words", "c"], {"words": ["a, b", "c"]}),
        (["--numbers", "1,2"], {"numbers": [1, 2]}),
        (["--place", "x", "--kind", "b"], {"place": "x", "kind": "b"}),
        (["--set", "network.width=7", "--set", "count=4"], {"options": {"network.width": 7}, "count": 4}),
    ],
)
def test_a_flag_is_a_field(words: list[str], given: dict[str, Any], sample: Any) -> None:
    assert shown(sample, *words) == given


def test_a_file_gives_fields_and_flags_count_before_it(sample: Any, tmp_path: Path) -> None:
    lines = ["count = 7", "words = ['a']", "[options]", "'network.width' = 9"]
    (tmp_path / "s.toml").write_text("\n".join(lines))
    given = {"count": 7, "words": ["a"], "options": {"network.width": 9}}
    assert shown(sample, "--config", tmp_path / "s.toml") == given
    words = ("--count", "8", "--set", "network.depth=2")
    more = given | {"count": 8, "options": {"network.width": 9, "network.depth": 2}}
    assert shown(sample, "--config", tmp_path / "s.toml", *words) == more


@pytest.mark.parametrize(
    ("words", "item"),
    [
        (["--count", "0"], "--count"),
        (["--kind", "c"], "--kind 'c'"),
        (["--numbers", "1,x"], "--numbers, entry 1"),
        (["--set", "cuont=4"], "setting 'cuont'"),
        (["--set", "count"], "--set 'count'"),
        (["--config", "none.toml"], "settings 'none.toml'"),
    ],
)
def test_a_value_that_no_field_takes_is_named_by_its_flag(words: list[str], item: str, sample: Any) -> None:
    with pytest.raises(MiueError) as said:
        shown(sample, *words)
    assert said.value.item == item


WITHOUT_QUIET = {
    ("worklist",): "reads tables",
    ("view",): "reads tables",
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
    without = {path for path, one in commands().items() if not any(option in p.opts for p in one.params)}
    assert without == set(reasons)
