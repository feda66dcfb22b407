"""The paper's own command line, and that the library knows nothing of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import miue.cli
from papers.mirel import cli

ROOT = Path(__file__).resolve().parents[2]


def command_paths(command: Any, path: str = "") -> list[str]:
    """Return the words of every command that is no group."""
    below = getattr(command, "commands", None)
    if below is None:
        return [path]
    return [words for name, sub in below.items() for words in command_paths(sub, f"{path} {name}".strip())]


@pytest.mark.long
def test_the_library_imports_nothing_of_papers() -> None:
    files = sorted((ROOT / "src").rglob("*.py"))
    assert len(files) > 100
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "papers" for name in names), file


def test_the_commands_of_the_paper_are_its_own() -> None:
    assert sorted(command_paths(get_command(cli.app))) == [
        "choose",
        "decisions",
        "distances",
        "error-measures",
        "figure",
        "instance-guarantees",
        "list",
        "mitoses make",
        "mitoses run",
        "mitoses table",
        "near-ood",
        "nuclei detect-shifts",
        "nuclei make",
        "nuclei run",
        "nuclei table",
        "routing",
        "run",
        "seeds",
        "shift-scores",
        "small-cohorts",
        "table",
        "temperatures",
        "ue",
    ]
    assert not {"paper", "nuclei"} & set(get_command(miue.cli.app).commands)  # type: ignore[attr-defined]


def test_the_readme_shows_every_command() -> None:
    shown = (ROOT / "papers" / "mirel" / "README.md").read_text("utf-8")
    for words in command_paths(get_command(cli.app)):
        assert f"\npython -m papers.mirel {words} " in shown, words


@pytest.mark.long
def test_the_module_runs_from_the_checkout_and_an_error_is_one_line() -> None:
    command = [sys.executable, "-m", "papers.mirel", "table", "tabel-mnist"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("papers.mirel: error: table 'tabel-mnist'")
    assert len(result.stderr.splitlines()) == 1
    assert "did you mean 'table-mnist'" in result.stderr


@pytest.mark.parametrize("text", ["x", "42,", "42;17"])
def test_seeds_that_are_no_numbers_are_refused(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["papers.mirel", "list", "--seeds", text])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "--seeds: expected whole numbers separated by commas" in capsys.readouterr().err


def test_an_interrupt_ends_with_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("papers.mirel.runner.missing", interrupted)
    monkeypatch.setattr(sys, "argv", ["papers.mirel", "list"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130
    assert capsys.readouterr().err.startswith("papers.mirel: interrupted: ")
