"""Every command and every example of the README and the docstrings runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import miue
from miue.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_readme_is_short_and_has_two_pictures_before_the_commands() -> None:
    assert len(README.split()) <= 800
    pictures = re.findall(r"^!\[[^\]]+\]\((docs/images/[^)]+)\)", README, re.M)
    assert pictures == ["docs/images/view.jpg", "docs/images/report.png"]
    assert README.index(pictures[1]) < README.index("## Run it")


def test_the_targets_of_make_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    called = re.findall(r"^make ([a-z-]+)$", blocks("sh")[0], re.M)
    assert called == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in called)


@pytest.mark.long
def test_every_command_line_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_epochs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    _, install, own_data = blocks("sh")
    assert install == "pip install .\n"
    commands = [shlex.split(line) for line in own_data.strip().splitlines()]
    assert len(commands) == 8
    for name, *command in commands:
        assert name == "miue"
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception}"
        assert "are not like" not in result.output, command  # calibration and test bags are of one source


@pytest.mark.long
def test_the_python_example_of_the_readme_runs_and_prints_no_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], few_epochs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    (example,) = blocks("python")
    assert len(ast.parse(example).body) <= 8
    exec(compile(example, "README.md", "exec"), scope)
    said = capsys.readouterr().out
    printed = [line.split("  ")[0] for line in said.splitlines()]
    shown = [line.split("  ")[0] for line in blocks("text")[0].splitlines()]
    assert "—" not in said and "OOD photographs, AUROC by combined" in shown
    assert set(shown) <= set(printed)
    assert isinstance(scope["predictions"], miue.Predictions)
    assert (tmp_path / "predictions" / "bags.csv").exists()


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", README):
        assert (ROOT / target).exists(), target


MODULES = [m.name for m in pkgutil.walk_packages(miue.__path__, "miue.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", ["miue", *MODULES])
def test_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    scope = {"torch": importlib.import_module("torch"), "np": importlib.import_module("numpy")}
    results = doctest.testmod(module, extraglobs=scope, verbose=False)
    assert results.failed == 0
